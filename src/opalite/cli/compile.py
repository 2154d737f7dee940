"""`opalite compile`: a model to an .opal bundle that runs without onnx."""

from __future__ import annotations

from pathlib import Path

import click

from ..plan.bundle import SUFFIX
from .options import PRECISION_HELP, model_argument, parse_shapes


@click.command()
@model_argument
@click.argument("bundle", required=False, type=click.Path())
@click.option("--shape", "shapes", multiple=True, metavar="NAME:DIMS", help="Shape of an input with open dimensions.")
@click.option("--device", multiple=True, help="Device to compile for; may be given several times.")
@click.option("--precision", default=None, help=PRECISION_HELP)
@click.option("--memory", default="auto", show_default=True, help="auto, buffer or image.")
@click.option("--tune", default="none", show_default=True, help="Tuning level.")
@click.option("--strict", is_flag=True, help="Refuse models with nodes that would run on the host.")
def command(
    model: str,
    bundle: str | None,
    shapes: tuple[str, ...],
    device: tuple[str, ...],
    precision: str | None,
    memory: str,
    tune: str,
    strict: bool,
) -> None:
    """Compile MODEL to BUNDLE (by default beside it, with the suffix .opal)."""
    from ..run.compile import compile_model
    from ..run.example_shapes import example_shapes
    from ..run.onnx_source import OnnxSource

    beside = Path(model) if Path(model).name else Path(model).resolve()  # '.' has no name to put a suffix on
    target = Path(bundle) if bundle is not None else beside.with_suffix(SUFFIX)
    given = parse_shapes(shapes)
    wanted = OnnxSource(model).inputs
    is_open = {a.name for a in wanted if a.dtype is not None and not all(isinstance(d, int) for d in a.shape)}
    assumed = {k: s for k, s in example_shapes(wanted).items() if k in is_open.difference(given)}
    for name, shape in assumed.items():
        click.echo(f"{name}: {list(shape)} assumed; give --shape for another")
    made = compile_model(
        model,
        target,
        shapes={**assumed, **given},
        device=list(device) or None,
        precision=precision,
        memory=memory,
        tune=tune,
        strict=strict,
    )
    for variant in made.variants:
        inputs = ", ".join(f"{k}:{'x'.join(map(str, s))}" for k, s in variant.needs.shapes.items())
        click.echo(f"{target}: {variant.device.name}, {inputs}, {len(variant.program.steps)} steps")
