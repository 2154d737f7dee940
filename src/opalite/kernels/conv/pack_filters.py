"""Packs filters and biases for channel-packed convolutions, and maps groups to channel blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...ir.constants.lazy_array import page_contiguous, page_zeros
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import packed
from ...ops.conv import Convolution
from ..codegen.epilogue import epilogue_binding, epilogue_refusal
from ..filter_window import PACKED_TYPES, Window, WindowProblem, empty_refusal, window_refusal
from ..kernel import Bindings, Kernel
from ..launch import Array, Weight, ceil_div

MAX_MERGE = 64  # groups that may be merged into one; the filters grow by this factor
MOST_TAPS = 63


@dataclass(frozen=True)
class Groups:
    """A grouped convolution in channel blocks.

    `merged` neighbouring groups count as one with zero off-diagonal filters, so that each group's channels fill whole
    blocks of `in_pack` and `pack` (a single group is padded at its end). A tile of output blocks reads only the input
    blocks of its own channels' groups (`reach`).
    """

    count: int
    merged: int
    channels: int  # input channels of one (merged) group
    filters: int  # output channels of one (merged) group
    in_pack: int
    pack: int

    @property
    def in_blocks(self) -> int:
        """Input blocks of one group."""
        return ceil_div(self.channels, self.in_pack)

    @property
    def out_blocks(self) -> int:
        """Output blocks of one group."""
        return ceil_div(self.filters, self.pack)

    @property
    def waste(self) -> float:
        """Multiplications, zeros of merged groups and padding included, over those needed."""
        return self.merged * self.out_blocks * self.pack / self.filters

    def reach(self, tile: int) -> float:
        """Average number of input blocks that a tile of `tile` output blocks reads; all other filters are zero."""
        own, filters, met = self.channels // self.merged, self.filters // self.merged, 0
        starts = range(0, self.filters, tile * self.pack)
        for start in starts:
            last = min(start + tile * self.pack, self.filters) - 1
            met += ceil_div((last // filters + 1) * own, self.in_pack) - start // filters * own // self.in_pack
        return met / len(starts)

    @classmethod
    def of(cls, node: Node, in_pack: int, pack: int) -> Groups:
        """The fewest merged groups that fill blocks."""
        count = node.as_(Convolution).group
        cg, mg = node.x.shape[1] // count, node.y.shape[1] // count
        for merged in range(1, count + 1):
            whole = merged * cg % in_pack == 0 and merged * mg % pack == 0
            if count % merged == 0 and (whole or merged == count):
                break
        return cls(count // merged, merged, merged * cg, merged * mg, in_pack, pack)


class ConvProblem(WindowProblem):
    """A convolution with its window and groups."""

    @cached_property
    def _groups(self) -> dict[tuple[int, int], Groups]:
        return {}

    @cached_property
    def packed_refusal(self) -> str | None:
        """The reason why channel-packed convolutions do not take the node, whatever its shape, or None."""
        node = self.node
        if node.x.dtype not in PACKED_TYPES:
            return f"channel-packed tensors do not hold {node.x.dtype}"
        for i in (1, 2):
            v = node.get(i)
            if v is not None and not v.is_const:
                return f"input {i} is not constant, so it cannot be packed ahead of time"
        return window_refusal(node) or empty_refusal(node) or epilogue_refusal(node, "packed")

    @cached_property
    def depthwise_refusal(self) -> str | None:
        """The reason why the convolution does not have one filter for each channel (group = C = M), or None."""
        channels, group = (self.node.x.shape[1], self.node.y.shape[1]), self.node.as_(Convolution).group
        if channels == (group, group):
            return None
        return f"{channels[0]} to {channels[1]} channels in {group} groups is not depthwise"

    @cached_property
    def positions(self) -> int:
        """Output positions of all images."""
        return self.node.y.shape[0] * math.prod(self.node.y.shape[2:])

    def merge_refusal(self, in_pack: int, pack: int, most: int = MAX_MERGE) -> str | None:
        """The reason why the node's groups do not fill blocks, with at most `most` of them merged, or None."""
        merged = self.groups(in_pack, pack).merged
        return f"{merged} groups would have to be merged to fill channel blocks" if merged > most else None

    def groups(self, in_pack: int, pack: int) -> Groups:
        """The node's groups in blocks of `in_pack` input and `pack` output channels."""
        if (in_pack, pack) not in self._groups:
            self._groups[in_pack, pack] = Groups.of(self.node, in_pack, pack)
        return self._groups[in_pack, pack]


class PackedConv(Kernel):
    """Base class of Conv kernels from channel-packed to channel-packed tensors."""

    problem = ConvProblem
    half_sums = True
    op = "Conv"

    def bindings(self, p: ConvProblem) -> Bindings:
        return (epilogue_binding(p.node, "packed", packed(p.device.pack)),)


def taps_refusal(win: Window) -> str | None:
    """The reason why a kernel that holds a bit per tap, inside the input or not, does not take the window, or None."""
    taps = math.prod(win.kernel)
    return f"filters of {taps} taps, at most {MOST_TAPS} are supported" if taps > MOST_TAPS else None


def pack_filters(filters: Array, groups: Groups, tile: int, storage: DType) -> Array:
    """`filters` [groups * M/g, C/g, K...] in the order in which kernels with tiles of `tile` output blocks read them.

    The result is [groups, ceil(out_blocks / tile), in_blocks, taps, in_pack, tile, pack].
    """
    g = groups
    taps = int(np.prod(filters.shape[2:], dtype=np.int64))
    mg, cg = g.filters // g.merged, g.channels // g.merged
    tiles = ceil_div(g.out_blocks, tile)
    wide = (g.count, tiles * tile * g.pack, g.in_blocks * g.in_pack, taps)
    parts = filters.reshape(g.count, g.merged, mg, cg, taps)
    if g.merged == 1 and (mg, cg) == wide[1:3]:
        dense = parts[:, 0]
    else:
        dense = page_zeros(wide, storage.np)
        for i in range(g.merged):
            dense[:, i * mg : (i + 1) * mg, i * cg : (i + 1) * cg] = parts[:, i]
    blocks = dense.reshape(g.count, tiles, tile, g.pack, g.in_blocks, g.in_pack, taps)
    return page_contiguous(blocks.transpose(0, 1, 4, 6, 5, 2, 3), storage.np)


def filter_weight(w: Value, groups: Groups, tile: int, storage: DType, transposed: bool = False) -> Weight:
    """`w` [M, C/g, K...] ([C, M/g, K...] if `transposed`) packed by `pack_filters`."""

    def pack(data: Array) -> Array:
        if transposed:
            count = groups.count * groups.merged
            parts = data.reshape(count, data.shape[0] // count, *data.shape[1:]).swapaxes(1, 2)
            data = parts.reshape(-1, *parts.shape[2:])
        return pack_filters(data, groups, tile, storage)

    order = "cm" if transposed else "mc"
    form = (
        f"filter {order} {groups.count}x{groups.merged} groups i{groups.in_pack} o{groups.pack} tile {tile} {storage}"
    )
    return Weight(w, form, pack)


def bias_weight(bias: Value, pack: int, storage: DType) -> Weight:
    """`bias` [M] zero-padded to whole blocks of `pack`."""

    def padded(data: Array) -> Array:
        out: np.ndarray[Any, Any] = np.zeros(ceil_div(data.size, pack) * pack, storage.np)
        out[: data.size] = data
        return out

    return Weight(bias, f"bias o{pack} {storage}", padded)
