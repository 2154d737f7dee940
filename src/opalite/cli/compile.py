"""`opalite compile`: compiles a model to an .opal bundle that runs without onnx."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..media.input_spec import InputSpec
from ..media.preprocess_choice import carried_metadata
from ..plan.bundle.bundle import SUFFIX
from ..run.model.model_inputs_outputs import NodeArg
from .input_files import load_inputs
from .json_report import json_option, report, wants_json
from .media_files import media_files
from .output_files import check_writable
from .shared_options import (
    MEMORY_HELP,
    inputs_option,
    model_argument,
    option_value,
    parse_shapes,
    precision_option,
    session_kwargs,
    strict_option,
    tolerance_option,
)


@click.command()
@model_argument
@click.argument("bundle", required=False, type=click.Path())
@click.option("--shape", "shapes", multiple=True, metavar="NAME:DIMS", help="Shape of an input with open dimensions.")
@click.option("--device", multiple=True, help="Device to compile for; may be given several times.")
@precision_option
@tolerance_option
@inputs_option("An input by which precision auto is decided. Inputs without a file are random.")
@click.option("--memory", default="auto", show_default=True, help=MEMORY_HELP)
@click.option("--tune", default="none", show_default=True, help="Tuning level.")
@strict_option
@json_option("Print the file and its programs as JSON.")
def command(model: str, bundle: str | None, shapes: tuple[str, ...], device: tuple[str, ...], **options: Any) -> None:
    """Compile MODEL to BUNDLE (by default MODEL's name with the suffix .opal, in the current folder)."""
    from ..run.api.session.compile_bundle import compile_model
    from ..run.model.imported_model import ImportedModel
    from ..run.model.model_inputs_outputs import example_shapes

    # '.' has no name to put a suffix on, and the root none at all.
    name = os.path.basename(os.path.abspath(model)) or "model"
    target = Path(bundle) if bundle is not None else Path(name).with_suffix(SUFFIX)
    check_writable(str(target))
    given = parse_shapes(shapes)
    imported = ImportedModel(model)
    wanted = imported.inputs
    is_open = {a.name for a in wanted if a.dtype is not None and not all(isinstance(d, int) for d in a.shape)}
    assumed = {k: s for k, s in example_shapes(wanted).items() if k in is_open.difference(given)}
    for name, shape in assumed.items():
        click.echo(f"{name}: {list(shape)} assumed; give --shape for another", err=wants_json())
    shapes_of = {**assumed, **given}
    arrays: dict[str, Any] = {}
    ports = [_wanted(a, shapes_of) for a in wanted]
    media = media_files(model, ports, imported.meta.custom_metadata_map)
    if files := option_value("files"):
        loaded = load_inputs(files, ports, given, media, 0)
        arrays = {name: array for name, array in loaded.feeds.items() if name not in loaded.random_names}
    devices = list(device) or None
    made = compile_model(
        model,
        target,
        shapes=shapes_of,
        device=devices,
        inputs=arrays,
        metadata=carried_metadata(model, media.reader.metadata, ports, {p.name: p.example for p in ports}),
        report=partial(click.echo, err=wants_json()),
        **options,
        **session_kwargs(),
    )
    variants = [
        {
            "device": v.device.title,
            "shapes": {k: list(s) for k, s in v.needs.shapes.items()},
            "steps": len(v.program.steps),
        }
        for v in made.variants
    ]
    record = {"model": model, "bundle": str(target), "bytes": target.stat().st_size, "assumed": assumed}
    if report({**record, "variants": variants}):
        return
    for variant in made.variants:
        inputs = ", ".join(f"{k}:{'x'.join(map(str, s))}" for k, s in variant.needs.shapes.items())
        click.echo(f"{target}: {variant.device.title}, {inputs}, {len(variant.program.steps)} steps")


def _wanted(arg: NodeArg, shapes: Mapping[str, tuple[int, ...]]) -> InputSpec:
    """The inputs to load, in the shapes to compile."""
    if arg.dtype is None:
        raise InputError(f"input '{arg.name}' is {arg.type}: only tensors can be given on the command line")
    dims = tuple(d if isinstance(d, int) else None for d in arg.shape)
    return InputSpec(arg.name, arg.dtype, dims, shapes.get(arg.name, tuple(d or 1 for d in dims)))
