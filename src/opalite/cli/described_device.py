"""Plans of commands for a device by its description, or for one that is here, without a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ..ir.device.device_descriptions import is_description, read_description
from ..ir.device.device_info import DeviceInfo
from .shared_options import option_value, parse_shapes

if TYPE_CHECKING:
    from ..run.report.device_plan import DevicePlan


def find_info(request: str | None) -> DeviceInfo:
    """The device of a description, or one that is here."""
    if is_description(request):
        return read_description(request or "")
    from ..cl.runtime import find_runtime

    return find_runtime(request).info


def described_plan(model: str) -> DevicePlan:
    """The plan of `model` for the device or description that --device names, by the command's shared options."""
    from ..run.report.device_plan import plan_for_device

    return plan_for_device(
        model,
        find_info(option_value("device")),
        shapes=parse_shapes(option_value("shapes") or ()),
        precision=option_value("precision"),
        memory=option_value("memory") or "auto",
        strict=bool(option_value("strict")),
    )


def print_assumed(console: Console, plan: DevicePlan) -> None:
    """Print the shapes that a plan assumes for inputs with open dimensions."""
    for name, shape in plan.assumed.items():
        console.print(f"{name}: {list(shape)} assumed; give --shape for another", soft_wrap=True)
