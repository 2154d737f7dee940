"""Split-k direct convolution for GPUs: work-items split the sums of images too small to fill a device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ...cost.cost_tables import SplitConv
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import packed_epilogue
from ..kernel import Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .pack_filters import ConvProblem, Groups, PackedConv, bias_weight, pack_filters

_ACCUMULATORS = 64  # accumulators of a work-item, so that enough work-items fit a compute unit
_MOST_ITEMS = 256  # work-items of a group; NVIDIA's driver reports this limit even if the kernel requires more


@register
class ConvSplitK(PackedConv):
    """NCHWc to NCHWc; SPLIT work-items split the taps and channels of TP positions of TB output blocks."""

    space = {"LX": (32, 16, 64), "SPLIT": (1, 2, 4, 8), "TP": (1, 2, 4), "TB": (1, 2, 4), "UNROLL": (4, 1, 2)}

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        if p.device.is_cpu:
            return "a CPU's cores need no more work-items than there are output tiles"
        if node.as_(Convolution).group == node.x.shape[1]:
            return "one channel to a group leaves nothing to share out"
        return p.packed_refusal or p.merge_refusal(p.block, p.block)

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return _tile_illegal(params, p.block, p.device)

    def defaults(self, p: ConvProblem) -> Params:
        return _find_tile(p.groups(p.block, p.block), p.positions, math.prod(p.window.kernel), p.device)

    def untuned_cycles(self, p: ConvProblem) -> float:
        """Cycles from launch to launch with untuned parameters, scaled from the estimate that ranks parameters."""
        c, groups, taps = SplitConv.of(p.device), p.groups(p.block, p.block), math.prod(p.window.kernel)
        return c.begin_and_end + c.slower * split_cycles(groups, p.positions, taps, self.defaults(p), p.device)

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        waste = p.groups(p.block, p.block).waste
        return max(
            cost.flops * waste / (p.device.peak_flops * self.share(p.device)), cost.bytes / p.device.bandwidth
        ) + (p.device.launch_s)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, bias, y, win = node.x, node.get(2), node.y, p.window
        storage, g, positions = y.type.storage, p.groups(p.block, p.block), p.positions
        lx, split, tb = params["LX"], params["SPLIT"], params["TB"]

        form = f"filter taps first {g.count}x{g.merged} groups i{g.in_pack} o{g.pack} tile {tb} {storage}"
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "weights": Weight(node.input(1), form, lambda data: split_weights(data, g, tb, storage))}
        args |= {"y": y, "positions": positions}
        args |= {} if bias is None else {"bias": bias_weight(bias, g.pack, storage)}
        args |= {"groups": g.count, "ib": g.in_blocks, "ob": g.out_blocks, "m": y.shape[1]}
        args |= {**win.args(), **epilogue.args}
        defines = win.defines() | dict(params) | {"PACK": g.pack, "STORAGE": STORAGE[storage]}
        defines |= {"HAS_BIAS": bias is not None, "MASK": y.shape[1] % g.pack != 0}
        grid = (ceil_div(positions, lx * params["TP"]) * lx, g.count * ceil_div(g.out_blocks, tb) * split)
        return [Launch("conv_split", args, grid, (lx, split), defines, epilogue.prelude)]


def _tile_illegal(params: Params, pack: int, device: DeviceInfo) -> str | None:
    """The reason why a work-group cannot run tiles of `params` in blocks of `pack` channels, or None."""
    items, tile = params["LX"] * params["SPLIT"], params["TP"] * params["TB"]
    if items > min(_MOST_ITEMS, device.max_work_group_size) or params["SPLIT"] > device.max_work_item_sizes[1]:
        return f"the group exceeds {min(_MOST_ITEMS, device.max_work_group_size)} work-items"
    if tile * pack > _ACCUMULATORS:
        return f"the tile exceeds {_ACCUMULATORS} accumulators"
    if params["SPLIT"] > 1 and items * tile * pack * 4 > device.local_mem:
        return f"the partial sums do not fit the {device.local_mem} bytes of local memory"
    return None


@lru_cache(maxsize=1024)
def _find_tile(groups: Groups, positions: int, taps: int, device: DeviceInfo) -> Params:
    """The tile with the least estimated cycles, in which unrolled iterations do not count; cached."""
    space = dict(ConvSplitK.space)
    unroll = max(space.pop("UNROLL"))
    if not device.local_mem_dedicated:  # partial sums would go through global memory
        space["SPLIT"] = (1,)
    points = (
        dict(zip(space, values, strict=True)) | {"UNROLL": unroll} for values in itertools.product(*space.values())
    )
    legal = (point for point in points if _tile_illegal(point, groups.pack, device) is None)
    return min(legal, key=lambda point: split_cycles(groups, positions, taps, point, device))


def split_cycles(groups: Groups, positions: Any, taps: int, params: Params, device: DeviceInfo) -> float:
    """Estimated cycles: the maximum of arithmetic, cache and latency time, with work-groups distributed evenly."""
    c, pack = SplitConv.of(device), groups.pack
    lx, split, tp, tb = params["LX"], params["SPLIT"], params["TP"], params["TB"]
    tiles = ceil_div(positions, lx * tp) * groups.count * ceil_div(groups.out_blocks, tb)
    per_unit = ceil_div(tiles, device.compute_units)
    wave = max(device.wave_size, 16)
    waves = ceil_div(lx * split, wave)
    terms = ceil_div(taps * groups.in_blocks, split)
    arithmetic = tp * tb * pack * pack * wave / device.lanes
    loads = c.load * tp + c.shared_load * pack * tb * ceil_div(wave, lx)
    busy = max(arithmetic, loads) * terms * waves * per_unit
    resident = max(1, 65536 // (waves * wave * (tp * tb * pack + 40)))
    waiting = (c.term + c.weight * tb) * terms * ceil_div(per_unit, resident)
    return float(max(busy, waiting) + c.mixed * (busy + waiting) + (c.reduce if split > 1 else 0.0))


def whole_sum_points(pack: int, device: DeviceInfo) -> Iterator[Params]:
    """Parameters whose work-items own whole sums, which need no local memory, and fit `device`."""
    space = ConvSplitK.space
    for lx, tp, tb in itertools.product(space["LX"], space["TP"], space["TB"]):
        if lx <= min(_MOST_ITEMS, device.max_work_group_size) and tp * tb * pack <= _ACCUMULATORS:
            yield {"LX": lx, "SPLIT": 1, "TP": tp, "TB": tb, "UNROLL": space["UNROLL"][0]}


def split_weights(data: Array, groups: Groups, tile: int, storage: DType) -> Array:
    """Filters in the order of conv/direct_split_k.cl: taps before blocks of input channels."""
    return np.ascontiguousarray(pack_filters(data, groups, tile, storage).swapaxes(2, 3))


def seconds_relative_to_split_k(p: ConvProblem, cost: Cost, cycles: float) -> float:
    """Expected seconds of another GPU kernel of `cycles`, from ConvSplitK's time and the ratio of cycles.

    The cycle models rank the two kernels. ConvSplitK's time is a share of the device's peak, as all other kernels'
    times are, so that times are comparable.
    """
    split, device = ConvSplitK(), p.device
    ratio = cycles / split.untuned_cycles(p)
    if device.prefers_images:  # whether buffers beat images was not measured; tuning decides
        ratio = max(ratio, 1.01)
    seconds = (split.seconds(p, cost) - device.launch_s) * ratio
    moved = cost.bytes / device.bandwidth * (0.99 + 0.01 * ratio)  # equal for all tiles: breaks ties only
    return max(seconds, moved) + device.launch_s
