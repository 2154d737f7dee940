"""`opalite profile`: measures every launch, by node and by kernel, against the device's peaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from ..errors import InputError
from ..ir.device.device_descriptions import is_description
from ..run.report.profile import Profile, Row
from .console import make_console, print_caches, print_lines
from .described_device import described_plan
from .json_report import json_options, report
from .output_files import check_writable, write_text
from .session_inputs import precision_lines, session_inputs, settle_precision
from .shared_options import file_option, model_argument, option_value, seed_option, session_kwargs, session_options
from .tables import Column, print_table

if TYPE_CHECKING:
    from ..run.report.device_plan import DevicePlan


@click.command()
@model_argument
@file_option
@seed_option
@click.option("--iterations", type=click.IntRange(min=1), default=10, show_default=True, help="Profiled runs.")
@click.option("--trace", default=None, metavar="FILE.json", help="Write a Chrome trace; opens in Perfetto.")
@click.option("--limit", type=click.IntRange(min=0), default=40, show_default=True, help="Rows by node; 0 shows all.")
@click.option(
    "--plan", "planned", is_flag=True, help="Estimates by the plan, without a run; --device may be a description."
)
@json_options
@session_options
def command(model: str, iterations: int, trace: str | None, limit: int, planned: bool) -> None:
    """Profile MODEL: queued, submitted, started and ended times of every launch."""
    if planned:
        _profile_plan(model, limit)
        return
    if is_description(device := option_value("device")):
        raise InputError(f"{device} describes a device that is not here, so that nothing can be timed; give --plan too")
    from ..run.api.session.inference_session import InferenceSession

    check_writable(trace)
    session = InferenceSession(model, **session_kwargs())
    inputs = session_inputs(session)
    console = make_console()
    with inputs.explained():
        settle_precision(session, inputs, console)
        profile = session.profile(inputs.feeds, iterations=iterations)
    if trace is not None:
        write_text(trace, profile.to_chrome_trace())
        click.echo(f"wrote {trace}", err=True)
    if report(_record(model, profile, precision_lines(session, inputs))):
        return
    print_lines(console, inputs.assumptions())
    nodes = profile.by_node()
    heaviest = sorted(nodes, key=lambda r: -r.seconds)
    print_rows(console, "node", heaviest[:limit] if limit else heaviest, profile)
    print_rows(console, "kernel", profile.by_kernel(), profile)
    console.print(
        f"device {1e3 * profile.device_s:.3f} ms of {1e3 * profile.run_s:.3f} ms a run, {len(nodes)} launches",
        soft_wrap=True,
    )
    print_lines(console, precision_lines(session, inputs))
    for sentence in profile.queueing:
        console.print(f"without profiling, {sentence}", soft_wrap=True)
    if profile.peaks is not None:
        p = profile.peaks
        console.print(f"measured peaks: {p.flops / 1e9:.0f} GFLOP/s, {p.bandwidth / 1e9:.1f} GB/s")
    print_caches(console)


def _record(model: str, profile: Profile, precision: Sequence[str]) -> dict[str, Any]:
    def rows(of: Sequence[Row]) -> list[dict[str, Any]]:
        return [
            {
                "name": r.name,
                "launches": r.launches,
                "ms": 1e3 * r.seconds,
                "share": r.share,
                "gflops": r.gflops,
                "gbytes_per_s": r.gbytes,
                "of_peak": _of_peak(r, profile),
            }
            for r in of
        ]

    peaks = profile.peaks
    return {
        "model": model,
        "device": profile.device,
        "precision": list(precision),
        "runs": profile.runs,
        "device_ms": 1e3 * profile.device_s,
        "run_ms": 1e3 * profile.run_s,
        "peaks": None if peaks is None else {"gflops": peaks.flops / 1e9, "gbytes_per_s": peaks.bandwidth / 1e9},
        "queueing": profile.queueing,
        "nodes": rows(profile.by_node()),
        "kernels": rows(profile.by_kernel()),
    }


def _of_peak(row: Row, profile: Profile) -> float | None:
    """The roofline's time divided by the measured one."""
    if profile.peaks is None or not row.seconds:
        return None
    return profile.peaks.attainable(row.flops, row.nbytes) / row.seconds


def _profile_plan(model: str, limit: int) -> None:
    """Estimated times by node and by kernel, of a description or of a device that is here."""
    plan = described_plan(model)
    if report({"model": model, **plan.to_raw(), "device": plan.device.title, "nodes": _estimates(plan)}):
        return
    console = make_console()
    by_node = sorted((r for r in plan.nodes if r.launches), key=lambda r: -r.seconds)
    kernels: dict[str, list[float]] = {}
    for r in by_node:
        kernels.setdefault(r.kernel, []).append(r.seconds)
    by_kernel = sorted(kernels.items(), key=lambda item: -sum(item[1]))
    _print_estimates(console, "node", [(r.name, [r.seconds]) for r in by_node[: limit or None]], plan.seconds)
    _print_estimates(console, "kernel", by_kernel, plan.seconds)
    console.print(
        f"{plan.device.title}, precision {plan.precision}, {len(plan.launches)} launches: {plan.estimate}",
        soft_wrap=True,
    )


def _print_estimates(console: Console, title: str, rows: Sequence[tuple[str, Sequence[float]]], total: float) -> None:
    columns = [Column(title, least=16), *(Column(name, right=True) for name in ("nodes", "est. ms", "share"))]
    shares = [f"{100 * sum(seconds) / total:.1f} %" if total else "" for _, seconds in rows]
    cells = [(name, str(len(s)), f"{1e3 * sum(s):.3f}") for name, s in rows]
    print_table(console, columns, [(*row, share) for row, share in zip(cells, shares, strict=True)])


def _estimates(plan: DevicePlan) -> list[dict[str, Any]]:
    return [
        {"name": r.name, "kernel": r.kernel, "launches": r.launches, "ms": 1e3 * r.seconds}
        for r in plan.nodes
        if r.launches
    ]


def print_rows(console: Console, title: str, rows: Sequence[Row], profile: Profile) -> None:
    """Print a table; 'of peak' is the roofline's time divided by the measured one."""
    columns = (
        Column(title, least=16),
        Column("launches", right=True, rank=2),
        Column("ms", right=True),
        Column("share", right=True),
        Column("GFLOP/s", right=True, rank=1),
        Column("GB/s", right=True, rank=1),
        Column("of peak", right=True),
    )
    cells = []
    for r in rows:
        of_peak = _of_peak(r, profile)
        numbers = (str(r.launches), f"{1e3 * r.seconds:.3f}", f"{100 * r.share:.1f} %", f"{r.gflops:.1f}")
        cells.append((r.name, *numbers, f"{r.gbytes:.1f}", "" if of_peak is None else f"{100 * of_peak:.0f} %"))
    print_table(console, columns, cells)
