"""Peaks of a device by kind of arithmetic, and the share of the roofline that each launch reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..cost.cost_tables import IntegerDot
from ..ir.device.device_family import PTX_MMA, PTX_WGMMA
from ..ir.device.device_info import DeviceInfo
from ..run.report.profile import Peaks

_TOO_FAST = 1.05


_WORDS = {"fours": 4, "pairs": 2}
"""Products of bytes for one of floats by a CPU's vectors."""
_MMA, _WGMMA = 2048, 4096
"""Operations on halves of a compute unit's matrix units in a clock: of NVIDIA's A100, and by warpgroups of its H100."""


def peaks_of(device: DeviceInfo, measured: Peaks | None, units: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """Rates by kind of arithmetic and of memory, in operations and bytes a second, without kinds that the device lacks.

    measured, units: measured rates; others are those that the device's description suggests.
    """
    known = dict(units)
    if measured is not None:
        known |= {"bandwidth": measured.bandwidth, "fp32": measured.flops}
    fp32 = known.get("fp32", device.peak_flops)
    clock = device.compute_units * device.clock_mhz * 1e6
    suggested = {"bandwidth": device.bandwidth, "fp32": fp32}
    if device.half_sums and not device.on_host:
        suggested["fp16"] = 2 * fp32
    if device.dot_product:
        suggested["dot"] = fp32 * IntegerDot.of(device).gain
    elif device.byte_dots:
        suggested["dot"] = fp32 * _WORDS[device.byte_dots]
    if PTX_MMA in device.quirks:
        suggested["matrix"] = clock * (_WGMMA if PTX_WGMMA in device.quirks else _MMA)
    return {k: {"rate": known.get(k, rate), "is_measured": k in known} for k, rate in suggested.items()}


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
