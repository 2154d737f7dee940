"""Base of GPU kernels with 4-way int8 dot products (dot4.cl): defines, tiles, cost model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from ...cost.cost_tables import IntegerDot
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ops.operator import Cost
from ..kernel import Kernel, Params, Problem
from ..launch import Array, Defines, ceil_div
from ..launch_workgroups import group_refusal

WORD = 4  # terms of one instruction
PACK = 4  # sums of a block
_MOST_BLOCKS = 16  # most accumulators of a work-item
_MOST_ITEMS = 256  # of a group
_DOT = {"": 0, "khr": 1, "ptx": 2, "arm": 3, "qcom": 4}
_RESIDENT = 2048  # work-items that a compute unit holds


def dot_defines(device: DeviceInfo, a: DType, b: DType) -> Defines:
    """The defines of integer/dot4.cl for operands of types `a` and `b`."""
    return {"DOT": _DOT[device.dot_product], "A_SIGNED": a is DType.INT8, "B_SIGNED": b is DType.INT8}


def dot_seconds(device: DeviceInfo, cost: Cost, share: float) -> float:
    """Estimated seconds at `share` of the peak, four multiply-adds per instruction if the device has dot products."""
    c = IntegerDot.of(device)
    rate = device.peak_flops * share * (c.gain if device.dot_product else c.loss)
    return max(cost.flops / rate, cost.bytes / device.bandwidth) + device.launch_s


def tile_cycles(
    rows: int, columns: int, turns: int, tile: Mapping[str, int], loads: float, device: DeviceInfo
) -> float:
    """Estimated cycles of work-groups that compute `rows` x `columns` blocks of four sums of `turns` words.

    tile: `rows` and `columns` of a work-item, `across` and `down` work-items of a group, `split`. loads: 64-byte cache
    accesses of a wave per iteration.
    """
    c = IntegerDot.of(device)
    items = tile["across"] * tile["down"] * tile["split"]
    groups = ceil_div(rows, tile["rows"] * tile["down"]) * ceil_div(columns, tile["columns"] * tile["across"])
    waves = ceil_div(groups, device.compute_units)
    resident = max(1, min(_RESIDENT, 40_000 // (8 + 6 * tile["rows"] * tile["columns"])) // items)
    steps = ceil_div(turns, tile["split"])
    each = max(tile["rows"] * tile["columns"] * WORD * 32 / c.instructions, loads / c.waves)
    wave = max(device.wave_size, device.full_wave, 32)
    busy = steps * each * ceil_div(items, wave) * wave / 32 * waves
    waiting = ceil_div(steps, 4) * c.latency * 4 * ceil_div(waves, resident)
    return c.begin_and_end + max(busy, waiting) + c.mixed * (busy + waiting) + c.reduce * (tile["split"] > 1)


class TiledDot4(Kernel):
    """Base class: work-items sum tiles of rows by blocks of four columns; SPLIT work-items split the terms.

    block_axes: parameter names for rows and column blocks per work-item. group_axes: for work-items of a group along
    its first and second axis. tiles: values of these four to choose from untuned.
    """

    block_axes: tuple[str, str]
    group_axes: tuple[str, str]
    tiles: tuple[tuple[int, int, int, int], ...]

    def cycles(self, node: Node, params: Params, device: DeviceInfo) -> float | None:
        """Estimated cycles of legal `params` (`tile_cycles`); None if they are not worth considering."""
        raise NotImplementedError

    def group_of(self, params: Params) -> tuple[int, int, int]:
        """Sizes of a work-group."""
        return params[self.group_axes[0]], params[self.group_axes[1]], params["SPLIT"]

    def illegal(self, p: Problem, params: Params) -> str | None:
        across, down, split = self.group_of(params)
        blocks = params[self.block_axes[0]] * params[self.block_axes[1]]
        if blocks > _MOST_BLOCKS:
            return "the sums exceed the registers"
        if 4 * PACK * blocks * across * down * (split - 1) > p.device.local_mem:
            return f"the partial sums do not fit the {p.device.local_mem} bytes of local memory"
        if across > p.device.max_work_item_sizes[0] or down > p.device.max_work_item_sizes[1]:
            return "the work-group exceeds the device's along one axis"
        items = across * down * split
        return (
            f"a group of more than {_MOST_ITEMS} work-items" if items > _MOST_ITEMS else group_refusal(items, p.device)
        )

    def defaults(self, p: Problem) -> Params:
        found: list[tuple[float, Params]] = []
        for tile in self.tiles:
            for split in self.space["SPLIT"]:
                params = {**dict(zip((*self.block_axes, *self.group_axes), tile, strict=True)), "SPLIT": split}
                if self.illegal(p, params) is None:
                    cycles = self.cycles(p.node, params, p.device)
                    found += [] if cycles is None else [(cycles, params)]
        return min(found, key=lambda f: f[0])[1] if found else super().defaults(p)

    def seconds(self, p: Problem, cost: Cost) -> float:
        return dot_seconds(p.device, cost, IntegerDot.of(p.device).tiled)


def words(data: Array, axis: int) -> Array:
    """Bytes with `axis` packed to words of four, zero-padded, words last: uint32[..., ceil(size / 4)]."""
    moved = np.moveaxis(data, axis, -1)
    padded = np.zeros((*moved.shape[:-1], ceil_div(moved.shape[-1], WORD) * WORD), np.uint8)
    padded[..., : moved.shape[-1]] = moved.astype(data.dtype).view(np.uint8)
    return padded.view("<u4")


def digest(v: Value | None) -> str:
    """A digest of a small constant, for weight forms that depend on its contents."""
    if v is None or v.data is None:
        return "-"
    return hashlib.sha256(np.ascontiguousarray(v.data).tobytes()).hexdigest()[:12]
