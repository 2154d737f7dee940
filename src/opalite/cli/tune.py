"""`opalite tune`: searches kernels, parameters and work-groups, and reports the gain by layer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from .console import make_console, print_lines
from .json_report import json_options, report, wants_json
from .session_inputs import session_inputs, settle_precision
from .shared_options import file_option, model_argument, precision_options, seed_option, session_kwargs, shape_option
from .tables import Column, print_table

if TYPE_CHECKING:
    from ..tune.tuner import Progress
    from ..tune.tuning_report import GraphTuning, LayerTuning


@click.command()
@model_argument
@click.option(
    "--level",
    type=click.Choice(["fast", "normal", "wide", "exhaustive"], case_sensitive=False),
    default="fast",
    show_default=True,
    help="Extent of the search: at most about 1, 4 or 30 minutes for each shape of the model, or 10 hours.",
)
@file_option
@seed_option
@json_options
@shape_option
@precision_options
def command(model: str, level: str) -> None:
    """Tune MODEL for this device. Later sessions use the results.

    Ctrl-C keeps all measurements, and the same command continues. At the end, the tuned and the untuned graph run
    alternately, and a slower result is not used.
    """
    from ..run.api.session.inference_session import InferenceSession

    session = InferenceSession(model, tune="none", **session_kwargs())
    inputs = session_inputs(session)
    console = make_console()
    stopped = False
    try:
        with inputs.explained():
            settle_precision(session, inputs, console)
        with inputs.explained(), _progress(wants_json()) as on_trial:
            session.tune(inputs.feeds, level.lower(), on_trial)
    except KeyboardInterrupt:
        stopped = True
    graphs = [t.as_data() for t in session.tunings]
    if not report({"model": model, "level": level.lower(), "is_complete": not stopped, "graphs": graphs}):
        print_lines(console, inputs.assumptions())
        for tuning in session.tunings:
            _print_layers(console, tuning)
            console.print(tuning.summary(), soft_wrap=True, markup=False)
    if stopped:
        click.echo("stopped; measurements are kept, and the same command continues", err=True)
        sys.exit(130)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that draws the tuner's progress on a terminal; None elsewhere."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description:34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("tuning", total=None)

        def on_trial(p: Progress) -> None:
            best = f", best {1e6 * p.best_s:.1f} us" if p.trials and p.best_s < float("inf") else ""
            text = f"{p.layer}: {p.trials} trials{best}" if p.layer else "comparing with untuned"
            bar.update(task, description=text, completed=p.done, total=p.total)

        yield on_trial


_COLUMNS = (
    Column("layer", least=16),
    Column("operators", least=12, rank=3),
    Column("nodes", right=True, rank=2),
    Column("untuned us", right=True),
    Column("tuned us", right=True),
    Column("gain", right=True),
    Column("trials", right=True, rank=1),
    Column("choice", least=16, wraps=True),
)


def _print_layers(console: Console, tuning: GraphTuning) -> None:
    rows = [(layer.names[0], layer.op, str(len(layer.names)), *_cells(layer)) for layer in tuning.layers]
    print_table(console, _COLUMNS, rows, ["" if layer.chosen else "dim" for layer in tuning.layers])


def _cells(layer: LayerTuning) -> Sequence[str]:
    if not layer.seconds:
        return ("", "", "", "", f"{layer.state.value}: {layer.note}")
    counts = [(layer.refused, "refused"), (layer.wrong, "wrong")]
    failed = ", ".join(f"{count} {word}" for count, word in counts if count)
    where = "" if layer.chosen else f" in {layer.layout}"
    times = (f"{1e6 * layer.default_s:.1f}", f"{1e6 * layer.seconds:.1f}", f"{layer.gain:.2f}")
    trials = f"{layer.trials}" if layer.trials else layer.state.value
    trials += f" ({failed})" if failed else ""
    return (*times, trials, ("unchanged" if layer.after == layer.before else layer.after) + where)
