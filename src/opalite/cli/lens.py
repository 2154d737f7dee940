"""`opalite lens`: one page with a model's graph, the program made of it, and its times."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..ir.device.device_descriptions import is_description
from .console import make_console, print_lines
from .described_device import described_plan
from .json_report import json_option, to_json, wants_json
from .output_files import check_writable, write_text
from .session_inputs import session_inputs, settle_precision
from .shared_options import file_option, model_argument, option_value, seed_option, session_kwargs, session_options

if TYPE_CHECKING:
    from ..lens.serve_page import PageServer


@click.command()
@model_argument
@file_option
@seed_option
@click.option(
    "-o", "output", default=None, metavar="FILE", help="A page .html, or its data .json.  [default: MODEL.lens.html]"
)
@click.option("--runs", type=click.IntRange(min=1), default=10, show_default=True, help="Measured runs.")
@click.option("--verify", "verifies", is_flag=True, help="Compare each node with its NumPy reference.")
@click.option("--drift", "drifts", is_flag=True, help="Follow errors from node to node, and find the error of fp16.")
@click.option(
    "--against",
    multiple=True,
    metavar="MODEL|FILE.json",
    help="Compare with another model, or with what -o FILE.json has written.",
)
@click.option(
    "--serve",
    type=click.IntRange(0, 65535),
    is_flag=False,
    flag_value=0,
    default=None,
    metavar="[PORT]",
    help="Serve the page to this machine alone, at a free port by default.",
)
@json_option("Print the page's data as JSON, and nothing else, on standard output.")
@session_options
def command(
    model: str, output: str | None, runs: int, verifies: bool, drifts: bool, against: tuple[str, ...], serve: int | None
) -> None:
    """Write a page that shows MODEL's graph beside the program made of it.

    Choose a node to see its kernel and all candidates, the rewrites that touched it, its source, work-groups, memory
    and times of typical runs. --device also takes the description of a device that is not here; times are estimates
    then.
    """
    from ..lens.document import lens_file

    if output is not None and not output.endswith((".html", ".json")):
        raise InputError(f"-o {output}: write a page, .html, or its data, .json")
    if output is None and not wants_json() and serve is None:
        output = f"{Path(model).stem}.lens.html"
    check_writable(output)
    if serve is not None or (output is not None and output.endswith(".html")):
        from ..lens.page import check_packages

        check_packages()
    server = None if serve is None else _server(serve)
    before = {path: _read_document(path) for path in against if path.endswith(".json")}

    def make(path: str) -> dict[str, Any]:
        return before[path] if path in before else _document(path, runs, verifies, drifts)

    documents = [_document(model, runs, verifies, drifts), *map(make, against)]
    _write(lens_file(documents), output, server)


def _server(port: int) -> PageServer:
    from ..lens.serve_page import PageServer

    return PageServer(port)


def _write(lens: dict[str, Any], output: str | None, server: PageServer | None) -> None:
    """Write, print and serve the documents, as the options ask."""
    text = json.dumps(lens, allow_nan=False)
    if wants_json():
        click.echo(text)
    page = ""
    if server is not None or (output is not None and output.endswith(".html")):
        from ..lens.page import render

        page = render(lens)
    if output is not None:
        write_text(output, page if output.endswith(".html") else text)
        click.echo(f"wrote {output}", err=wants_json())
    if server is not None:
        with server:
            server.set_page(page)
            click.echo(f"{server.address}  (Ctrl-C ends)", err=True)
            server.serve_forever()


def _document(model: str, runs: int, verifies: bool, drifts: bool) -> dict[str, Any]:
    """The document of a model, on the device or description that --device names."""
    from ..lens.document import lens_document
    from ..plan.bundle.bundle import is_bundle
    from ..run.model.imported_model import ImportedModel

    imported = None if is_bundle(model) else ImportedModel(model)
    about = {} if imported is None else {"opset": imported.opset, "producer": imported.meta.producer_name}
    graph = None if imported is None else imported.importer.graph
    names: dict[str, Any] = {"name": Path(model).name, "command": _typed(), "about": about}
    if is_description(device := option_value("device")):
        if verifies or drifts:
            what = "--verify" if verifies else "--drift"
            raise InputError(f"{device} describes a device that is not here, on which {what} cannot run anything")
        return lens_document(described_plan(model).capture(), graph, **names)
    from ..lens.measure_units import measure_units
    from ..lens.node_errors import add_errors
    from ..run.api.session.inference_session import InferenceSession
    from ..run.report.verify_nodes import verify_model
    from .steady_runs import run_until_steady

    console, settings = make_console(stderr=True), session_kwargs()
    with InferenceSession(model, **settings) as session:
        inputs = session_inputs(session)
        with inputs.explained():
            settle_precision(session, inputs, console)
            capture = session.capture(inputs.feeds, runs)
            steady_s = run_until_steady(session, inputs.feeds).median_s
            units = measure_units(session.runtime)
        policy = session.precision_policy
        print_lines(console, inputs.assumptions())
    document = lens_document(capture, graph, **names, units=units)
    document["header"]["steady_ms"] = 1e3 * steady_s
    where: dict[str, Any] = {"device": settings.get("device"), "memory": settings.get("memory") or "auto"}
    if verifies:
        add_errors(document, verify_model(model, inputs.feeds, precision=policy, **where))
    if drifts:
        from ..run.report.drift import record_drift
        from ..run.report.precision_steps import precision_steps
        from .drift_report import drift_record

        with console.status("running node by node"):
            steps = precision_steps(model, inputs.feeds, **where)
            found = record_drift(model, inputs.feeds, precision=policy, **where)
        document["drift"] = json.loads(to_json(drift_record(found, steps)))
    return document


def _typed() -> str:
    """The command line, with the name of the program alone."""
    return " ".join([os.path.basename(sys.argv[0]).replace("__main__.py", "opalite"), *sys.argv[1:]])


def _read_document(path: str) -> dict[str, Any]:
    """The first document of a file."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if found["opalite_lens"] != 1:
            raise InputError(f"{path} was written by another version of `opalite lens`; write it again")
        return dict(found["documents"][0])
    except (OSError, ValueError, LookupError, TypeError) as e:
        raise InputError(f"{path} does not hold a document ({e}); `opalite lens MODEL -o FILE.json` writes one") from e
