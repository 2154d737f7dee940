"""`opalite compare`: plans of a model for several devices, none of which need be here."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from ..errors import InputError
from ..ir.device.device_descriptions import description_names
from .console import make_console
from .described_device import find_info, print_assumed
from .output_files import check_writable, write_text
from .shared_options import MEMORY_HELP, model_argument, option_value, parse_shapes, precision_option, shape_option

WORSE = {"launches": 0.0, "host_nodes": 0.0, "bytes_moved": 0.02, "arena_bytes": 0.02, "predicted_ms": 0.02}
"""Figures of a plan that are better if less, and the growth of each that --against lets pass."""


@click.command()
@model_argument
@click.option(
    "--devices",
    default="",
    metavar="A,B,...",
    help="Descriptions: names or .json files, or ids of devices that are here.  [default: all that come along]",
)
@precision_option
@click.option("--memory", default="auto", show_default=True, help=MEMORY_HELP)
@shape_option
@click.option("--json", "as_json", is_flag=True, help="The plans as JSON, by device.")
@click.option("-o", "output", default=None, metavar="FILE.json", help="Also write the JSON to a file.")
@click.option("--against", default=None, metavar="FILE.json", help="Exit with 1 if a plan is worse than in this file.")
def command(model: str, devices: str, memory: str, as_json: bool, output: str | None, against: str | None) -> None:
    """Plan MODEL for several devices: kernels, launches, memory and estimated times."""
    from ..run.model.imported_model import ImportedModel
    from ..run.report.device_plan import plan_for_device

    check_writable(output)
    names = [n for n in devices.split(",") if n] or description_names()
    before = None if against is None else _read_plans(against)
    imported = ImportedModel(model)
    shapes = parse_shapes(option_value("shapes") or ())
    precision = option_value("precision")
    plans = {
        name: plan_for_device(imported, find_info(name), shapes=shapes, precision=precision, memory=memory)
        for name in names
    }
    records = {name: found.to_raw() for name, found in plans.items()}
    text = plans_text(records)
    if output is not None:
        write_text(output, text)
    if as_json:
        click.echo(text, nl=False)
    else:
        console = make_console()
        print_assumed(console, next(iter(plans.values())))
        console.print(_table(records))
        console.print(
            "Times are the cost model's estimates; docs/devices.md says how far they are off.", soft_wrap=True
        )
    if before is not None:
        worse = worse_plans(before, records)
        for line in worse:
            click.echo(line, err=True)
        sys.exit(1 if worse else 0)


def plans_text(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Plans as JSON with a line for each figure, so that a diff names device and figure."""
    devices = (
        f" {json.dumps(name)}: {{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in r.items()) + "\n }"
        for name, r in records.items()
    )
    return "{\n" + ",\n".join(devices) + "\n}\n"


def worse_plans(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A sentence for each figure of a plan that grew, by more than WORSE lets pass."""
    return [
        f"{device}: {what} {old[what]} -> {new[what]}"
        for device, new in now.items()
        if (old := before.get(device)) is not None
        for what, share in WORSE.items()
        if new[what] > old[what] * (1 + share)
    ]


def _read_plans(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        fits = all(isinstance(plan[what], int | float) for plan in found.values() for what in WORSE)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise InputError(f"{path} does not hold plans ({e}); `opalite compare MODEL -o FILE.json` writes them") from e
    if not fits:
        raise InputError(f"{path} does not hold plans; `opalite compare MODEL -o FILE.json` writes them")
    return dict(found)


def _table(records: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("device", no_wrap=True)
    table.add_column("precision", no_wrap=True)
    for title in ("launches", "on host", "images", "moved MB", "held MB", "est. ms"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("kernels", overflow="fold")
    for name, r in records.items():
        images = sum(n for place, n in r["layouts"].items() if place.endswith("IMAGE2D"))
        table.add_row(
            name,
            r["precision"],
            str(r["launches"]),
            str(r["host_nodes"]),
            f"{images}/{sum(r['layouts'].values())}",
            f"{r['bytes_moved'] / 1e6:.1f}",
            f"{(r['arena_bytes'] + r['image_bytes'] + r['weight_bytes']) / 1e6:.1f}",
            f"{r['predicted_ms']:.3g}",
            ", ".join(f"{n} {k}" for k, n in _heaviest(r["kernels"])),
        )
    return table


def _heaviest(kernels: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(kernels.items(), key=lambda item: -item[1])[:3]
