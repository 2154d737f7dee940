"""Direct convolution on channel-packed tensors for CPUs and GPUs, the default kernel of most layers."""

from __future__ import annotations

import math
from math import prod

from ...cost.cost_tables import Windows
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import FLAT, Layout, packed
from ...ir.symbols import may_be_less, symbolic_min, tile_at_most
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_binding, keeps_zeros, packed_epilogue
from ..filter_window import Window, find_span, window_seconds
from ..kernel import Bindings, Params, register
from ..launch import STORAGE, Args, Defines, Launch, Weight, ceil_div
from .pack_filters import ConvProblem, Groups, PackedConv, bias_weight, filter_weight
from .register_tiles import TILE_BLOCKS, TILE_WIDTHS, FilterChunks, find_tile, tile_refusal

_MOST_STAGED = 64  # most input columns of a tile that may be staged at row edges
_MOST_UNROLLED = 8  # most unrolled filter columns


@register
class ConvPacked(PackedConv):
    """NCHWc to NCHWc; a work-item owns tiles of TW columns and TB output blocks."""

    entry: str = "conv_packed"
    space = {"TW": TILE_WIDTHS, "TB": TILE_BLOCKS, "UNROLL": (1, 2, 4)}
    unroll: int = 1  # channels per iteration on a CPU, untuned
    chunked: bool = True  # whether the kernel reads its filters in chunks
    moves_back: bool = (
        True  # whether the last tile of a line overlaps the previous one; lines must then be at least a tile long
    )
    banded: bool = True  # whether it skips the input blocks of other groups if groups are merged

    def in_pack(self, pack: int) -> int:
        """Channels per block of x if y has blocks of `pack`."""
        return pack

    def in_layout(self, device: DeviceInfo) -> Layout:
        """Layout of x."""
        return packed(device.pack)

    def lines(self, win: Window) -> tuple[int, int]:
        """(adjacent output positions from which tiles are cut, such lines per channel)."""
        d, h, w = win.out
        return w, d * h

    def sizes(self, win: Window) -> dict[str, int]:
        """Sizes along the spatial axes, as kernel arguments."""
        return win.args()

    def window_defines(self, win: Window, groups: Groups, tw: int, storage: DType, device: DeviceInfo) -> Defines:
        """The defines that depend on the filter, for tiles of `tw` columns."""
        _, run, step = win.runs()
        columns = (tw - 1) * win.strides[2] + (win.kernel[2] - 1) * win.dilations[2] + 1
        table = {"IN_PACK": groups.in_pack, "RUN": run, "STEP": step, "DIRECT": 0, "UNROLL_K": 1}
        if (
            groups.in_pack == 1
            and device.one_address_space
            and storage in (DType.FLOAT32, DType.INT32)
            and columns <= _MOST_STAGED
        ):
            run = win.kernel[2]
            table |= {"RUN": run, "STEP": 1, "DIRECT": 1, "UNROLL_K": run if run <= _MOST_UNROLLED else 1}
        return win.defines() | table

    def filters(self, node: Node, groups: Groups, tile: int) -> Weight:
        """The filters for tiles of `tile` output blocks."""
        return filter_weight(node.input(1), groups, tile, node.x.type.storage)

    def groups(self, p: ConvProblem) -> Groups:
        """The node's groups in channel blocks."""
        return p.groups(self.in_pack(p.block), p.block)

    def refuse(self, p: ConvProblem) -> str | None:
        return p.packed_refusal or p.merge_refusal(self.in_pack(p.block), p.block)

    def bindings(self, p: ConvProblem) -> Bindings:
        return (epilogue_binding(p.node, "packed", packed(p.device.pack), self.in_layout(p.device)),)

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        if not p.device.is_cpu and params["UNROLL"] != self.space["UNROLL"][0]:
            return "a GPU unrolls a whole block"
        return tile_refusal(params["TW"], params["TB"], p.block, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        win, groups = p.window, self.groups(p)
        columns, rows = self.lines(win)
        rows *= p.node.x.shape[0] * groups.count
        reach = groups.reach if self.banded and groups.merged > 1 else None
        staged = self.staged(win, groups)
        tw, tb = find_tile(columns, rows, groups.out_blocks, groups.pack, p.device, staged, reach=reach)
        return {"TW": tw, "TB": tb, "UNROLL": self.unroll if p.device.is_cpu else 1}

    def staged(self, win: Window, groups: Groups) -> float:
        """Cost of staging one input pixel, in multiply-adds of one output block."""
        return 2.0 * win.runs()[0] / (win.kernel[2] * groups.in_pack)

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        groups = self.groups(p)
        met = groups.reach(1) / groups.in_blocks if self.banded else 1.0
        waste = groups.waste * met
        padding = (groups.in_blocks * groups.in_pack / groups.channels - 1) * p.node.x.type.nbytes
        found = window_seconds(cost.flops * waste, cost.bytes + padding, self.share(p.device), p.device)
        rows = groups.in_blocks * prod(p.window.kernel[:2])
        return max(found, rows * Windows.of(p.device).turn_s + p.device.launch_s)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, bias, y = node.x, node.get(2), node.y
        storage, win, g = x.type.storage, p.window, self.groups(p)
        columns, rows = self.lines(win)
        tw, tb = tile_at_most(params["TW"], columns), params["TB"]
        tiles, blocks = ceil_div(columns, tw) * rows, g.count * ceil_div(g.out_blocks, tb)
        row_bytes = win.kernel[2] * g.in_pack * tb * g.pack * storage.size
        rows = g.in_blocks * win.kernel[0] * win.kernel[1]
        span = find_span(tiles, blocks * x.shape[0], p.device, rows * row_bytes)
        chunks = FilterChunks.of(rows, row_bytes, symbolic_min([tiles, span]), tw * tb, blocks, p.device)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "weights": self.filters(node, g, tb), "y": y, "span": span}
        args |= {} if bias is None else {"bias": bias_weight(bias, g.pack, storage)}
        args |= chunks.args if self.chunked else {}
        args |= {"batch": x.shape[0], "groups": g.count, "cg": g.channels, "ib": g.in_blocks, "ob": g.out_blocks}
        if self.banded and g.merged > 1:
            args |= {"own_in": g.channels // g.merged, "own_out": g.filters // g.merged}
        args |= {"m": y.shape[1], **self.sizes(win), **epilogue.args}
        defines = self.window_defines(win, g, tw, node.x.type.storage, p.device) | {
            "PACK": g.pack,
            "TW": tw,
            "TB": tb,
            "UNROLL": min(params["UNROLL"], g.in_pack),
            "GROUP": chunks.group if self.chunked else 1,
            "IN_REGISTERS": not p.device.is_cpu,
            "BANDED": self.banded and g.merged > 1,
            "HAS_BIAS": bias is not None,
            "MASK": y.shape[1] % g.pack != 0 and not keeps_zeros(node),
            "STORAGE": STORAGE[storage],
        }
        if self.moves_back and may_be_less(columns, tw):
            defines["NARROW"] = 1
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        work_group = (1, 1, 1) if p.device.is_cpu else None
        return [Launch(self.entry, args, grid, work_group, defines, epilogue.prelude)]


@register
class ConvRowMajorToPacked(ConvPacked):
    """NCHW to NCHWc for inputs of few channels, as in a first layer: row-major input wastes no lanes."""

    def staged(self, win: Window, groups: Groups) -> float:
        return 0.1  # only at row ends

    def in_pack(self, pack: int) -> int:
        return 1

    def in_layout(self, device: DeviceInfo) -> Layout:
        return FLAT


@register
class ConvPointwise(ConvPacked):
    """1x1 filters of stride 1: a matrix product over positions, across row ends."""

    source = "conv/pointwise.cl"
    entry = "conv_pointwise"
    unroll = 2

    def refuse(self, p: ConvProblem) -> str | None:
        return super().refuse(p) or (None if p.window.is_pointwise else "the filter is not 1x1")

    def lines(self, win: Window) -> tuple[int, int]:
        return math.prod(win.out), 1

    def sizes(self, win: Window) -> dict[str, int]:
        return {"s": math.prod(win.out)}

    def staged(self, win: Window, groups: Groups) -> float:
        return 0.0

    def window_defines(self, win: Window, groups: Groups, tw: int, storage: DType, device: DeviceInfo) -> Defines:
        return {}


_LONG_SUM = 2048
"""Terms from which a GPU spends registers on sums of blocks: a running sum of so many is as exact as theirs."""


@register
class ConvTransposePacked(ConvPacked):
    """NCHWc to NCHWc; a tile is the output columns that use the same filter columns."""

    source = "conv/transposed_packed.cl"
    op = "ConvTranspose"
    entry = "conv_transpose_packed"
    chunked = False
    moves_back = False
    banded = False

    def lines(self, win: Window) -> tuple[int, int]:
        d, h, w = win.out
        phases = win.strides[2]
        return ceil_div(w, phases), d * h * phases

    def window_defines(self, win: Window, groups: Groups, tw: int, storage: DType, device: DeviceInfo) -> Defines:
        terms = groups.in_blocks * groups.in_pack * prod(map(ceil_div, win.kernel, win.strides))
        return win.defines() | {"IN_SUM_BLOCKS": device.is_cpu or terms > _LONG_SUM}

    def filters(self, node: Node, groups: Groups, tile: int) -> Weight:
        return filter_weight(node.input(1), groups, tile, node.x.type.storage, transposed=True)
