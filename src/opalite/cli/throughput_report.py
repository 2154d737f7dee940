"""Report of `opalite bench --throughput`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..bench.report import milliseconds
from ..bench.throughput import Mode, Throughput
from ..pocl.core_affinity import allowed_cores, core_limit


def core_count() -> int:
    """The number of cores that this process may use."""
    return core_limit() or len(allowed_cores())


def print_throughput(console: Console, found: Throughput, percentiles: tuple[float, ...]) -> None:
    """Print a table of the modes, and the Python code of Opalite's best mode."""
    table = Table(box=None)
    for title in ("mode", "inferences/s", "times the first", "p50 ms", *(f"p{q:g} ms" for q in percentiles), "differs"):
        table.add_column(title, justify="left" if title == "mode" else "right")
    for y in found.modes:
        table.add_row(
            str(y.mode),
            f"{y.rate.median:.1f}",
            f"{found.gain(y):.2f}",
            *(milliseconds(y.latency_s(q)) for q in (50, *percentiles)),
            f"{y.difference:.0e}" if y.difference else "",
        )
    console.print(f"model    {found.model}, {found.plan.threads} threads")
    for engine, version, device in dict.fromkeys((y.mode.engine, y.version, y.device) for y in found.modes):
        console.print(f"engine   {engine} {version} on {device}")
    console.print(table)
    for name, reason in found.failed.items():
        console.print(f"{name} is missing: {reason}", soft_wrap=True)
    best = found.best
    console.print(f"best     {best.mode.kind}: {mode_expression(best.mode, found.model)}", soft_wrap=True, markup=False)


def mode_expression(mode: Mode, model: str) -> str:
    """The Python expression of one of Opalite's modes."""
    if mode.kind == "latency":
        return f"opalite.InferenceSession({model!r})"
    processes = ", processes=True" if mode.kind == "processes" else ""
    return f"opalite.InferQueue({model!r}, workers={mode.workers}{processes})"
