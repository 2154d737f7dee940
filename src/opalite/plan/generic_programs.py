"""All programs of the generic tier for a device, independent of any model."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.device.device_info import DeviceInfo
from ..kernels.generic.generic_kernel import GenericKernel
from ..kernels.kernel import kernels_for
from ..kernels.kernel_sources import option_text, program_text
from .program import SourceSpec

_URGENT = (
    *("Conv", "Pool", "Elementwise", "Concat", "Softmax", "Resize", "Gather", "Recurrent", "TopK", "PlaceCast"),
    *("QuantizedMatMul", "IntegerMatMul", "NonMaxSuppression", "GridSample", "RoiAlign", "RoiPool"),
)
"""Operators whose programs most models need, in order of urgency."""


def generic_programs(device: DeviceInfo) -> Sequence[SourceSpec]:
    """Every program of the generic kernels on `device`: each kernel's simplest variant first, the rest after."""
    numbered = [
        (number, build)
        for op in _URGENT
        for kernel in kernels_for(op)
        if isinstance(kernel, GenericKernel)
        for number, build in enumerate(kernel.builds(device))
    ]
    builds = [build for _, build in sorted(numbered, key=lambda pair: pair[0])]
    specs = (SourceSpec(program_text(b.source, b.prelude), option_text(b.defines), b.source) for b in builds)
    return tuple(dict.fromkeys(specs))
