"""Tiles of mma kernels with operands in registers (mma/mma_tile.cl): parameters, packed weights, cost model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ...cost.cost_tables import DirectTile
from ...ir.device.device_family import PTX_MMA
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ..kernel import Space
from ..launch import Array, Defines, ceil_div

ROWS = 16  # positions of a tile
COLUMNS = 16  # output channels of a tile
QUADS = 4  # groups of four input channels in one step
WAVE = 32
MOST_ITEMS = 256  # work-group limit that the driver reports for these kernels, even if they require more

SPACE: Space = {
    "WM": (1, 2, 4),
    "WN": (1, 2, 4, 3),
    "PW": (1, 2, 4),
    "NW": (1, 2, 4),
    "SPLIT": (1, 2, 4, 8),
    "STAGES": (2, 4),
}

_REGISTERS = 65536


def mma_refusal(node: Node, device: DeviceInfo) -> str | None:
    """The reason why no matrix-unit kernel takes `node`, whatever its shape, or None."""
    if PTX_MMA not in device.quirks:
        return "the driver builds no inline PTX with mma.sync"
    if node.y.type.storage is not DType.FLOAT16:
        return f"matrix units multiply halves, here {node.y.type.storage} is stored"
    if not node.input(1).is_const:
        return "input 1 is not constant, so it cannot be packed ahead of time"
    if not node.input(1).type.count:
        return "input 1 is empty: there is no tile of no terms"
    return None


def tile_illegal(params: Mapping[str, int], device: DeviceInfo) -> str | None:
    """The reason why a work-group cannot hold tiles of `params`, or None."""
    area, warps = params["WM"] * params["WN"], params["PW"] * params["NW"] * params["SPLIT"]
    if warps * WAVE > MOST_ITEMS:
        return f"the driver runs at most {MOST_ITEMS} work-items of this kernel in a group"
    if _registers(params) * warps * WAVE > _REGISTERS or _registers(params) > 255:
        return "the tiles exceed the registers"
    if params["SPLIT"] > 1 and warps * area * ROWS * COLUMNS * 4 > device.local_mem:
        return f"the partial sums do not fit the {device.local_mem} bytes of local memory"
    return None


@lru_cache(maxsize=1024)
def find_tile(positions: int, channels: int, steps: int, device: DeviceInfo) -> Mapping[str, int]:
    """The tile with the least estimated cycles for `positions` x `channels` results of `steps` steps; cached."""
    return min(legal_tiles(steps, device), key=lambda p: tile_cycles(p, positions, channels, steps, device), default={})


def legal_tiles(steps: int, device: DeviceInfo) -> Iterator[dict[str, int]]:
    """Tiles worth considering for `steps` steps."""
    for wm, wn, warps_p, warps_n, split in _SHAPES:
        params = {"WM": wm, "WN": wn, "PW": warps_p, "NW": warps_n, "SPLIT": split, "STAGES": 4 if wm * wn <= 4 else 2}
        if split <= steps and tile_illegal(params, device) is None:
            yield params


_SHAPES = tuple(
    (wm, wn, warps_p, warps_n, split)
    for wm in (1, 2, 4)
    for wn in (1, 2, 3, 4)
    for warps_p, warps_n in ((1, 1), (2, 1), (2, 2), (4, 1), (1, 2), (4, 2))
    for split in (1, 2, 4, 8)
    if 2 <= warps_p * warps_n * split <= 8
)


def tile_cycles(params: Mapping[str, int], positions: int, channels: int, steps: int, device: DeviceInfo) -> float:
    """Estimated clock cycles: the maximum of matrix-unit, cache and latency time; work-groups evenly distributed."""
    c, wm, wn, split = DirectTile.of(device), params["WM"], params["WN"], params["SPLIT"]
    rows, columns = ROWS * wm * params["PW"], COLUMNS * wn * params["NW"]
    groups = ceil_div(positions, rows) * ceil_div(channels, columns)
    warps = params["PW"] * params["NW"] * split
    resident = max(1, min(64 // warps, _REGISTERS // (_registers(params) * warps * WAVE)))
    turns, waves = ceil_div(steps, split), ceil_div(groups, device.compute_units)
    per_unit = (1 - c.even) * waves + c.even * max(1.0, groups / device.compute_units)
    busy = max(c.multiply * wm * wn, c.load_rows * wm + c.load_weights * wn) * turns * warps * per_unit
    waiting = c.latency * ceil_div(turns, params["STAGES"]) * ceil_div(waves, resident)
    fetched = (rows + columns) * steps * QUADS * 8 * per_unit / c.l2_bytes
    steady = max(busy, waiting, fetched) + c.mixed * (busy + waiting + fetched) + (c.reduce if split > 1 else 0)
    return c.begin_and_end + steady + c.store * rows * columns * per_unit


def _registers(params: Mapping[str, int]) -> int:
    """Registers of a work-item: accumulators, operands in flight, addresses."""
    wm, wn = params["WM"], params["WN"]
    return 8 * wm * wn + params["STAGES"] * 4 * (wm + wn) + 14 * wm + 2 * wn + 32


def pack_weights(quads: Array, steps: int | None = None, paired: bool = False) -> Array:
    """[channels, input quads, 4] in lane order: float16[tiles, steps, 32 lanes, 8].

    steps: at least as many as hold the quads. paired: within two steps, even quads belong to the first step and odd
    quads to the second.
    """
    channels, count, _ = quads.shape
    tiles, steps = ceil_div(channels, COLUMNS), steps or ceil_div(count, QUADS)
    words = quads_to_words(quads, tiles * COLUMNS, steps * QUADS, np.uint64)
    # Channel 4h + 2j + l of a tile is column 2h + l of fragment j; lane 4 * column + t holds quad t.
    together = 2 if paired else 1
    split = words.reshape(tiles, 4, 2, 2, steps // together, QUADS, together)
    packed = split.transpose(0, 4, 6, 1, 3, 5, 2)
    return np.ascontiguousarray(packed).view(np.float16).reshape(tiles, steps, WAVE, 8)


def tile_defines(params: Mapping[str, int]) -> Defines:
    """The defines of mma/mma_tile.cl."""
    return {name: params[name] for name in SPACE}


def tile_grid(params: Mapping[str, int], positions: int, channels: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(grid, work-group) for results of `positions` x `channels`."""
    group = WAVE * params["PW"] * params["NW"] * params["SPLIT"]
    across = ceil_div(positions, ROWS * params["WM"] * params["PW"])
    return (across * group, ceil_div(channels, COLUMNS * params["WN"] * params["NW"])), (group, 1)


QUAD = 4  # halves


def to_half_quads(matrix: Array, by_rows: bool) -> Array:
    """Floats [n, k] (`by_rows`) or [k, n] as halves [n, ceil(k / 4), 4], zero-padded past k."""
    if by_rows:
        n, k = matrix.shape
        if k % QUAD == 0:
            return matrix.astype(np.float16).reshape(n, -1, QUAD)
        out = np.zeros((n, ceil_div(k, QUAD) * QUAD), np.float16)
        out[:, :k] = matrix
        return out.reshape(n, -1, QUAD)
    k, n = matrix.shape
    quads = np.zeros((ceil_div(k, QUAD), n, QUAD), np.float16)
    for i in range(QUAD):
        part = matrix[i::QUAD]
        quads[: len(part), :, i] = part
    return quads.swapaxes(0, 1)


def quads_to_words(quads: Array, channels: int, count: int, word: Any) -> Array:
    """Float quads [.., .., 4] as half words [channels, count, 8 / word bytes], zero-padded."""
    if quads.shape[:2] != (channels, count) or quads.dtype != np.float16 or quads.strides[-1] != 2:
        whole = np.zeros((channels, count, QUAD), np.float16)
        whole[: quads.shape[0], : quads.shape[1]] = quads
        quads = whole
    return quads.view(word)
