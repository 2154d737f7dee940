"""Kernels that sum products of 8-bit integers four at a time (dot4.cl): what they share, and which tile to take."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..ir.device import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Value
from ..ops.base import Cost
from .base import Array, ceil_div

WORD = 4  # terms of one instruction
_DOT = {"": 0, "khr": 1, "ptx": 2}
_INSTRUCTIONS = 64.0  # that a compute unit starts each clock, counted by work-item
_WAVES = 2.0  # loads of a wave that a compute unit's first-level cache serves each clock, in 64 bytes
_LATENCY = 120.0  # clocks of one turn of the innermost loop that nothing hides
_BEGIN_AND_END = 3000.0  # clocks from a launch to the first loads, and from the last stores to the next
_RESIDENT = 2048  # work-items that a compute unit holds


def dot_defines(device: DeviceInfo, a: DType, b: DType) -> dict[str, Any]:
    """The defines of dot4.cl for operands of types `a` and `b`."""
    return {"DOT": _DOT[device.dot_product], "A_SIGNED": a is DType.INT8, "B_SIGNED": b is DType.INT8}


def dot_seconds(device: DeviceInfo, cost: Cost, share: float) -> float:
    """Estimated time of a kernel that reaches `share` of the peak: four multiply-adds in place of one."""
    rate = device.peak_flops * share * (2.0 if device.dot_product else 0.2)
    return max(cost.flops / rate, cost.bytes / device.bandwidth) + device.launch_s


def tile_cycles(
    rows: int, columns: int, turns: int, tile: Mapping[str, int], loads: float, device: DeviceInfo
) -> float:
    """Estimated clocks of work-groups that share out `rows` x `columns` blocks of four sums of `turns` words.

    tile: `rows` and `columns` of a work-item, `across` and `down` work-items of a group, `split`. loads: 64 bytes that
    a wave asks its cache for in a turn.
    """
    items = tile["across"] * tile["down"] * tile["split"]
    groups = ceil_div(rows, tile["rows"] * tile["down"]) * ceil_div(columns, tile["columns"] * tile["across"])
    waves = ceil_div(groups, device.compute_units)
    resident = max(1, min(_RESIDENT, 40_000 // (8 + 6 * tile["rows"] * tile["columns"])) // items)
    steps = ceil_div(turns, tile["split"])
    each = max(tile["rows"] * tile["columns"] * WORD * 32 / _INSTRUCTIONS, loads / _WAVES)
    busy = steps * each * items / 32 * waves
    waiting = ceil_div(steps, 4) * _LATENCY * 4 * ceil_div(waves, resident)
    return _BEGIN_AND_END + max(busy, waiting) + 0.1 * (busy + waiting) + 200.0 * (tile["split"] > 1)


def least(points: Iterable[tuple[float, dict[str, int]]]) -> dict[str, int]:
    """The parameters with the least estimate, the first of equals."""
    return min(points, key=lambda p: p[0])[1]


def words(data: Array, axis: int) -> Array:
    """Bytes with `axis` in words of four, padded with zeros, the words last: uint32[..., ceil(size / 4)]."""
    moved = np.moveaxis(data, axis, -1)
    padded = np.zeros((*moved.shape[:-1], ceil_div(moved.shape[-1], WORD) * WORD), np.uint8)
    padded[..., : moved.shape[-1]] = moved.astype(data.dtype).view(np.uint8)
    return padded.view("<u4")


def digest(v: Value | None) -> str:
    """Names the contents of a small constant, for the forms of weights that depend on it."""
    if v is None or v.data is None:
        return "-"
    return hashlib.sha256(np.ascontiguousarray(v.data).tobytes()).hexdigest()[:12]
