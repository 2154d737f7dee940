"""`opalite run`: runs a model on files, pictures or random input, and prints times by part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from ..errors import InputError
from .console import make_console, print_caches, print_lines
from .input_files import Preprocess, parse_floats
from .output_files import check_kind, check_writable, read_labels, save_outputs, top_classes, write_text
from .session_inputs import precision_lines, session_inputs, settle_precision
from .shared_options import Real, file_option, model_argument, seed_option, session_kwargs, session_options

if TYPE_CHECKING:
    from ..run.execute.run_trace import RunTrace


@click.command()
@model_argument
@file_option
@seed_option
@click.option("--mean", default="0", help="Subtracted from scaled pixels, one number or one a channel.")
@click.option("--std", default="1", help="Divides pixels, one number or one a channel.")
@click.option("--scale", default=None, type=Real(), help="Multiplies pixels (0..255) first.  [default: 1/255]")
@click.option("--layout", default="NCHW", help="Axes of a picture's tensor: NCHW or NHWC.")
@click.option("--order", default="RGB", help="Channel order of a picture: RGB or BGR.")
@click.option(
    "--save-outputs",
    "--output",
    "-o",
    "save",
    default=None,
    metavar="FILE",
    help="Where outputs go: .npz (all), .npy or a picture (the first).",
)
@click.option("--top-k", type=click.IntRange(min=0), default=0, help="Print the K highest classes of the first output.")
@click.option("--labels", default=None, type=click.Path(), help="File with one label a line, for --top-k.")
@click.option(
    "--warmup", type=click.IntRange(min=0), default=1, show_default=True, help="Runs after the first, before timing."
)
@click.option("--iterations", type=click.IntRange(min=0), default=10, show_default=True, help="Timed runs.")
@click.option("--json", "json_file", default=None, metavar="FILE", help="Write what the first and each timed run did.")
@session_options
def command(
    model: str,
    mean: str,
    std: str,
    scale: float | None,
    layout: str,
    order: str,
    save: str | None,
    top_k: int,
    labels: str | None,
    warmup: int,
    iterations: int,
    json_file: str | None,
) -> None:
    """Run MODEL (.onnx, .tflite or .opal) and show results and times."""
    from ..run.api.session.inference_session import InferenceSession

    check_writable(save, json_file)
    if save is not None:
        check_kind(Path(save))
    words = read_labels(Path(labels)) if labels else []
    session = InferenceSession(model, **session_kwargs())
    preprocess = Preprocess(
        parse_floats(mean, "--mean"), parse_floats(std, "--std"), 1 / 255 if scale is None else scale, layout, order
    )
    inputs = session_inputs(session, preprocess)
    names = [o.name for o in session.get_outputs()]
    feeds = inputs.feeds
    console = make_console()
    with inputs.explained():
        session.keeps_precision = not inputs.random_names
        results = session.run(None, feeds)
        first = session.last_trace
        settle_precision(session, inputs, console)
        if warmup + iterations:
            with console.status("building the programs made for this model"):
                session.settle()
    rows = []
    for i in range(warmup + iterations):
        results = session.run(None, feeds)
        if i >= warmup:
            rows.append(session.last_trace)
    console.print(f"model    {model}")
    console.print(f"device   {session.device.title}")
    print_lines(console, [*inputs.assumptions(), *precision_lines(session, inputs)])
    _print_outputs(console, names, results)
    if top_k:
        _print_top(console, results[0] if results else None, top_k, words)
    _print_times(console, first, rows)
    last = rows[-1] if rows else first
    console.print(_strategy_line(last))
    print_caches(console)
    if save is not None:
        save_outputs(Path(save), dict(zip(names, results, strict=True)))
        console.print(f"wrote    {save}")
    if json_file is not None:
        report = {
            "model": model,
            "device": session.device.id,
            "first": first.to_raw(),
            "runs": [r.to_raw() for r in rows],
            "stats": session.stats().to_raw(),
        }
        write_text(json_file, json.dumps(report, indent=1) + "\n")
        console.print(f"wrote    {json_file}")


def _strategy_line(trace: RunTrace) -> str:
    """One line about the strategy of a run."""
    raw = trace.to_raw()
    tier = f", {trace.tier} programs" if trace.tier else ""
    return (
        f"way      {raw['strategy']}{tier}: launches {trace.launches}, bytes up {trace.bytes_up}, "
        f"down {trace.bytes_down}, waits for the device {trace.waits}"
    )


def _print_outputs(console: Console, names: list[str], results: list[Any]) -> None:
    for name, value in zip(names, results, strict=True):
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "fiub":
            console.print(
                f"output   {name}: {value.dtype}{list(value.shape)}  min {value.min():.6g}  max {value.max():.6g}"
                f"  mean {value.mean(dtype=np.float64):.6g}"
            )
        else:
            shape = list(value.shape) if isinstance(value, np.ndarray) else type(value).__name__
            console.print(f"output   {name}: {shape}")


def _print_top(console: Console, scores: Any, k: int, words: list[str]) -> None:
    if not isinstance(scores, np.ndarray) or scores.dtype.kind in "OUSc":
        kind = f"of type {scores.dtype}" if isinstance(scores, np.ndarray) else f"a {type(scores).__name__}"
        what = "there is no output" if scores is None else f"the first output is {kind}"
        raise InputError(f"--top-k needs a vector of scores; {what}")
    if scores.ndim == 0 or scores.size < 2:
        raise InputError(f"--top-k needs a vector of scores; the first output has shape {scores.shape}")
    for index, score in top_classes(scores, k):
        console.print(f"  {score:10.5f}  {index:5d}  {words[index] if index < len(words) else ''}")


def _print_times(console: Console, first: RunTrace, rows: list[RunTrace]) -> None:
    table = Table(box=None)
    for title in ("", "import", "build", "upload", "compute", "download", "host", "total"):
        table.add_column(title, justify="right")

    def cells(label: str, values: list[float]) -> None:
        table.add_row(label, *(f"{1e3 * v:.3f} ms" for v in values))

    parts = ("import_s", "build_s", "upload_s", "compute_s", "download_s", "host_s", "total_s")
    cells("first inference", [getattr(first, p) for p in parts])
    if rows:
        cells(f"median of {len(rows)}", [float(np.median([getattr(r, p) for r in rows])) for p in parts])
    console.print(table)
