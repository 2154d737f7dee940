"""`opalite devices`: lists OpenCL platforms and devices with their abilities."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click
from rich.console import Console

from ..cl.device.driver_hints import hint_properties, make_hints, supported_hints
from ..cl.device.enumerate_devices import FoundDevice, Listing, list_all
from ..cl.device.query_device_info import with_probed_features
from ..cl.device.select_device import select
from ..errors import InputError, NoDeviceError
from ..ir.device.device_descriptions import SUFFIX, description_names
from .console import make_console
from .json_report import json_option, report
from .output_files import check_writable, write_text
from .tables import Column, print_table


@click.command()
@json_option("Print all that is known of each device as JSON.")
@click.option("--export", default=None, metavar="FILE.json", help="Write the description of a device, for --device.")
@click.option("--device", default=None, help="The device that --export describes.  [default: the one with a star]")
@click.option(
    "--resources",
    is_flag=True,
    help="Print the argument of `ray start --resources` for this machine (docs/scaling.md).",
)
def command(export: str | None, device: str | None, resources: bool) -> None:
    """List OpenCL platforms and devices with their abilities. A star marks the default."""
    if export is not None:
        _export(export, device)
        return
    if resources:
        from ..ray.device_resources import resources as announced_devices

        click.echo(json.dumps(announced_devices()))
        return
    listing = list_all()
    listing.devices = [dataclasses.replace(f, info=with_probed_features(f.device, f.info)) for f in listing.devices]
    default = _default(listing)
    if report(_as_data(listing, default)):
        return
    console = make_console()
    if not listing.devices:
        console.print("No OpenCL device was found; `opalite doctor` says what is missing.")
    else:
        _print_devices(console, listing, default)
        console.print("* is the default; --device takes an id, an index, cpu, gpu or part of a name.")
    for found in listing.devices:
        for sentence in hint_properties(make_hints(), found.info).sentences:
            console.print(f"{found.info.title}: {sentence}", soft_wrap=True)
    console.print(
        "Models can be planned for devices that are not here (inspect, compare, compile, profile): by a .json "
        f"file of `opalite devices --export`, or by one of these names: {', '.join(description_names())}."
    )
    for broken in listing.broken:
        console.print(f"Platform {broken.index} '{broken.name}' failed with {broken.reason}.", style="red")


def _export(path: str, request: str | None) -> None:
    from ..cl.device.enumerate_devices import find_device

    if not path.endswith(SUFFIX):
        raise InputError(f"a description is a {SUFFIX} file, by which --device knows it; write {path}{SUFFIX}")
    check_writable(path)
    info = find_device(request).info
    about = {"about": "As the driver reports it on the device itself."}
    write_text(path, json.dumps(about | dataclasses.asdict(info), indent=1) + "\n")
    click.echo(f"wrote {path}: {info.title}. `opalite compare MODEL --devices {path}` plans for it on any machine")


def _default(listing: Listing) -> str:
    try:
        return select(None, listing.devices).info.id
    except NoDeviceError:
        return ""


_COLUMNS = (
    Column("id"),
    Column("index", rank=1),
    Column("device", least=16, wraps=True),
    Column("memory", right=True),
    Column("units", right=True),
    Column("can do", least=18, wraps=True),
    Column("generation", rank=2),
    Column("platform", rank=3),
)


def _print_devices(console: Console, listing: Listing, default: str) -> None:
    rows = [
        (
            f"{f.info.id}{' *' if f.info.id == default else ''}",
            f.index,
            f.info.title,
            f"{f.info.global_mem / 2**30:.1f} GiB",
            str(f.info.compute_units),
            ", ".join(_abilities(f)),
            f"{f.info.family} {f.info.generation}".strip(),
            f.info.platform,
        )
        for f in listing.devices
    ]
    print_table(console, _COLUMNS, rows)


def _abilities(found: FoundDevice) -> list[str]:
    if not found.usable:
        return ["nothing: not available"]
    info = found.info
    hints = supported_hints(info)
    able = {
        "fp16": info.fp16,
        "fp64": info.fp64,
        "images": info.image_support,
        "recordable queues": info.recordable_queues,
        "shared memory": info.unified_memory,
        **{f"{what} hints": what in hints for what in ("performance", "priority")},
    }
    return [what for what, can in able.items() if can]


def _as_data(listing: Listing, default: str) -> dict[str, Any]:
    return {
        "platforms": listing.platforms,
        "broken": [dataclasses.asdict(b) for b in listing.broken],
        "default": default,
        "devices": [
            {"index": f.index, "location": f.location, "usable": f.usable, "title": f.info.title}
            | dataclasses.asdict(f.info)
            for f in listing.devices
        ],
    }
