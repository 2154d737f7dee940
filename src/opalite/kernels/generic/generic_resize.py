"""Generic Resize of up to five axes: the optimized kernels' programs with the maximum of axes and taps."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ops.resize import Axis, Resize
from ..kernel import Params, Problem, register
from ..launch import ELEMENT, STORAGE
from ..vision.resize import MAX_RANK, ResizeKernel
from .generic_data_movement import repeats
from .generic_kernel import Build, GenericKernel, float_refusal, storage_of


class _ResizeGeneric(ResizeKernel, GenericKernel):
    """Base class: axes of size 1 fill up the rank, and no axis is assumed to be copied."""

    space = {"SPAN": (64, 1), "WG": (16, 64)}
    rank = MAX_RANK

    def illegal(self, p: Problem, params: Params) -> str | None:
        own = self.defaults(p) == params
        return super().illegal(p, params) if own else "a device has one program"

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        of_mode = {"ELEM": ELEMENT[4]} if self.nearest else {"STORAGE": STORAGE[DType.FLOAT32], "LAST_TAPS": 0}
        return [Build(self.source, {"PACK": 1, "RANK": MAX_RANK, "SPAN": 64 if device.is_cpu else 1, **of_mode})]

    def last_taps(self, op: Resize, last: Axis) -> int:
        return 0


@register
class ResizeNearestGeneric(_ResizeGeneric):
    """Nearest neighbours of four-byte elements."""

    nearest = True

    def refuse(self, p: Problem) -> str | None:
        if storage_of(p.node, p.node.y).size != 4:
            return "the general kernel moves elements of four bytes"
        if repeats(p.node):
            return "generic/generic_data_movement.cl repeats elements, a program that most models need anyway"
        return super().refuse(p)


@register
class ResizeWeightedGeneric(_ResizeGeneric):
    """Linear, cubic and antialiased interpolation of float32."""

    nearest = False

    def refuse(self, p: Problem) -> str | None:
        return float_refusal(p.node) or super().refuse(p)
