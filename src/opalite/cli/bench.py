"""`opalite bench`: measures a model, alone or against other engines."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from rich.console import Console

from ..bench.compare import Comparison, Measured, Plan, compare
from ..bench.report import as_json, milliseconds, throughput_json
from ..bench.throughput import Mode, Throughput, measure_throughput, modes_of
from ..errors import InputError
from ..pocl.core_affinity import allowed_cores, core_limit
from .console import make_console, print_lines
from .json_report import json_options, report
from .session_inputs import precision_lines, session_inputs, settle_precision
from .shared_options import (
    Real,
    device_options,
    file_option,
    model_argument,
    option_value,
    seed_option,
    session_kwargs,
    shape_option,
)
from .tables import Column, print_table

_SECONDS = 3.0
_ROUNDS = 12


@click.command()
@model_argument
@click.option(
    "--against",
    default="",
    metavar="ENGINES",
    help="Engines to compare with, separated by commas: onnxruntime, openvino, or a Python module with make_engine.",
)
@file_option
@seed_option
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Untimed runs before each series of timed ones.",
)
@click.option("--iterations", type=click.IntRange(min=1), default=None, help="Timed runs of each engine, at least.")
@click.option(
    "--duration",
    type=Real(min=0),
    default=None,
    help=f"Seconds of timed runs of each engine.  [default: {_SECONDS:g}, or 0 with --iterations]",
)
@click.option(
    "--percentile",
    "percentiles",
    type=Real(0, 100),
    multiple=True,
    default=(90, 99),
    show_default=True,
    help="Percentile to show besides the median; may be given several times.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    default=None,
    help=f"CPU threads.  [default: {Plan().threads}, or one for each core with --throughput]",
)
@click.option(
    "--throughput",
    is_flag=True,
    help="Find the mode with the highest throughput: one session, threads of one, or processes pinned to cores.",
)
@json_options
@shape_option
@device_options
def command(
    model: str,
    against: str,
    warmup: int,
    iterations: int | None,
    duration: float | None,
    percentiles: tuple[float, ...],
    threads: int | None,
    throughput: bool,
) -> None:
    """Measure MODEL, alone or against other engines.

    Each engine has its own process. Short measurements alternate; those in a slow phase of the machine are
    dropped. Exits with 1 if an engine, or with --throughput a mode, could not run the model.
    """
    from ..run.api.session.inference_session import InferenceSession

    settings = session_kwargs()
    with InferenceSession(model, **settings) as session:
        inputs = session_inputs(session)
        settle_precision(session, inputs, make_console())
        precisions = precision_lines(session, inputs)
        policy = session.precision_policy if session.chooses_precision else None
        is_cpu = session.device.kind == "cpu"
    engines = ["opalite", *(name.strip() for name in against.split(",") if name.strip())]
    if len(set(engines)) < len(engines):
        raise InputError(f"--against {against}: name each engine once, and not opalite itself")
    console = make_console()
    if throughput and iterations:
        raise InputError("--throughput works for seconds: give --duration in place of --iterations")
    count = threads or (core_limit() or len(allowed_cores()) if throughput else Plan().threads)
    rounds = min(_ROUNDS // 2 if throughput else _ROUNDS, iterations or _ROUNDS)
    seconds = duration if duration is not None else 0.0 if iterations else _SECONDS
    least = math.ceil(iterations / rounds) if iterations else 1
    plan = Plan(count, rounds, seconds / rounds, warmup, least, seed=option_value("seed"))
    with TemporaryDirectory() as folder, console.status("measuring") as status:
        if policy is not None:  # what was decided is measured: the workers decide nothing
            path = Path(folder) / "policy.json"
            path.write_text(policy.to_json())
            settings["precision"] = str(path)
        extra = {"opalite": settings}
        if throughput:
            modes = modes_of(engines, count, is_cpu)
            found = measure_throughput(Path(model), inputs.feeds, modes, plan, extra, status.update)
        else:
            comparison = compare(Path(model), inputs.feeds, engines, plan, extra, status.update)
    record, failed = (throughput_json(found), found.failed) if throughput else (as_json(comparison), comparison.failed)
    if not report(record):
        print_lines(console, [*inputs.assumptions(), *precisions])
        if throughput:
            _print_throughput(console, found, percentiles)
        else:
            _print(console, comparison, percentiles)
    if failed:
        sys.exit(1)


def _print(console: Console, comparison: Comparison, percentiles: tuple[float, ...]) -> None:
    first = comparison.engines[0]
    columns = [
        Column("milliseconds"),
        Column("first", right=True),
        Column("median", right=True),
        *(Column(f"p{q:g}", right=True, rank=1) for q in percentiles),
        Column("runs", right=True, rank=2),
        Column(f"times {first.engine}", right=True),
        Column("memory", right=True),
        Column("differs", right=True),
    ]
    rows = [_row(comparison, m, percentiles) for m in comparison.engines]
    _print_results(console, comparison, [(m.engine, m.version, m.device) for m in comparison.engines], columns, rows)


def _print_results(
    console: Console,
    found: Comparison | Throughput,
    engines: Sequence[tuple[str, str, str]],
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
) -> None:
    """Print model, engines (name, version, device), the table, and reasons of missing engines."""
    console.print(f"model    {found.model}, {found.plan.threads} threads", soft_wrap=True)
    for engine, version, device in dict.fromkeys(engines):
        console.print(f"engine   {engine} {version} on {device}", soft_wrap=True)
    print_table(console, columns, rows)
    print_lines(console, [f"{name} is missing: {reason}" for name, reason in found.failed.items()])


def _row(comparison: Comparison, m: Measured, percentiles: tuple[float, ...]) -> list[str]:
    """A table row. The first inference includes loading; memory is the peak of the process."""
    first = comparison.engines[0]
    times = [t for s in m.accepted for t in s.times]
    ratio = comparison.ratio(m, first)
    return [
        m.engine,
        milliseconds(m.load_s + m.first_s),
        milliseconds(m.run_s.median),
        *(milliseconds(float(np.percentile(times, q))) for q in percentiles),
        str(len(times)),
        "1" if m is first else "" if ratio is None else f"{ratio.median:.2f}",
        f"{m.memory / 2**20:.0f} MiB" if m.memory else "",
        "" if m is first else f"{m.difference:.0e}",
    ]


def _print_throughput(console: Console, found: Throughput, percentiles: tuple[float, ...]) -> None:
    """Print a table of the modes, and the Python code of Opalite's best mode."""
    titles = ("inferences/s", "times the first", "p50 ms", *(f"p{q:g} ms" for q in percentiles), "differs")
    columns = [Column("mode"), *(Column(title, right=True) for title in titles)]
    rows = [
        (
            str(y.mode),
            f"{y.rate.median:.1f}",
            f"{found.gain(y):.2f}",
            *(milliseconds(y.latency_s(q)) for q in (50, *percentiles)),
            f"{y.difference:.0e}" if y.difference else "",
        )
        for y in found.modes
    ]
    _print_results(console, found, [(y.mode.engine, y.version, y.device) for y in found.modes], columns, rows)
    best = found.best
    console.print(f"best     {best.mode.kind}: {mode_expression(best.mode, found.model)}", soft_wrap=True, markup=False)


def mode_expression(mode: Mode, model: str) -> str:
    """The Python expression of one of Opalite's modes."""
    if mode.kind == "latency":
        return f"opalite.InferenceSession({model!r})"
    processes = ", processes=True" if mode.kind == "processes" else ""
    return f"opalite.InferQueue({model!r}, workers={mode.workers}{processes})"
