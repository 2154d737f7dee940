"""Generic Transpose, Slice, Concat, Pad and integer-factor Resize, one program for all shapes and element types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import FLAT, Target
from ...ir.symbols import always_equal
from ...ops.data_movement import Pad
from ...ops.resize import Resize
from ..data_movement.pad import MODES, merged_axes
from ..data_movement.strided_copy import ConcatCopy, Copy, SliceCopy, StridedCopy, TransposeCopy, row_major
from ..filter_window import find_span
from ..kernel import Params, Problem, register
from ..launch import Args, Launch, Scratch, ceil_div
from .generic_kernel import Build, GenericKernel, vector_defines

AXES = 6  # of generic_data_movement.cl
_BLOCK = 64, 4  # least elements along the last axis for a work-item, on CPUs and other devices
_REPEATS = 5  # a mode of generic_data_movement.cl


@dataclass(frozen=True)
class MoveAxis:
    """An axis of the output: extent, strides in x and y, and `size` elements of x from `begin`, `gap` apart."""

    extent: int
    x_step: int
    y_step: int
    size: int
    begin: int = 0
    gap: int = 1


def move_launch(
    x: Value,
    y: Value | Scratch,
    axes: Sequence[MoveAxis],
    device: DeviceInfo,
    start: tuple[int, int] = (0, 0),
    mode: int = 0,
    fill: int = 0,
) -> Launch:
    """The launch of a copy over `axes`.

    start: first element of x and of y. mode, fill: border mode as in generic_data_movement.cl, and the bits of its
    value.
    """
    whole = [MoveAxis(1, 0, 0, 1)] * (AXES - len(axes)) + list(axes)
    build = move_build(device)
    rows = math.prod(a.extent for a in whole[:-1])
    blocks = ceil_div(whole[-1].extent, _BLOCK[0 if device.is_cpu else 1])
    span = find_span(blocks, rows, device) * _BLOCK[0 if device.is_cpu else 1]
    lines = find_span(rows, 1, device)
    args: Args = {"x": x, "y": y, "x0": start[0], "y0": start[1], "rows": rows}
    args |= {"bytes": x.type.storage.size, "mode": mode, "fill": np.uint64(fill), "span": span, "lines": lines}
    for k, a in enumerate(whole):
        args |= {f"e{k}": a.extent, f"xs{k}": a.x_step, f"ys{k}": a.y_step}
        args |= {f"begin{k}": a.begin, f"gap{k}": a.gap, f"size{k}": a.size}
    return Launch("move", args, (ceil_div(whole[-1].extent, span), ceil_div(rows, lines)), defines=build.defines)


def move_build(device: DeviceInfo) -> Build:
    """The program for `device`."""
    return Build("generic/generic_data_movement.cl", {"PACK": vector_defines(device)["PACK"]})


class GenericMovement(GenericKernel):
    """Base class of the data-movement kernels."""

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [move_build(device)]


class GenericStridedCopy(GenericMovement):
    """Copies between the strided views of the optimized kernels."""

    special: StridedCopy

    def refuse(self, p: Problem) -> str | None:
        if any(len(copy.merged().extents) > AXES for copy in self.special.copies(p.node, FLAT)):
            return f"the copy has more than {AXES} axes that cannot be merged"
        return None

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        inputs = [v for v in p.node.inputs if v is not None]
        copies = self.special.copies(p.node, FLAT)
        return [
            move_launch(x, p.node.y, _axes(copy.merged()), p.device, (copy.source_start, copy.target_start))
            for x, copy in zip(inputs, copies, strict=True)
            if x.type.count
        ]


def _axes(copy: Copy) -> list[MoveAxis]:
    return [MoveAxis(e, s, t, e) for e, s, t in zip(copy.extents, copy.source, copy.target, strict=True)]


@register
class TransposeGeneric(GenericStridedCopy):
    """Strided reads, contiguous writes."""

    op, special = "Transpose", TransposeCopy()


@register
class SliceGeneric(GenericStridedCopy):
    """Strided reads, contiguous writes."""

    op, special = "Slice", SliceCopy()


@register
class ConcatGeneric(GenericStridedCopy):
    """One launch per input."""

    op, special = "Concat", ConcatCopy()


@register
class ResizeRepeatGeneric(GenericMovement):
    """Nearest-neighbour Resize by a whole factor along each axis."""

    op = "Resize"

    def refuse(self, p: Problem) -> str | None:
        if p.node.x.type.rank > AXES:
            return f"x has more than {AXES} axes"
        return None if repeats(p.node) else "its elements are not each repeated equally often"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, y, times = p.node.x, p.node.y, repeats(p.node)
        assert times is not None
        x_steps, y_steps = row_major(x.shape), row_major(y.shape)
        axes = [
            MoveAxis(wide, xs, ys, size, gap=gap)
            for wide, xs, ys, size, gap in zip(y.shape, x_steps, y_steps, x.shape, times, strict=True)
        ]
        return [move_launch(x, y, axes, p.device, mode=_REPEATS)]


def repeats(node: Node) -> list[int] | None:
    """The whole factors of a nearest-neighbour Resize, valid for all sizes; None for any other Resize."""
    op = node.as_(Resize)
    if (op.mode, op.coordinate, op.nearest_mode) != ("nearest", "asymmetric", "floor"):
        return None
    if not all(type(s) is float and s.is_integer() for s in op.scales):
        return None
    times = [int(s) for s in op.scales]
    wide = [d * n for d, n in zip(node.x.shape, times, strict=True)]
    return times if all(always_equal(o, w) for o, w in zip(op.sizes, wide, strict=True)) else None


@register
class PadGeneric(GenericMovement):
    """All modes."""

    op = "Pad"

    def refuse(self, p: Problem) -> str | None:
        axes = len(merged_axes(p.node, FLAT))
        return f"{axes} axes that cannot be merged are more than {AXES}" if axes > AXES else None

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(Pad)
        merged = merged_axes(node, FLAT)
        x_steps, y_steps = row_major([a[0] for a in merged]), row_major([a[2] for a in merged])
        axes = [
            MoveAxis(wide, xs, ys, size, begin)
            for (size, begin, wide), xs, ys in zip(merged, x_steps, y_steps, strict=True)
        ]
        return [move_launch(node.x, node.y, axes, p.device, mode=MODES[op.mode], fill=bits_of(op.value, node))]


def bits_of(value: Any, node: Node) -> int:
    """The bits of `value` as an element of the node's x."""
    storage = node.x.type.storage
    with np.errstate(all="ignore"):
        return int(np.asarray(value).astype(storage.np).reshape(()).view(f"u{storage.size}")[()])


_BOTH = {(DType.FLOAT16, DType.FLOAT32), (DType.FLOAT32, DType.FLOAT16)}


@register
class PlaceCastGeneric(GenericKernel):
    """Casts between row-major buffers."""

    source = "generic/generic_cast.cl"
    op = "PlaceCast"

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source, {"SPAN": 256 if device.is_cpu else 4})]

    def refuse(self, p: Problem) -> str | None:
        x, y = p.node.x.type, p.node.y.type
        if any(t.place.target is not Target.OPENCL or not t.layout.is_row_major for t in (x, y)):
            return "the general kernel casts row-major buffers"
        if (x.storage, y.storage) not in _BOTH:
            return f"the general kernel casts between half and float, not from {x.storage} to {y.storage}"
        return None

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, y = p.node.x, p.node.y
        (build,) = self.builds(p.device)
        args: Args = {"x": x, "y": y, "count": y.type.count, "narrows": int(y.type.storage is DType.FLOAT16)}
        return [Launch("cast_general", args, (ceil_div(y.type.count, build.defines["SPAN"]),), defines=build.defines)]
