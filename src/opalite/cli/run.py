"""`opalite run`: runs a model on files, pictures or random input, and prints times by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console

from ..errors import InputError
from ..media.recognition import best_classes
from ..media.results import Classes
from .console import make_console, print_caches, print_lines
from .json_report import json_option, report
from .media_results import (
    KINDS,
    check_guess,
    check_kind,
    print_result,
    print_unknown,
    recognize_outputs,
    result_record,
    write_outputs,
)
from .output_files import check_writable
from .run_film import film_option, film_source, run_film
from .session_inputs import precision_lines, session_inputs, session_media, settle_precision
from .shared_options import file_option, model_argument, picture_options, seed_option, session_kwargs, session_options
from .steady_runs import SteadyRuns, run_times, run_until_steady

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession
    from ..run.execute.run_trace import RunTrace


@click.command()
@model_argument
@file_option
@seed_option
@picture_options
@click.option(
    "--save-outputs",
    "-o",
    "save",
    default=None,
    metavar="FILE",
    help="File for outputs: .npz (all), .npy or .wav (the first), or a picture or film of the recognised results.",
)
@click.option(
    "--output",
    "wanted",
    multiple=True,
    metavar="NAME",
    help="Compute this value of the model, an output or any other, in place of the outputs; may be repeated.",
)
@click.option("--top-k", type=click.IntRange(min=0), help="Print the K highest classes.  [default: 5 of a picture]")
@film_option
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Runs after the first, before timing, with --iterations.",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=0),
    default=None,
    help="Number of timed runs.  [default: until their time is steady, for about a second]",
)
@json_option("Print what the first and each timed run did as JSON.")
@session_options
def command(
    model: str,
    save: str | None,
    wanted: tuple[str, ...],
    top_k: int | None,
    frames: int | None,
    warmup: int,
    iterations: int | None,
) -> None:
    """Run MODEL (.onnx, .tflite or .opal) and show results and times."""
    from ..run.api.options.session_options import SessionOptions, options_for_outputs
    from ..run.api.session.inference_session import InferenceSession

    check_writable(save)
    film = film_source()
    if save is not None and film is None:
        check_kind(Path(save))
    for name in wanted:
        if Path(name).suffix.lower() in KINDS:
            raise InputError(f"--output takes the name of a value; -o {name} writes outputs to a file")
    options = options_for_outputs(SessionOptions(), wanted) if wanted else None
    session = InferenceSession(model, sess_options=options, **session_kwargs())
    media = session_media(session)
    if film is not None:
        run_film(session, media, film, save, frames, top_k)
        return
    inputs = session_inputs(session, media)
    names = [o.name for o in session.get_outputs()]
    feeds = inputs.feeds
    console = make_console()
    with inputs.explained():
        session.keeps_precision = not inputs.random_names
        results = session.run(None, feeds)
        first = session.last_trace
        result = None if wanted else recognize_outputs(media, dict(zip(names, results, strict=True)), top_k)
        if check_guess(session, media, feeds, result):
            results = session.run(None, feeds)
        settle_precision(session, inputs, console)
        if iterations is None or warmup + iterations:
            with console.status("building the programs made for this model"):
                session.settle()
        if iterations is None:
            with console.status("timing runs until they are steady"):
                timed = run_until_steady(session, feeds)
        else:
            timed = run_times(session, feeds, warmup, iterations)
    results = timed.outputs or results
    outputs = dict(zip(names, results, strict=True))
    result = None if wanted else recognize_outputs(media, outputs, top_k)
    if save is not None:
        write_outputs(Path(save), outputs, media, result)
        click.echo(f"wrote    {save}", err=True)
    if report(_record(model, session, names, results, first, timed) | result_record(media, result)):
        return
    console.print(f"model    {model}", soft_wrap=True)
    console.print(f"device   {session.device.title}", soft_wrap=True)
    print_lines(console, [*inputs.assumptions(), *media.lines(), *precision_lines(session, inputs)])
    _print_outputs(console, names, results)
    if result is not None and top_k != 0:
        print_result(console, result)
    elif top_k:
        print_result(console, _top_classes(results[0] if results else None, top_k, media.labels))
    elif top_k is None and not wanted:
        print_unknown(console, media)
    print_lines(console, _time_lines(first, timed, _batch(feeds)))
    print_caches(console)


def _record(
    model: str, session: InferenceSession, names: list[str], results: list[Any], first: RunTrace, timed: SteadyRuns
) -> dict[str, Any]:
    return {
        "model": model,
        "device": session.device.title,
        "device_id": session.device.id,
        "precision": session.explain_precision(),
        "outputs": [_output_record(n, v) for n, v in zip(names, results, strict=True)],
        "median_ms": 1e3 * timed.median_s if timed.traces else None,
        "is_steady": timed.is_steady,
        "first": first.to_raw(),
        "runs": [r.to_raw() for r in timed.traces],
        "stats": session.stats().to_raw(),
    }


def _output_record(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"name": name, "dtype": type(value).__name__}
    record: dict[str, Any] = {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
    if value.size and value.dtype.kind in "fiub":
        mean = value.mean(dtype=np.float64)
        record |= {"min": float(value.min()), "max": float(value.max()), "mean": float(mean)}
    return record


def _batch(feeds: Mapping[str, Any]) -> int:
    """Pictures in a run, by the first input of four axes with 1, 3 or 4 channels; 0 without one."""
    shapes = [np.shape(a) for a in feeds.values()]
    return next((s[0] for s in shapes if len(s) == 4 and (s[1] in (1, 3, 4) or s[3] in (1, 3, 4))), 0)


def _print_outputs(console: Console, names: list[str], results: list[Any]) -> None:
    for name, value in zip(names, results, strict=True):
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "fiub":
            console.print(
                f"output   {name}: {value.dtype}{list(value.shape)}  min {value.min():.6g}  max {value.max():.6g}"
                f"  mean {value.mean(dtype=np.float64):.6g}",
                soft_wrap=True,
            )
        else:
            shape = list(value.shape) if isinstance(value, np.ndarray) else type(value).__name__
            console.print(f"output   {name}: {shape}", soft_wrap=True)


def _top_classes(scores: Any, k: int, labels: list[str]) -> Classes:
    """The highest scores of the first row of an output, as the model gives them."""
    if not isinstance(scores, np.ndarray) or scores.dtype.kind in "OUSc":
        kind = f"of type {scores.dtype}" if isinstance(scores, np.ndarray) else f"a {type(scores).__name__}"
        what = "there is no output" if scores is None else f"the first output is {kind}"
        raise InputError(f"--top-k needs a vector of scores; {what}")
    if scores.ndim == 0 or scores.size < 2:
        raise InputError(f"--top-k needs a vector of scores; the first output has shape {scores.shape}")
    row = scores.reshape(len(scores) if scores.ndim > 1 else 1, -1)[0]
    return best_classes(row.astype(np.float64), labels, k)


def _time_lines(first: RunTrace, timed: SteadyRuns, batch: int) -> list[str]:
    """Lines on the speed, on the parts of a run, and on the first inference."""
    lines = []
    if timed.traces:
        lines.append(f"speed    {timed.describe(batch)}")
        lines.append(f"of these {_parts(timed.traces, ('upload', 'compute', 'download', 'host'))}")
        last = timed.traces[-1]
        if last.tier == "generic":
            lines.append("         by programs that serve any model: those made for this one could not be built")
        raw = last.to_raw()
        lines.append(
            f"each run {last.launches} launches by {str(raw['strategy']).replace('_', ' ')}, "
            f"{last.bytes_up / 1e6:.2f} MB to the device, {last.bytes_down / 1e6:.2f} MB back"
        )
    parts = ("import", "build", "upload", "compute", "download", "host")
    lines.append(f"first    {1e3 * first.total_s:.4g} ms for the first inference: {_parts([first], parts)}")
    return lines


def _parts(traces: Sequence[RunTrace], names: Sequence[str]) -> str:
    """Medians of the parts of runs that took any time."""
    found = {n: float(np.median([getattr(t, f"{n}_s") for t in traces])) for n in names}
    return ", ".join(f"{n} {1e3 * s:.3g} ms" for n, s in found.items() if s) or "no part took any time"
