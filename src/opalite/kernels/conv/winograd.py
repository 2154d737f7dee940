"""Winograd convolution on channel-packed tensors: 3x3 filters with a quarter of the multiplications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...cost.cost_tables import SharedTile, SplitConv, Winograd
from ...ir.constants.lazy_array import page_empty
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import hint_of, may_be_less, symbolic_max, symbolic_min, tile_at_most
from ...ops.conv import Conv
from ...ops.operator import Cost
from ..codegen.epilogue import packed_epilogue
from ..filter_window import Window, block_size, find_span, window_seconds
from ..fma.tile_parameters import GemmSize, group_size, slab, tile_cycles, tile_defines, tile_size
from ..fma.tile_parameters import find_tile as find_shared_tile
from ..kernel import Params, register
from ..launch import STORAGE, Arg, Args, Array, Launch, Scratch, Weight, ceil_div
from .direct_split_k import seconds_relative_to_split_k, split_cycles, split_weights, whole_sum_points
from .implicit_gemm_local import filter_panels, supports_local_tiles
from .pack_filters import ConvProblem, Groups, PackedConv, bias_weight, pack_filters
from .register_tiles import TILE_BLOCKS, TILE_WIDTHS, find_tile, tile_refusal

FILTER_TRANSFORM = {
    2: np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    4: np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24,
}
"""The matrix G of u = G g G^T for tiles of 2 x 2 and 4 x 4 outputs."""

_POINT = dict.fromkeys(("KD", "KH", "KW", "SD", "SH", "SW", "DD", "DH", "DW"), 1)
"""Defines of a window of one element."""

_ROWS = 32  # filters transformed at a time


@dataclass(frozen=True)
class WinogradTiles:
    """The tiles of a node, and its matrix products as the groups of a pointwise convolution over tiles."""

    count: int
    sides: tuple[int, int]  # tiles in a column and in a row of one image
    number: int  # number of strips, the same at all sizes
    strip: int  # tiles per strip
    elements: int  # elements of a transformed tile
    in_blocks: int
    out_blocks: int
    filters: int  # numbers in the transformed filters
    groups: Groups

    @classmethod
    def of(cls, node: Node, device: DeviceInfo, f: int, strip_mib: int) -> WinogradTiles:
        """Tiles of `f` x `f` outputs, in strips of at most `strip_mib` MiB (or the filters' size if larger)."""
        pack = block_size(node, device)
        plain, elements = Groups.of(node, pack, pack), (f + 2) ** 2
        _, h, w = Window.of(node).out
        sides = (ceil_div(h, f), ceil_div(w, f))
        count = node.x.shape[0] * sides[0] * sides[1]
        in_blocks, out_blocks = plain.count * plain.in_blocks, plain.count * plain.out_blocks
        groups = Groups(elements * plain.count, 1, plain.channels, plain.filters, pack, pack)
        filters = groups.count * groups.in_blocks * groups.out_blocks * pack**2
        # Each strip reads all filters, so a strip smaller than the filters does not pay.
        strip_bytes = max(strip_mib << 20, filters * 4)
        at_hand = hint_of(count)
        strips = max(1, ceil_div(at_hand * elements * (in_blocks + out_blocks) * pack * 4, strip_bytes))
        strips = ceil_div(at_hand, max(1, ceil_div(at_hand, strips)))  # number of nonempty strips
        strip = symbolic_max([1, ceil_div(count, strips)])
        return cls(count, sides, strips, strip, elements, in_blocks, out_blocks, filters, groups)

    def strips(self) -> list[tuple[int, int]]:
        """First tile and tile count of each strip; trailing strips may be empty at other sizes."""
        if self.number == 1:
            return [(0, self.count)]
        firsts = [i * self.strip for i in range(self.number)]
        return [(first, symbolic_max([0, symbolic_min([self.strip, self.count - first])])) for first in firsts]


def product_tile(tiles: WinogradTiles, device: DeviceInfo) -> Mapping[str, int]:
    """The local-memory tile for the products of a strip, on a device that supports such tiles."""
    return find_shared_tile(GemmSize(*hint_of(tuple(_product_sums(tiles)))), device, whole=True)


def _split_point(t: WinogradTiles, device: DeviceInfo) -> tuple[float, Params]:
    """(cycles, parameters) of ConvSplitK for the products of a strip, on a GPU without local-memory tiles."""
    points = whole_sum_points(t.groups.pack, device)
    ranked = ((split_cycles(t.groups, hint_of(t.strip), 1, point, device), point) for point in points)
    return min(ranked, key=lambda r: r[0])


def _product_sums(t: WinogradTiles) -> GemmSize:
    """The GEMM of one strip: tiles by output channels, one batch per tile element."""
    return GemmSize(t.strip, t.groups.out_blocks * t.groups.pack, t.groups.in_blocks * t.groups.pack, t.groups.count)


@register
class ConvWinograd(PackedConv):
    """Transforms tiles of x, multiplies each element by transformed filters over channels, transforms back.

    F x F outputs per tile: 4 needs the fewest multiplications, 2 less memory for filters. Images are processed in
    strips whose transformed tiles hold at most STRIP MiB, or the filters' size if larger.
    """

    half_sums = False
    space = {"F": (4, 2), "TW": TILE_WIDTHS, "TB": TILE_BLOCKS, "UNROLL": (1, 2, 4), "STRIP": (4, 1, 2, 8, 64)}

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        if why := p.packed_refusal:
            return why
        win = p.window
        if win.kernel != (1, 3, 3) or win.strides != (1, 1, 1) or win.dilations[1:] != (1, 1):
            return "only 3x3 filters of stride 1 without dilation have this form"
        if win.size[0] != 1 or win.out[0] != 1:
            return "the images have a depth"
        if not node.x.dtype.is_float:
            return f"the transformed filters are fractions, the tensors {node.x.dtype}"
        if node.as_(Conv).exact:
            return "the transformed filters are fractions, and the sums must be exact"
        return p.merge_refusal(p.device.pack, p.device.pack, 1)

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        if not p.device.is_cpu and params["UNROLL"] != self.space["UNROLL"][0]:
            return "a GPU unrolls a whole block"
        return tile_refusal(params["TW"], params["TB"], p.block, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        strip, sides = self._strip(p.device), self.space["F"]
        if p.device.is_cpu:
            f = min(sides, key=lambda f: self._estimate(p.node, p.device, f))
        else:
            f = min(sides, key=lambda f: self._cycles(p, f))
        t = WinogradTiles.of(p.node, p.device, f, strip)
        streamed = Winograd.of(p.device).streamed
        tw, tb = find_tile(t.strip, t.groups.count, t.groups.out_blocks, t.groups.pack, p.device, streamed=streamed)
        return {"F": f, "TW": tw, "TB": tb, "UNROLL": self.space["UNROLL"][0], "STRIP": strip}

    def _strip(self, device: DeviceInfo) -> int:
        """STRIP: a CPU's cache size, or enough work to fill a GPU."""
        return int(self.space["STRIP"][0 if device.is_cpu else -1])

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        if p.device.is_cpu:
            return min(self._estimate(p.node, p.device, f) for f in self.space["F"])
        return seconds_relative_to_split_k(p, cost, min(self._cycles(p, f) for f in self.space["F"]))

    def _cycles(self, p: ConvProblem, f: int) -> float:
        """Estimated cycles on a GPU; transforms run at memory bandwidth."""
        t, device, c = WinogradTiles.of(p.node, p.device, f, self._strip(p.device)), p.device, SharedTile.of(p.device)
        strips = ceil_div(hint_of(t.count), hint_of(t.strip))
        if supports_local_tiles(device):
            product = tile_cycles(product_tile(t, device), _product_sums(t), device)
        else:
            product = SplitConv.of(device).slower * _split_point(t, device)[0]
        moved = 4 * hint_of(t.count) * t.elements * (t.in_blocks + t.out_blocks) * t.groups.pack
        whole = hint_of(p.node.x.type.nbytes + p.node.y.type.nbytes)
        clock = device.peak_flops / (2 * device.lanes * device.compute_units)
        transforms = (moved + whole) / (c.transforms * device.bandwidth) * clock
        return float(strips * (product + 2 * c.begin_and_end) + transforms)

    def _estimate(self, node: Node, device: DeviceInfo, f: int) -> float:
        """Seconds with tiles of `f` x `f` outputs."""
        t = WinogradTiles.of(node, device, f, self._strip(device))
        tiles = 2 * t.count * t.elements * (t.in_blocks + t.out_blocks) * t.groups.pack
        c = Winograd.of(device)
        nbytes = node.x.type.nbytes + node.y.type.nbytes + 4 * t.filters / c.fetch_speedup + 4 * tiles / c.cache_speedup
        more_launches = 3 * ceil_div(t.count, t.strip) - 1
        seconds = window_seconds(2.0 * t.count * t.filters, nbytes, self.share(device), device)
        return seconds + more_launches * device.launch_s

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        tiles = WinogradTiles.of(p.node, p.device, params["F"], params["STRIP"])
        steps = _StripLaunches(p.node, params, p.device, tiles)
        launches = []
        for first, count in tiles.strips():
            launches += [steps.input(first, count), steps.product(count), steps.output(first, count)]
        return launches


@dataclass(frozen=True)
class _StripLaunches:
    """The launches that process one strip of tiles."""

    node: Node
    params: Params
    device: DeviceInfo
    tiles: WinogradTiles

    def _memory(self, name: str, blocks: int) -> Scratch:
        """Scratch memory of a strip's transformed tiles in `blocks` channel blocks."""
        t = self.tiles
        return Scratch(name, t.strip * t.elements * blocks * t.groups.pack * 4)

    @property
    def _v(self) -> Scratch:
        return self._memory("tiles", self.tiles.in_blocks)

    @property
    def _m(self) -> Scratch:
        return self._memory("products", self.tiles.out_blocks)

    def input(self, first: int, count: int) -> Launch:
        """Transforms `count` tiles of x, starting at tile `first`."""
        win, t = Window.of(self.node), self.tiles
        th, tw = t.sides
        args: Args = {"x": self.node.x, "v": self._v, "t0": first, "count": count, "blocks": t.in_blocks, "th": th}
        args |= {"tw": tw, **{k: win.args()[k] for k in ("ih", "iw", "ph", "pw")}}
        return self._transform("winograd_input", args, count, t.in_blocks)

    def product(self, count: int) -> Launch:
        """Multiplies `count` transformed tiles by the filters, one product per tile element."""
        if not self.device.is_cpu:
            return self._local_product(count) if supports_local_tiles(self.device) else self._split_product(count)
        g, tw, tb = self.tiles.groups, tile_at_most(self.params["TW"], count), self.params["TB"]
        positions, blocks = ceil_div(count, tw), g.count * ceil_div(g.out_blocks, tb)
        span = find_span(positions, blocks, self.device, g.in_blocks * g.pack * tb * g.pack * 4)
        narrow = {"NARROW": 1} if may_be_less(count, tw) else {}
        filters = transformed_filters(self.node, g, self.params["F"], tb)
        grid = (symbolic_max([1, ceil_div(positions, span)]), blocks, 1)
        defines = {"PACK": g.pack, "TW": tw, "TB": tb, "UNROLL": self.params["UNROLL"], **narrow}
        # So that a panel prefetches as much as it holds.
        ahead = max(1, round(tb * g.pack / min(hint_of([positions, span]))))
        args: Args = {"v": self._v, "u": filters, "m": self._m, "span": span, "ahead": ahead, "groups": g.count}
        args |= {"cg": g.channels, "ib": g.in_blocks, "ob": g.out_blocks, "s": count}
        return Launch("winograd_product", args, grid, (1, 1, 1), defines, source="conv/winograd_gemm_cpu.cl")

    def _split_product(self, count: int) -> Launch:
        """`product` as a pointwise convolution whose work-items own whole sums, with tile elements as groups."""
        g, (_, point) = self.tiles.groups, _split_point(self.tiles, self.device)
        lx, tb = point["LX"], point["TB"]
        form = f"winograd {self.params['F']} {g.count} groups i{g.in_pack} o{g.pack} split tile {tb}"
        f = self.params["F"]
        filters = Weight(
            self.node.input(1), form, lambda data: split_weights(transform_filters(data, f), g, tb, DType.FLOAT32)
        )
        args: Args = {"x": self._v, "weights": filters, "y": self._m, "positions": count, "groups": g.count}
        args |= {"ib": g.in_blocks, "ob": g.out_blocks, "m": g.count * g.out_blocks * g.pack, **_one_row(count)}
        grid = (symbolic_max([lx, ceil_div(count, lx * point["TP"]) * lx]), g.count * ceil_div(g.out_blocks, tb))
        defines = {"PACK": g.pack, **point, "HAS_BIAS": 0, "MASK": 0, **_POINT}
        return Launch("conv_split", args, grid, (lx, 1), defines, source="conv/direct_split_k.cl")

    def _local_product(self, count: int) -> Launch:
        """`product` as a pointwise convolution by local-memory tiles, with tile elements as groups."""
        g = self.tiles.groups
        tile = product_tile(self.tiles, self.device)
        (rows, columns), group = tile_size(tile), group_size(tile)
        turns = ceil_div(g.in_blocks * g.pack, slab(tile))
        args: Args = {"x": self._v, "weights": transformed_panels(self.node, g, self.params["F"], tile)}
        args |= {"y": self._m, "positions": count, "groups": g.count, "turns": turns, "ib": g.in_blocks}
        args |= {"ob": g.out_blocks, "m": g.count * g.out_blocks * g.pack, **_one_row(count)}
        grid = (
            symbolic_max([group, ceil_div(count, rows) * group]),
            g.count * ceil_div(g.out_blocks * g.pack, columns),
            1,
        )
        defines = {"PACK": g.pack, **tile_defines(tile), "HAS_BIAS": 0, "MASK": 0, "POINTWISE": 1, "WIDE": 0, **_POINT}
        return Launch("conv_local", args, grid, (group, 1, 1), defines, source="conv/implicit_gemm_local.cl")

    def output(self, first: int, count: int) -> Launch:
        """Transforms the products of `count` tiles, starting at tile `first`, to y, with bias and epilogue."""
        win, t, bias, y = Window.of(self.node), self.tiles, self.node.get(2), self.node.y
        epilogue = packed_epilogue(self.node, self.device)
        th, tw = t.sides
        args: Args = {"m": self._m, "y": y, "t0": first, "count": count, "th": th, "tw": tw}
        args |= {} if bias is None else {"bias": bias_weight(bias, t.groups.pack, self.node.x.type.storage)}
        args |= {"blocks": t.out_blocks, "channels": y.shape[1], "oh": win.out[1], "ow": win.out[2], **epilogue.args}
        return self._transform("winograd_output", args, count, t.out_blocks, epilogue.prelude)

    def _transform(self, entry: str, args: Mapping[str, Arg], count: int, blocks: int, prelude: str = "") -> Launch:
        pack, span = self.tiles.groups.pack, find_span(count, blocks, self.device)
        defines = {"F": self.params["F"], "PACK": pack, "STORAGE": STORAGE[self.node.x.type.storage]}
        defines |= {"HAS_BIAS": self.node.get(2) is not None, "MASK": self.node.y.shape[1] % pack != 0}
        group = (1, 1) if self.device.is_cpu else None
        grid = (symbolic_max([1, ceil_div(count, span)]), blocks)
        source = "conv/winograd_gpu.cl" if supports_local_tiles(self.device) else ""
        return Launch(entry, {**args, "span": span}, grid, group, defines, prelude, source)


def _one_row(count: int) -> Args:
    """Sizes of an image of one row of `count` positions, without padding."""
    return {
        "iw": count,
        "ow": count,
        **dict.fromkeys(("id", "ih", "od", "oh"), 1),
        **dict.fromkeys(("pd", "ph", "pw"), 0),
    }


def transformed_filters(node: Node, groups: Groups, f: int, tile: int) -> Weight:
    """The weights of `node` as u = G g G^T, packed for tiles of `tile` output blocks."""

    def transform(data: Array) -> Array:
        return pack_filters(transform_filters(data, f), groups, tile, DType.FLOAT32)

    form = f"winograd {f} {groups.count}x{groups.merged} groups i{groups.in_pack} o{groups.pack} tile {tile}"
    return Weight(node.input(1), form, transform)


def transformed_panels(node: Node, groups: Groups, f: int, params: Params) -> Weight:
    """The weights of `node` as u = G g G^T, in the panels of fma/local_memory_tile.cl."""
    form, panels = filter_panels(groups, 1, params, DType.FLOAT32)
    return Weight(node.input(1), f"winograd {f} {form}", lambda data: panels(transform_filters(data, f)))


def transform_filters(data: Array, f: int) -> Array:
    """Filters [M, C / groups, 3, 3] as u = G g G^T for `f` x `f` outputs: [elements * M, C / groups, 1]."""
    g = FILTER_TRANSFORM[f]
    kernel = data.reshape(*data.shape[:2], 3, 3)
    elements = page_empty((len(g), len(g), *data.shape[:2]), np.float32)
    for first in range(0, len(kernel), _ROWS):  # in parts, because intermediate sums are twice as wide as the result
        part = slice(first, first + _ROWS)
        elements[:, :, part] = np.einsum("ai,mcij,bj->abmc", g, kernel[part].astype(np.float64), g)
    return elements.reshape(-1, data.shape[1], 1)
