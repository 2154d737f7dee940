"""`opalite verify`: every node on the device beside the reference."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..run.verify import Check, Tolerance, verify_model
from .console import make_console
from .inputs import Preprocess, load_inputs
from .options import model_argument, parse_shapes, precision_options, seed_option, shape_option
from .wanted import wanted_inputs


@click.command()
@model_argument
@click.option("--load-inputs", "--input", "-i", "files", multiple=True, metavar="[NAME=]FILE", help="An input.")
@seed_option
@click.option(
    "--atol", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Absolute difference that is let pass."
)
@click.option(
    "--rtol",
    type=click.FloatRange(min=0),
    default=None,
    help="Difference let pass, relative to the output's largest magnitude.  [default: by element type; 1e-4 for f32]",
)
@click.option("--all", "show_all", is_flag=True, help="List every node, not only those that differ.")
@shape_option
@precision_options
def command(
    model: str,
    files: tuple[str, ...],
    seed: int,
    atol: float,
    rtol: float | None,
    show_all: bool,
    shapes: tuple[str, ...],
    device: str | None,
    precision: str | None,
    memory: str | None,
) -> None:
    """Compare every node of MODEL with the reference. Names the first bad node and exits with 1 if there is one."""
    from ..run.session import InferenceSession

    settings: dict[str, Any] = {"device": device, "precision": precision or "auto", "memory": memory or "auto"}
    with InferenceSession(model, **settings) as session:
        inputs = load_inputs(files, wanted_inputs(session), parse_shapes(shapes), Preprocess(scale=1 / 255), seed)
    with inputs.explained():
        found = verify_model(model, inputs.feeds, allowed=Tolerance(atol, rtol), **settings)
    console = make_console()
    for line in inputs.assumptions():
        console.print(line, soft_wrap=True)
    checks = (*found.nodes, *found.rewrites, *found.outputs)
    bad = [c for c in checks if not c.good]
    if show_all or bad:
        _print(console, checks if show_all else bad)
    if found.first_bad is not None:
        first = found.first_bad
        console.print(f"first bad: {first.what}{f' by {first.kernel}' if first.kernel else ''} -> {first.output}")
        console.print(f"{len(bad)} of {len(checks)} comparisons on {found.device} differ", soft_wrap=True)
        sys.exit(1)
    worst = max(found.outputs, key=lambda c: c.difference / (c.allowed or 1.0), default=None)
    console.print(f"{len(found.nodes)} node outputs and {len(found.outputs)} model outputs agree on {found.device}")
    if worst is not None:
        console.print(f"largest difference: {worst.difference:.2e} of {worst.allowed:.2e} allowed at {worst.what}")


def _print(console: Console, checks: Sequence[Check]) -> None:
    table = Table(box=None)
    for title in ("", "compared", "kernel", "output", "difference", "allowed"):
        table.add_column(title, justify="right" if title in ("difference", "allowed") else "left")
    for c in checks:
        mark = "ok" if c.good else "bad"
        table.add_row(
            mark, c.what, c.kernel, c.output, c.problem.partition("\n")[0] or f"{c.difference:.2e}", f"{c.allowed:.2e}"
        )
    console.print(table)
