"""Resize on row-major and channel-packed tensors: nearest neighbours move elements, other modes interpolate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import packed
from ...ir.symbols import is_symbolic
from ...ops.resize import COPIED, Axis, Resize, merged_axes, offset_table, taps_of, weight_table
from ...ops.resize_weights import is_untouched
from ..kernel import Bindings, Kernel, Params, Problem, register, uniform_binding
from ..launch import ELEMENT, STORAGE, Args, Defines, Launch, PerShapeTable, Table, ceil_div

MAX_RANK = 5


class ResizeKernel(Kernel):
    """Base class; subclasses define mode, layout and axes."""

    op = "Resize"
    source = "vision/resize.cl"
    space = {"SPAN": (1, 4, 16, 64), "WG": (64, 16, 128, 256)}
    untuned = {"SPAN": 64, "WG": 16}, {"SPAN": 1, "WG": 64}
    nearest: bool
    blocks: bool = False
    rank = 0  # axes that the program loops over; 0: those that remain after merging

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if (node.as_(Resize).mode == "nearest") != self.nearest:
            return f"mode {node.as_(Resize).mode} {'needs weights' if self.nearest else 'only moves elements'}"
        rank = _merged_rank(node)
        if rank > MAX_RANK:
            return f"{rank} axes remain after merging those that are copied; the kernel knows {MAX_RANK}"
        if self.blocks:
            return self._refuse_blocks(node)
        return None

    def _refuse_blocks(self, node: Node) -> str | None:
        op, x = node.as_(Resize), node.x
        if x.type.rank not in (3, 4) or not (is_untouched(op, 0) and is_untouched(op, 1)):
            return f"channel blocks need [N,C,L] or [N,C,H,W] with N and C kept, got {x.type} to {op.sizes}"
        if x.dtype not in (DType.FLOAT32, DType.FLOAT16):
            return f"channel blocks hold f32 or f16, got {x.dtype}"
        if op.coordinate == "tf_crop_and_resize":
            return "an extrapolation value would fill the lanes past the last channel"
        return None

    def bindings(self, p: Problem) -> Bindings:
        return (uniform_binding(p.node, packed(p.device.pack)),) if self.blocks else super().bindings(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, y = node.x, node.y
        pack = y.type.layout.pack
        sizes, counts = list(x.shape), list(y.shape)
        if not y.type.layout.is_row_major:
            sizes[1] = counts[1] = ceil_div(x.shape[1], pack)
        axes = merged_axes(node.as_(Resize), sizes, counts, self.rank)
        table, weights = self._tables(node.as_(Resize), x.shape, sizes, counts)
        spans = ceil_div(axes[-1].count, params["SPAN"])
        items = math.prod(a.count for a in axes[:-1]) * spans
        defines: Defines = {"PACK": pack, "RANK": len(axes), "SPAN": params["SPAN"]}
        args: Args = {"x": x, "y": y, "axes": table, "items": items, "spans": spans}
        fill: Any = np.float32(node.as_(Resize).extrapolation)
        if self.nearest:
            defines["ELEM"] = ELEMENT[y.type.storage.size]
            bits = np.asarray(node.as_(Resize).extrapolation).astype(y.type.storage.np)
            fill = bits.view(f"uint{8 * y.type.storage.size}")[()]
        else:
            defines["STORAGE"] = STORAGE[y.type.storage]
            defines["LAST_TAPS"] = self.last_taps(node.as_(Resize), axes[-1])
            args["weights"] = weights
        args["fill"] = fill
        entry = "resize_nearest" if self.nearest else "resize_weighted"
        return [Launch(entry, args, (items,), (params["WG"],), defines)]

    def last_taps(self, op: Resize, last: Axis) -> int:
        """Taps along the last axis if they do not depend on sizes, else 0."""
        if not last.taps:
            return 1
        return 0 if op.antialias else taps_of(op)

    def _tables(
        self, op: Resize, shape: Sequence[int], sizes: Sequence[int], counts: Sequence[int]
    ) -> tuple[Table, Table]:
        """(`axes`, `weights`) of vision/resize.cl; recomputed for each shape if sizes are symbolic."""
        given = (op, tuple(shape), tuple(sizes), tuple(counts), self.rank)
        if op.antialias or not is_symbolic(given[1:4]):
            return offset_table(*given), weight_table(*given)
        axes = merged_axes(op, sizes, counts, self.rank)
        count = 4 * len(axes) + sum((1 if a.taps == COPIED else taps_of(op)) * a.count for a in axes if a.taps)
        return (
            PerShapeTable("resize_offsets", given, count, np.dtype(np.int32)),
            PerShapeTable("resize_weights", given, count, np.dtype(np.float32)),
        )


def _merged_rank(node: Node) -> int:
    """Axes that remain when adjacent copied axes are merged."""
    copied = [is_untouched(node.as_(Resize), a) for a in range(node.x.type.rank)]
    return sum(not (c and before) for c, before in zip(copied, [False, *copied], strict=False))


@register
class ResizeNearest(ResizeKernel):
    """Nearest neighbours on row-major tensors of every element type."""

    nearest = True


@register
class ResizeNearestPacked(ResizeKernel):
    """Nearest neighbours of channel blocks."""

    nearest = True
    blocks = True


@register
class ResizeWeighted(ResizeKernel):
    """Linear, cubic and antialiased interpolation of row-major tensors along any axes, in one launch."""

    nearest = False


@register
class ResizeWeightedPacked(ResizeKernel):
    """Linear, cubic and antialiased interpolation of channel blocks."""

    nearest = False
    blocks = True
