"""Peaks of a device by kind of arithmetic, and the share of the roofline that each launch reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.device.device_info import DeviceInfo
from ..run.report.profile import Peaks

_TOO_FAST = 1.05


def peaks_of(device: DeviceInfo, measured: Peaks | None) -> dict[str, dict[str, Any]]:
    """Rates in operations and bytes a second. measured: None for those that the device's description suggests."""
    found = {"bandwidth": device.bandwidth, "fp32": device.peak_flops}
    if measured is not None:
        found = {"bandwidth": measured.bandwidth, "fp32": measured.flops}
    return {name: {"rate": rate, "is_measured": measured is not None} for name, rate in found.items()}


def add_roofs(steps: Sequence[dict[str, Any]], peaks: Mapping[str, Mapping[str, Any]]) -> None:
    """Give each launch its share of the roofline of its arithmetic, what bounds it, and why it is above."""
    bandwidth = peaks["bandwidth"]["rate"]
    for step in steps:
        if step["kind"] != "launch" or not step["ms"]:
            continue
        peak = peaks.get(step["arithmetic"], peaks["fp32"])["rate"]
        seconds = 1e-3 * step["ms"] / step["times"]
        compute, memory = step["flops"] / peak, step["bytes"] / bandwidth
        step["bound"] = "compute" if compute >= memory else "memory"
        step["roof"] = float(f"{max(compute, memory) / seconds:.4g}")
        if step["roof"] > _TOO_FAST:
            step["roof_words"] = (
                "it multiplies less than its operator counts, as Winograd's convolution does, or other units multiply"
                if step["bound"] == "compute"
                else "its operands come from a cache, which is faster than memory"
            )
