"""`opalite compare`: plans of a model for several devices, none of which need be here."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..cost.cost_tables import EstimateError
from ..errors import InputError
from ..ir.device.device_descriptions import canonical_name, description_names
from ..ir.device.device_info import DeviceInfo
from .console import make_console
from .described_device import find_info, print_assumed
from .json_report import json_option, wants_json
from .output_files import check_writable, write_text
from .shared_options import MEMORY_HELP, model_argument, option_value, parse_shapes, precision_option, shape_option
from .tables import Column, print_table

COUNTS = ("launches", "host_nodes")
"""Figures of a plan that --against lets grow by nothing."""

HELD = ("arena_bytes", "image_bytes", "weight_bytes")
AMOUNTS = {"bytes moved": ("bytes_moved",), "bytes held": HELD, "estimated ms": ("predicted_ms",)}
"""Sums of figures that --against lets grow by --tolerance: memory may move from buffers to images and back."""


@click.command()
@model_argument
@click.option(
    "--devices",
    default="",
    metavar="A,B,...",
    help="Descriptions (names or .json files) or ids of devices of this machine.  [default: all built-in descriptions]",
)
@precision_option
@click.option("--memory", default="auto", show_default=True, help=MEMORY_HELP)
@shape_option
@json_option("Print the plans as JSON, by device.")
@click.option("-o", "output", default=None, metavar="FILE.json", help="Also write the JSON to a file.")
@click.option("--against", default=None, metavar="FILE.json", help="Exit with 1 if a plan is worse than in this file.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    help="Percent by which bytes and estimated time may exceed those of --against; launches and host nodes may not.",
)
def command(model: str, devices: str, memory: str, output: str | None, against: str | None, tolerance: float) -> None:
    """Plan MODEL for several devices: kernels, launches, memory and estimated times.

    With --against it is a check for CI: exit status 1, and a line for each figure, if a device's plan is worse than the
    one in a file that -o wrote before.
    """
    from ..run.model.imported_model import ImportedModel
    from ..run.report.device_plan import plan_for_device

    check_writable(output)
    names = [canonical_name(n) for n in devices.split(",") if n.strip()] or description_names()
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
    if wants_json():
        click.echo(text, nl=False)
    else:
        console = make_console()
        print_assumed(console, next(iter(plans.values())))
        print_table(console, _COLUMNS, [_row(name, r) for name, r in records.items()])
        for line in _error_lines({name: found.device for name, found in plans.items()}):
            console.print(line, soft_wrap=True)
    if before is not None:
        sys.exit(_check(before, records, str(against), tolerance / 100))


def plans_text(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Plans as JSON with a line for each figure, so that a diff names device and figure."""
    devices = (
        f" {json.dumps(name)}: {{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in r.items()) + "\n }"
        for name, r in records.items()
    )
    return "{\n" + ",\n".join(devices) + "\n}\n"


def worse_plans(before: Mapping[str, Any], now: Mapping[str, Any], share: float = 0.02) -> list[str]:
    """A sentence for each figure of a plan that grew: of COUNTS by anything, of AMOUNTS by more than `share`."""
    found = []
    for device in now.keys() & before.keys():
        old, new = before[device], now[device]
        worse = [f"{what.replace('_', ' ')} {old[what]} -> {new[what]}" for what in COUNTS if new[what] > old[what]]
        for what, parts in AMOUNTS.items():
            then, later = (sum(plan[p] for p in parts) for plan in (old, new))
            if later > then * (1 + share):
                worse.append(f"{what} {then} -> {later}")
        if worse and old["precision"] != new["precision"]:
            worse.append(f"precision {old['precision']} -> {new['precision']}")
        if worse:
            kernels = (f"{k} {old['kernels'].get(k, 0)} -> {n}" for k, n in new["kernels"].items())
            changed = [text for text in kernels if text.split()[1] != text.split()[3]]
            found.append(f"{device}: {'; '.join([*worse, *changed])}")
    return sorted(found)


def _check(before: Mapping[str, Any], now: Mapping[str, Any], path: str, share: float) -> int:
    """The exit status of --against, after printing on stderr which plans are worse."""
    shared = [name for name in now if name in before]
    if not shared:
        raise InputError(f"{path} has plans for {', '.join(before)}, none for {', '.join(now)}: nothing to compare")
    if left := [name for name in now if name not in before]:
        click.echo(f"not in {path}, so not compared: {', '.join(left)}", err=True)
    worse = worse_plans(before, now, share)
    for line in worse:
        click.echo(line, err=True)
    click.echo(f"{len(worse)} of {len(shared)} plans are worse than in {path}", err=True)
    return 1 if worse else 0


def _error_lines(devices: Mapping[str, DeviceInfo]) -> list[str]:
    """Sentences on the worth of estimates, one for each origin of their known errors."""
    by_origin: dict[str, list[str]] = {}
    for name, device in devices.items():
        by_origin.setdefault(EstimateError.origin(device), []).append(name)
    rows = {origin: EstimateError.of(devices[names[0]]) for origin, names in by_origin.items()}
    return [
        f"{', '.join(names)}: estimates are {rows[origin].ratio:.2f} of the time, two thirds of networks within a "
        f"factor of {rows[origin].factor:.2g} of that, by {origin}"
        for origin, names in by_origin.items()
    ]


def _read_plans(path: str) -> dict[str, Any]:
    advice = "`opalite compare MODEL -o FILE.json` writes them"
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        fits = bool(found) and all(map(_is_plan, found.values()))
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror}; {advice}") from e
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise InputError(f"{path} does not hold plans ({e}); {advice}") from e
    if not fits:
        raise InputError(f"{path} does not hold plans; {advice}")
    return dict(found)


def _is_plan(plan: Mapping[str, Any]) -> bool:
    """Whether a plan has all figures that are compared: a check must not pass because of one that is none."""
    figures = [plan[what] for what in (*COUNTS, *(part for parts in AMOUNTS.values() for part in parts))]
    kernels = plan["kernels"]
    figures += kernels.values() if isinstance(kernels, dict) else [None]
    is_number = all(type(f) in (int, float) and 0 <= f < math.inf for f in figures)
    return is_number and isinstance(plan["precision"], str) and isinstance(kernels, dict)


_COLUMNS = (
    Column("device"),
    Column("precision", rank=1),
    Column("launches", right=True),
    Column("on host", right=True, rank=2),
    Column("images", right=True, rank=3),
    Column("moved MB", right=True, rank=2),
    Column("held MB", right=True, rank=1),
    Column("est. ms", right=True),
    Column("likely ms", right=True),
    Column("kernels", least=24, wraps=True, rank=4),
)


def _row(name: str, r: Mapping[str, Any]) -> tuple[str, ...]:
    images = sum(n for place, n in r["layouts"].items() if place.endswith("IMAGE2D"))
    return (
        name,
        r["precision"],
        str(r["launches"]),
        str(r["host_nodes"]),
        f"{images}/{sum(r['layouts'].values())}",
        f"{r['bytes_moved'] / 1e6:.1f}",
        f"{sum(r[part] for part in HELD) / 1e6:.1f}",
        f"{r['predicted_ms']:.3g}",
        "{:.2g}-{:.2g}".format(*r["likely_ms"]),
        ", ".join(f"{n} {k}" for k, n in _heaviest(r["kernels"])),
    )


def _heaviest(kernels: Mapping[str, int]) -> Sequence[tuple[str, int]]:
    return sorted(kernels.items(), key=lambda item: -item[1])[:3]
