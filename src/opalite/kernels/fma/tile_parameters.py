"""Register tiles of plain multiply-adds (fma/local_memory_tile.cl): parameters, cost model, packed weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...cost.cost_tables import SharedTile
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import hint_of
from ..kernel import Space
from ..launch import Array, Defines, ceil_div

SPACE: Space = {
    "RY": (16, 8, 32, 4),
    "CX": (16, 8, 4, 32),
    "TM": (8, 4),
    "TN": (8, 4),
    "BK": (16, 8, 32, 4),
    "SPLIT": (1, 2, 4, 8),
    "BUFFERS": (2, 1),
    "PARTS": (1, 2, 4, 8),
    "UNROLL": (8, 16, 4),
}
"""See fma/local_memory_tile.cl."""

MOST_ITEMS = 256  # work-items of a group; NVIDIA's driver reports this limit even if the kernel requires more
LEAST_ITEMS = 32
_VECTOR = 4
_WAVE = 32
_REGISTERS = 65536  # of a compute unit
_LOCAL = 200 << 10  # bytes of local memory that the work-groups of a compute unit share

_SHAPES = (
    # RY CX TM TN BK SPLIT BUFFERS UNROLL, PARTS
    ((16, 16, 8, 8, 16, 1, 1, 8), (1,)),
    ((16, 8, 8, 8, 16, 1, 2, 8), (1,)),
    ((8, 16, 8, 8, 16, 1, 2, 8), (1,)),
    ((8, 8, 8, 8, 8, 2, 2, 8), (1, 2, 4, 8)),
    ((8, 8, 4, 8, 8, 2, 2, 8), (1, 2, 4)),
    ((8, 8, 4, 8, 8, 4, 2, 8), (1,)),
    ((8, 8, 4, 8, 16, 4, 1, 16), (1, 2, 4, 8)),
    ((8, 8, 8, 4, 16, 4, 1, 16), (1, 2, 4, 8)),
    ((8, 16, 4, 4, 16, 2, 2, 16), (1,)),
    ((8, 8, 8, 8, 16, 1, 2, 8), (1,)),
    ((16, 16, 4, 4, 16, 1, 2, 16), (1,)),
    ((8, 8, 4, 4, 16, 1, 2, 16), (1,)),
    ((4, 8, 4, 4, 16, 8, 1, 16), (1, 2, 4, 8)),  # few rows
    ((8, 4, 4, 4, 16, 8, 1, 16), (1, 2, 4, 8)),  # few columns
    ((8, 8, 4, 4, 8, 1, 1, 8), (1,)),  # for local memory of 4 KiB
)
"""Tiles that are considered untuned."""


class GemmSize(NamedTuple):
    """`batches` times `rows` x `columns` sums of `terms` products.

    operands: number of epilogue operands of the output's size.
    """

    rows: int
    columns: int
    terms: int
    batches: int = 1
    operands: int = 0


def tile_size(params: Mapping[str, int]) -> tuple[int, int]:
    """(rows, columns) of a work-group."""
    return params["RY"] * params["TM"], params["CX"] * params["TN"]


def slab(params: Mapping[str, int]) -> int:
    """Terms of a tile in local memory at once."""
    return params["BK"] * params["SPLIT"]


def group_size(params: Mapping[str, int]) -> int:
    """Work-items of a work-group."""
    return params["RY"] * params["CX"] * params["SPLIT"]


def local_bytes(params: Mapping[str, int], element: int) -> int:
    """Local memory of a work-group for sums of `element` bytes, with padding on both sides."""
    rows, columns = tile_size(params)
    tiles = params["BUFFERS"] * slab(params) * (rows + columns + 2 * _VECTOR)
    sums = params["SPLIT"] * rows * columns if params["SPLIT"] > 1 else 0
    return max(tiles, sums) * element


def tile_illegal(params: Mapping[str, int], device: DeviceInfo, element: int = 4) -> str | None:
    """The reason why a work-group cannot run tiles of `params` for sums of `element` bytes, or None."""
    items, most = group_size(params), min(MOST_ITEMS, device.max_work_group_size, device.max_work_item_sizes[0])
    if not LEAST_ITEMS <= items <= most:
        return f"work-groups have {LEAST_ITEMS} to {most} work-items, here {items}"
    if local_bytes(params, element) > device.local_mem:
        return f"the tiles do not fit the {device.local_mem} bytes of local memory"
    rows, columns = tile_size(params)
    if min(rows, columns) * slab(params) < _VECTOR * items // 2:
        return "a slab has too few elements for every work-item to bring some"
    return None


def legal_tiles(device: DeviceInfo, element: int = 4) -> Iterator[dict[str, int]]:
    """Tiles worth considering: with split terms or parts only on devices where they were measured to pay."""
    c = SharedTile.of(device)
    for (*values, unroll), choices in _SHAPES:
        for parts in choices:
            params = dict(zip(SPACE, (*values, parts, unroll), strict=True))
            known = params["SPLIT"] <= c.most_shares and parts <= c.most_parts
            if known and tile_illegal(params, device, element) is None:
                yield params


@lru_cache(maxsize=1024)
def find_tile(sums: GemmSize, device: DeviceInfo, element: int = 4, *, whole: bool = False) -> Mapping[str, int]:
    """The tile with the least estimated cycles for `sums` of `element` bytes; cached.

    whole: no parts, whose sums a second launch would add.
    """
    tiles = (p for p in legal_tiles(device, element) if not whole or p["PARTS"] == 1)
    return min(tiles, key=lambda p: tile_cycles(p, sums, device))


def tile_cycles(params: Mapping[str, int], sums: GemmSize, device: DeviceInfo) -> float:
    """Estimated clock cycles from launch to launch.

    Work-groups are distributed over compute units. Those that fit at once overlap. A slab takes the maximum of
    arithmetic, local memory and L2 cache time.
    """
    c, (rows, columns, terms, batches, operands) = SharedTile.of(device), hint_of(tuple(sums))
    (bm, bn), items = tile_size(params), group_size(params)
    waves, depth, parts = ceil_div(items, _WAVE), slab(params), params["PARTS"]
    groups = ceil_div(rows, bm) * ceil_div(columns, bn) * batches * parts
    turns = ceil_div(ceil_div(terms, depth), parts)
    schedulers = max(1, device.lanes // _WAVE)
    multiply = params["BK"] * params["TM"] * params["TN"] * _WAVE * schedulers / device.lanes
    reads = c.read * waves * params["BK"] * (params["TM"] + params["TN"]) / _VECTOR
    copies = c.copy * (bm + bn) * depth / _VECTOR / _WAVE
    fetched = (bm + bn) * depth * 4 / c.l2_bytes

    def busy(together: int) -> float:
        """One slab of each of so many groups that a compute unit has at once."""
        arithmetic = multiply * ceil_div(together * waves, schedulers)
        return max(arithmetic + c.mixed * reads * together, reads * together, fetched * together) + copies * together

    alone = c.turn + (multiply + reads / waves) * c.alone
    resident = max(1, min(2048 // items, _REGISTERS // (items * _registers(params)), _LOCAL // local_bytes(params, 4)))
    full, last = divmod(ceil_div(groups, device.compute_units), resident)
    spent = full * max(busy(resident), alone) + (max(busy(last), alone) if last else 0)
    store = c.store * (1 if resident == 1 else c.hidden) * (1 + operands)
    cycles = c.begin_and_end + turns * spent + store * bm * bn * ceil_div(groups, device.compute_units)
    if parts > 1:
        cycles += (
            c.second * device.launch_s / 5e-6 + c.add * (parts + 1) * rows * columns * batches / device.compute_units
        )
    return float(cycles)


def _registers(params: Mapping[str, int]) -> int:
    """Registers of a work-item: accumulators, their operands, the next slab, addresses."""
    (bm, bn), items = tile_size(params), group_size(params)
    following = (bm + bn) * slab(params) // items
    return params["TM"] * params["TN"] + params["TM"] + params["TN"] + following + 48


def full_operands(node: Node) -> int:
    """Number of epilogue operands of the output's size."""
    count = hint_of(node.y.type.count)
    return sum(v is not None and hint_of(v.type.count) == count for v in node.inputs[node.op.arity :])


def tile_defines(params: Mapping[str, int]) -> Defines:
    """The defines of fma/local_memory_tile.cl."""
    return {name: params[name] for name in SPACE}


def to_panels(params: Mapping[str, int], storage: DType) -> tuple[str, Callable[[Array], Array]]:
    """(form, function) that packs [..., terms, columns] as [..., panels, terms in whole slabs, BN], zero-padded."""
    columns, depth = tile_size(params)[1], slab(params)

    def fn(data: Array) -> Array:
        *batch, k, n = data.shape
        out = np.zeros((*batch, ceil_div(n, columns), ceil_div(k, depth) * depth, columns), storage.np)
        for panel in range(out.shape[-3]):
            part = data[..., panel * columns : (panel + 1) * columns]
            out[..., panel, :k, : part.shape[-1]] = part
        return out

    return f"columns {columns} slabs {depth} {storage}", fn
