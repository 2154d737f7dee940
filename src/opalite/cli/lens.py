"""`opalite lens`: one page with a model's graph, the program made of it, and its times."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..ir.device.device_descriptions import is_description
from .console import make_console, print_lines
from .described_device import described_plan
from .output_files import check_writable, write_text
from .session_inputs import session_inputs, settle_precision
from .shared_options import file_option, model_argument, option_value, seed_option, session_kwargs, session_options


@click.command()
@model_argument
@file_option
@seed_option
@click.option(
    "-o",
    "output",
    default=None,
    metavar="FILE",
    help="The page, or the document alone if FILE ends in .json.  [default: MODEL.lens.html]",
)
@click.option("--runs", type=click.IntRange(min=1), default=10, show_default=True, help="Measured runs.")
@click.option(
    "--against",
    multiple=True,
    metavar="MODEL|FILE.json",
    help="Compare with another model, or with what -o has written.",
)
@click.option("--json", "as_json", is_flag=True, help="The document as JSON, in place of a page.")
@session_options
def command(model: str, output: str | None, runs: int, against: tuple[str, ...], as_json: bool) -> None:
    """Show MODEL's graph beside the program made of it: kernels, sources, memory, rewrites, and times of typical runs.

    --device also takes the description of a device that is not here; times are estimates then.
    """
    from ..lens.document import lens_file
    from ..lens.page import check_packages, render

    path = output or (None if as_json else f"{Path(model).stem}.lens.html")
    is_page = path is not None and not path.endswith(".json")
    check_writable(path)
    if is_page:
        check_packages()
    documents = [_document(model, runs)]
    for other in against:
        documents += _read_documents(other) if other.endswith(".json") else [_document(other, runs)]
    lens = lens_file(documents)
    if as_json:
        click.echo(json.dumps(lens))
    if path is not None:
        write_text(path, render(lens) if is_page else json.dumps(lens))
        click.echo(f"wrote {path}", err=as_json)


def _document(model: str, runs: int) -> dict[str, Any]:
    """The document of a model, on the device or description that --device names."""
    from ..lens.document import lens_document
    from ..lens.measure_units import measure_units
    from ..plan.bundle.bundle import is_bundle
    from ..run.model.imported_model import ImportedModel

    console = make_console(stderr=True)
    imported = None if is_bundle(model) else ImportedModel(model)
    about: dict[str, Any] = (
        {} if imported is None else {"opset": imported.opset, "producer": imported.meta.producer_name}
    )
    units: dict[str, float] = {}
    if is_description(option_value("device")):
        capture = described_plan(model).capture()
    else:
        from ..run.api.session.inference_session import InferenceSession

        with InferenceSession(model, **session_kwargs()) as session:
            inputs = session_inputs(session)
            with inputs.explained():
                settle_precision(session, inputs, console)
                capture = session.capture(inputs.feeds, runs)
                units = measure_units(session.runtime)
            print_lines(console, inputs.assumptions())
    graph = None if imported is None else imported.importer.graph
    return lens_document(capture, graph, name=Path(model).name, command=_typed(), about=about, units=units)


def _typed() -> str:
    """The command line, with the name of the program alone."""
    return " ".join([os.path.basename(sys.argv[0]).replace("__main__.py", "opalite"), *sys.argv[1:]])


def _read_documents(path: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if found["opalite_lens"] != 1:
            raise InputError(f"{path} was written by another version of `opalite lens`; write it again")
        return list(found["documents"][:1])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise InputError(f"{path} does not hold a document ({e}); `opalite lens MODEL -o FILE.json` writes one") from e
