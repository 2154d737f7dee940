"""Tiles of mma kernels with operands staged in local memory (mma/staged_tile.cl): parameters and cost model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from ...cost.cost_tables import StagedTile
from ...ir.device.device_info import DeviceInfo
from ..kernel import Space
from ..launch import Array, Defines, ceil_div
from .mma_tile import COLUMNS, MOST_ITEMS, QUADS, ROWS, WAVE, pack_weights

SLAB = 8  # quads of four channels that two instructions take

SPACE: Space = {
    "WM": (4, 2, 1),
    "WN": (4, 2, 1, 3),
    "PW": (2, 1, 4),
    "NW": (2, 1, 4),
    "SPLIT": (1, 2, 4),
    "SL": (1, 2, 4),
    "STAGES": (3, 2, 4),
}

_SCHEDULERS = 4  # matrix units of a multiprocessor; fewer warps leave some idle
_REGISTERS = 65536
_LOCAL = 208 << 10  # bytes of local memory that the work-groups of a multiprocessor share


def tile_size(params: Mapping[str, int]) -> tuple[int, int]:
    """(positions, channels) of a work-group."""
    return ROWS * params["WM"] * params["PW"], COLUMNS * params["WN"] * params["NW"]


def group_size(params: Mapping[str, int]) -> int:
    """Work-items of a work-group."""
    return WAVE * params["PW"] * params["NW"] * params["SPLIT"]


def stage_bytes(params: Mapping[str, int]) -> int:
    """Local memory of all stages."""
    return sum(tile_size(params)) * SLAB * 8 * params["SL"] * params["STAGES"]


def tile_illegal(params: Mapping[str, int], device: DeviceInfo) -> str | None:
    """The reason why a work-group cannot run tiles of `params`, or None."""
    items, (rows, columns) = group_size(params), tile_size(params)
    if items > MOST_ITEMS:
        return f"the driver runs at most {MOST_ITEMS} work-items of this kernel in a group"
    if params["SL"] % params["SPLIT"]:
        return "warps that share a stage take whole slabs of it"
    if params["STAGES"] < 2:
        return "one stage is multiplied while another arrives"
    if stage_bytes(params) > device.local_mem:
        return f"the stages do not fit the {device.local_mem} bytes of local memory"
    if params["SPLIT"] > 1 and rows * columns * 4 * params["SPLIT"] > stage_bytes(params):
        return "the partial sums do not fit the stages' memory"
    if rows * SLAB * params["SL"] < 2 * items:
        return "a stage has too few elements for every work-item to copy some"
    return None


def legal_tiles(device: DeviceInfo) -> Iterator[dict[str, int]]:
    """Tiles worth considering: at least four warps; large groups have two tiles per axis and warp."""
    for wm, wn, warps_p, warps_n, split, slabs, stages in _SHAPES:
        params = dict(zip(SPACE, (wm, wn, warps_p, warps_n, split, slabs, stages), strict=True))
        if tile_illegal(params, device) is None:
            yield params


_SHAPES = (
    # WM WN PW NW SPLIT SL STAGES
    (4, 4, 2, 2, 1, 1, 3),
    (2, 4, 2, 2, 1, 1, 3),  # among tiles of equal estimate, wide ones were faster
    (2, 4, 2, 2, 1, 1, 4),
    (4, 2, 2, 4, 1, 1, 3),
    (4, 4, 4, 1, 1, 1, 2),
    (4, 2, 2, 2, 1, 1, 4),
    (2, 4, 4, 1, 1, 1, 4),
    (4, 2, 4, 1, 1, 1, 2),
    (2, 2, 4, 1, 1, 1, 4),
    (4, 1, 4, 1, 1, 1, 2),
    (2, 1, 4, 1, 1, 1, 4),
    (2, 2, 2, 2, 1, 2, 3),
    (2, 2, 4, 1, 1, 2, 2),
    (2, 2, 2, 1, 2, 2, 4),
    (2, 2, 1, 2, 2, 2, 4),
    (2, 1, 2, 2, 2, 2, 4),
    (1, 2, 2, 2, 2, 2, 4),
    (2, 2, 1, 1, 4, 4, 3),
    (1, 2, 2, 1, 4, 4, 3),
    (2, 1, 1, 2, 4, 4, 3),
    (1, 2, 1, 2, 2, 2, 4),
    (1, 1, 2, 2, 2, 4, 3),
    (2, 3, 2, 2, 1, 1, 4),
    (2, 3, 2, 2, 1, 2, 2),
    (1, 3, 4, 2, 1, 1, 4),
    (2, 3, 2, 1, 2, 2, 3),
    (1, 3, 2, 1, 2, 2, 4),
    (1, 3, 2, 1, 4, 4, 2),
    (2, 3, 1, 1, 4, 4, 2),
    (1, 4, 4, 2, 1, 1, 4),
    (1, 4, 4, 1, 2, 2, 3),
    (1, 4, 2, 1, 4, 4, 2),
)


@lru_cache(maxsize=1024)
def find_tile(
    positions: int, channels: int, quads: int, device: DeviceInfo, *, paired: bool = False
) -> Mapping[str, int]:
    """The tile with the least estimated cycles for `positions` x `channels` results of `quads` x 4 terms; cached."""
    return min(legal_tiles(device), key=lambda p: tile_cycles(p, positions, channels, quads, device, paired=paired))


def tile_cycles(
    params: Mapping[str, int], positions: int, channels: int, quads: int, device: DeviceInfo, *, paired: bool = False
) -> float:
    """Estimated clock cycles from launch to launch.

    Work-groups are distributed over multiprocessors. Those that fit at once overlap their stages. A stage takes the
    maximum of matrix-unit time, cache time and the instructions that copy the next stage. `paired` copies move 16 bytes
    of x instead of 8.
    """
    c = StagedTile.of(device)
    (rows, columns), warps = tile_size(params), group_size(params) // WAVE
    groups = ceil_div(positions, rows) * ceil_div(channels, columns)
    turns = ceil_div(quads, SLAB * params["SL"])
    multiply = c.multiply * 2 * params["SL"] * (rows // ROWS) * (columns // COLUMNS)
    copied = (rows + columns) * SLAB * 8 * params["SL"]
    read = warps * (params["WM"] + params["WN"]) * ROWS * SLAB * 8 * params["SL"] / params["SPLIT"]
    copies = c.copy * (rows / (2 if paired else 1) + columns / 2) * SLAB * params["SL"] / WAVE
    busy = max(multiply, (read + copied) / c.local_bytes, copied / c.l2_bytes) + copies
    alone = c.alone * (multiply + copies) * _SCHEDULERS / min(_SCHEDULERS, warps)
    turn = groups / device.compute_units
    per_unit = (1 - c.even) * ceil_div(groups, device.compute_units) + c.even * max(1.0, turn)
    full, last = divmod(per_unit, _resident(params))
    waves = full * max(_resident(params) * busy, alone) + (max(last * busy, alone) if last else 0)
    sums = c.partial * params["SPLIT"] if params["SPLIT"] > 1 else 0
    return c.begin_and_end + turns * waves + (c.store + sums) * rows * columns * per_unit


def _resident(params: Mapping[str, int]) -> int:
    """Work-groups that a multiprocessor holds at once."""
    warps = group_size(params) // WAVE
    registers = _registers(params) * warps * WAVE
    return max(1, min(64 // warps, _REGISTERS // registers, _LOCAL // (stage_bytes(params) + 1024)))


def _registers(params: Mapping[str, int]) -> int:
    """Registers of a work-item: accumulators, a slab of x, two weight vectors, addresses."""
    return 8 * params["WM"] * params["WN"] + 8 * params["WM"] + 8 + 56


def pack_stages(quads: Array, slabs: int, paired: bool = False) -> Array:
    """[channels, input quads, 4] in the order of `pack_weights`, zero-padded to whole stages."""
    return pack_weights(quads, ceil_div(quads.shape[1], SLAB * slabs) * slabs * SLAB // QUADS, paired)


def tile_defines(params: Mapping[str, int]) -> Defines:
    """The defines of mma/staged_tile.cl."""
    return {name: params[name] for name in SPACE} | {"KEEP": params["STAGES"] - 2}


def tile_grid(params: Mapping[str, int], positions: int, channels: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(grid, work-group) for results of `positions` x `channels`."""
    (rows, columns), group = tile_size(params), group_size(params)
    return (ceil_div(positions, rows) * group, ceil_div(channels, columns)), (group, 1)
