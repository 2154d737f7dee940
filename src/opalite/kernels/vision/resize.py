"""Resize in flat and in channel-packed layout: nearest neighbours move elements, the other modes weigh them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import packed
from ...ops.resize import Resize, resized_axes
from ...ops.resize_taps import Taps, is_untouched
from ..base import Arg, Array, Binding, Kernel, Launch, Params, Problem, Space, ceil_div, uniform_binding
from ..registry import register
from ..sources import ELEMENT, STORAGE
from ..workgroups import group_refusal

MAX_RANK = 5


@dataclass
class ResizeAxis:
    """One axis as the kernels see it: sizes in x and y, and taps unless it is copied."""

    size: int
    count: int
    taps: Taps | None


def merge_axes(sizes: Sequence[int], counts: Sequence[int], taps: dict[int, Taps]) -> list[ResizeAxis]:
    """Axes with copied neighbours merged into one; at least one."""
    merged: list[ResizeAxis] = []
    for a, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        if merged and merged[-1].taps is None and a not in taps:
            merged[-1] = ResizeAxis(merged[-1].size * size, merged[-1].count * count, None)
        else:
            merged.append(ResizeAxis(size, count, taps.get(a)))
    return merged or [ResizeAxis(1, 1, None)]


def _tables(axes: Sequence[ResizeAxis]) -> tuple[Array, Array]:
    """(`axes`, `weights`) of vision/resize.cl: a header of four numbers for each axis, then the entries of all taps."""
    header: list[tuple[int, int, int, int]] = []
    offsets: list[Array] = [np.zeros(4 * len(axes), np.int32)]
    weights: list[Array] = [np.zeros(4 * len(axes), np.float32)]
    start = 4 * len(axes)
    for k, axis in enumerate(axes):
        stride = math.prod(a.size for a in axes[k + 1 :])
        if axis.taps is None:
            header.append((axis.count, stride, 1, 0))
            continue
        index = np.where(axis.taps.inside[:, None], axis.taps.index * stride, -1)
        header.append((axis.count, stride, index.shape[1], start))
        offsets.append(index.ravel().astype(np.int32))
        weights.append(axis.taps.weight.ravel())
        start += index.size
    table = np.concatenate(offsets)
    table[: 4 * len(axes)] = np.array(header, np.int32).ravel()
    return table, np.concatenate(weights)


class ResizeKernel(Kernel):
    """What all kernels of the operator share; subclasses say mode and layout, and which axes they walk."""

    op = "Resize"
    source = "vision/resize.cl"
    space: ClassVar[Space] = {"SPAN": (1, 4, 16, 64), "WG": (64, 16, 128, 256)}
    nearest: ClassVar[bool]
    blocks: ClassVar[bool] = False

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

    def bindings(self, p: Problem) -> Sequence[Binding]:
        return (uniform_binding(p.node, packed(p.device.pack)),) if self.blocks else super().bindings(p)

    def illegal(self, p: Problem, params: Params) -> str | None:
        return group_refusal(params["WG"], p.device)

    def defaults(self, p: Problem) -> dict[str, Any]:
        return {"SPAN": 64, "WG": 16} if p.device.is_cpu else {"SPAN": 1, "WG": 64}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, y = node.x, node.y
        pack = y.type.layout.pack
        sizes, counts = list(x.shape), list(y.shape)
        if not y.type.layout.is_row_major:
            sizes[1] = counts[1] = ceil_div(x.shape[1], pack)
        axes = self.with_axes(merge_axes(sizes, counts, resized_axes(node.as_(Resize), x.shape)))
        table, weights = _tables(axes)
        spans = ceil_div(axes[-1].count, params["SPAN"])
        items = math.prod(a.count for a in axes[:-1]) * spans
        defines: dict[str, Any] = {"PACK": pack, "RANK": len(axes), "SPAN": params["SPAN"]}
        args: dict[str, Arg] = {"x": x, "y": y, "axes": table, "items": items, "spans": spans}
        fill: Any = np.float32(node.as_(Resize).extrapolation)
        if self.nearest:
            defines["ELEM"] = ELEMENT[y.type.storage.size]
            bits = np.asarray(node.as_(Resize).extrapolation).astype(y.type.storage.np)
            fill = bits.view(f"uint{8 * y.type.storage.size}")[()]
        else:
            defines["STORAGE"] = STORAGE[y.type.storage]
            defines["LAST_TAPS"] = self.last_taps(node, axes[-1])
            args["weights"] = weights
        args["fill"] = fill
        entry = "resize_nearest" if self.nearest else "resize_weighted"
        return [Launch(entry, args, (items,), (params["WG"],), defines)]

    def with_axes(self, axes: list[ResizeAxis]) -> list[ResizeAxis]:
        """The axes that the program walks, of those that remain after merging."""
        return axes

    def last_taps(self, node: Node, last: ResizeAxis) -> int:
        """Taps along the last axis where they do not depend on sizes, else 0."""
        if last.taps is None:
            return 1
        return 0 if node.as_(Resize).antialias else int(last.taps.index.shape[1])


def _merged_rank(node: Node) -> int:
    """Axes that remain when copied neighbours are merged."""
    copied = [is_untouched(node.as_(Resize), a) for a in range(node.x.type.rank)]
    return sum(not (c and before) for c, before in zip(copied, [False, *copied], strict=False))


@register
class ResizeNearest(ResizeKernel):
    """Nearest neighbours of flat tensors, for every element type."""

    nearest = True


@register
class ResizeNearestPacked(ResizeKernel):
    """Nearest neighbours of channel blocks."""

    nearest = True
    blocks = True


@register
class ResizeWeighted(ResizeKernel):
    """Linear, cubic and antialiased interpolation of flat tensors along any axes, all in one launch."""

    nearest = False


@register
class ResizeWeightedPacked(ResizeKernel):
    """Linear, cubic and antialiased interpolation of channel blocks."""

    nearest = False
    blocks = True
