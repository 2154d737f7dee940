"""Tiles of Hopper's wgmma kernels (mma/wgmma_tile.cl): parameters, packed weights, cost model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...cost.cost_tables import WarpgroupTile
from ...ir.device.device_family import PTX_WGMMA
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ..codegen.fast_math import SHORT
from ..kernel import Space
from ..launch import Array, Defines, ceil_div
from .mma_tile import quads_to_words

CHUNK = 8  # quads that two instructions take

SPACE: Space = {
    "BN": (256, 192, 128, 64, 224),
    "PW": (2, 1, 3),
    "STAGES": (6, 4, 10),
    "SEATS": (4, 8),
    "PARTS": (1, 2, 3, 4, 6, 8),
}

_POSITIONS = 64  # of a warpgroup
_ITEMS = 128
_REGISTERS = 65536
_LOCAL = (
    227 << 10
) - 128  # local memory limits in bytes: of one work-group; of all work-groups of a multiprocessor, plus 1 KiB each
_RESERVED = 1024
_LONGEST_TURN = 8  # vectors per loop iteration if a vector's epilogue is long code
_SHORT = 4  # epilogues of at most this many functions leave registers for several vectors
_SIMPLE = SHORT | {"add", "sub", "mul", "neg", "abs", "max", "min", "where", "lt", "le", "eq"}


def warpgroup_refusal(device: DeviceInfo) -> str | None:
    """The reason why `device` runs no wgmma kernel, or None."""
    if PTX_WGMMA not in device.quirks:
        return "the driver takes no PTX with wgmma for its GPU"
    return None


def tile_size(params: Mapping[str, int]) -> tuple[int, int]:
    """(positions, channels) of a work-group."""
    return _POSITIONS * params["PW"], params["BN"]


def local_bytes(params: Mapping[str, int]) -> int:
    """Local memory of a work-group in bytes: staged weights, staged rows, two barriers per stage."""
    rows, columns = tile_size(params)
    return params["STAGES"] * (columns * CHUNK * 8 + 16) + params["SEATS"] * rows * CHUNK * 8


def tile_illegal(params: Mapping[str, int]) -> str | None:
    """The reason why a work-group cannot run tiles of `params`, or None."""
    if params["STAGES"] < 2 or params["SEATS"] < 2:
        return "one chunk is multiplied while another arrives"
    if local_bytes(params) > _LOCAL:
        return f"the chunks do not fit {_LOCAL} bytes of local memory"
    if _registers(params) * params["PW"] * _ITEMS > _REGISTERS:
        return "the tiles exceed the registers"
    return None


def legal_tiles(*, finds_statistics: bool = False) -> Iterator[dict[str, int]]:
    """Tiles worth considering; `finds_statistics` as in WgmmaProblem."""
    for columns, groups, parts in itertools.product(
        SPACE["BN"], SPACE["PW"], (1,) if finds_statistics else SPACE["PARTS"]
    ):
        params = {"BN": columns, "PW": groups, "STAGES": 6 if columns > 128 else 4, "SEATS": 4, "PARTS": parts}
        if columns % 64 and not (finds_statistics and groups == 3):
            continue  # measured with 3072 columns: 18.2 us by 192 or 256 columns, 18.9 by others
        if tile_illegal(params) is None:
            yield params


@dataclass(frozen=True)
class WgmmaProblem:
    """A matrix product of `positions` x `channels` results, each a sum of `quads` x 4 terms.

    pieces: x is only contiguous in quads. operands: number of epilogue operands of the output's size. finds_statistics:
    the kernel computes row statistics for a fused normalisation, so each work-group must read all terms.
    """

    positions: int
    channels: int
    quads: int
    pieces: bool
    operands: int
    finds_statistics: bool = False


@lru_cache(maxsize=1024)
def find_tile(work: WgmmaProblem, device: DeviceInfo) -> Mapping[str, int]:
    """The tile with the least estimated cycles for `work`; cached."""
    return min(legal_tiles(finds_statistics=work.finds_statistics), key=lambda p: tile_cycles(p, work, device))


def tile_cycles(params: Mapping[str, int], work: WgmmaProblem, device: DeviceInfo) -> float:
    """Estimated clock cycles from launch to launch.

    The work-groups of a multiprocessor share its matrix units. A chunk takes the maximum of its instruction time and
    its L2 transfer time. With few work-groups the latency of a chunk counts too, divided by the chunks in flight.
    """
    c = WarpgroupTile.of(device)
    (rows, columns), parts = tile_size(params), params["PARTS"]
    groups = ceil_div(work.positions, rows) * ceil_div(work.channels, columns) * parts
    chunks = ceil_div(ceil_div(work.quads, CHUNK), parts)
    times = [c.multiply * rows * columns, (rows + columns) * CHUNK * 8 / c.l2_bytes, c.pieces * rows * work.pieces]
    times.append(c.look * rows * work.finds_statistics)
    busy = (1 - c.mixed) * max(times) + c.mixed * sum(times)
    per_unit = (1 - c.even) * ceil_div(groups, device.compute_units) + c.even * max(1.0, groups / device.compute_units)
    alone = max(c.step, c.latency / min(params["STAGES"] - 1, params["SEATS"]))
    full, last = divmod(per_unit, _resident(params))
    waves = full * max(_resident(params) * busy, alone) + (max(last * busy, alone) if last else 0)
    turns = full + (1 if last else 0)
    add = c.second + c.add * parts * work.positions * work.channels / device.compute_units if parts > 1 else 0
    store = c.store + (c.operand * work.operands if parts == 1 else 0)
    return c.begin_and_end + chunks * waves + c.first * turns + store * rows * columns * per_unit + add


def _resident(params: Mapping[str, int]) -> int:
    """Work-groups that a multiprocessor holds at once."""
    registers = _REGISTERS // (_registers(params) * params["PW"] * _ITEMS)
    return max(1, min(registers, _LOCAL // (local_bytes(params) + _RESERVED)))


def _registers(params: Mapping[str, int]) -> int:
    """Registers of a work-item: accumulators, quads, addresses."""
    return params["BN"] // 2 + 40


def pack_chunks(quads: Array, columns: int, paired: bool = False) -> Array:
    """[channels, input quads, 4] in wgmma order: float16[tiles, chunks, 2 steps, columns / 8, 2, 8, 8].

    columns: width of a tile. Thread t of four multiplies quad 4 * step + t of a chunk, or quad 2 * t + step if
    `paired`.
    """
    channels, count, _ = quads.shape
    tiles, chunks = ceil_div(channels, columns), ceil_div(count, CHUNK)
    words = quads_to_words(quads, tiles * columns, chunks * CHUNK, np.uint32)
    # Channel 4h + 2j + l of 16 is column 2h + l of eight j; of a quad, terms 2 * e + f are terms 2t + f of eight e.
    split = words.reshape(tiles, columns // 16, 4, 2, 2, chunks, *((4, 2) if paired else (2, 4)), 2)
    step, thread = (7, 6) if paired else (6, 7)
    packed = split.transpose(0, 5, step, 1, 3, 8, 2, 4, thread)
    return np.ascontiguousarray(packed).view(np.float16).reshape(tiles, chunks, 2, columns // 8, 2, 8, 8)


def tile_defines(params: Mapping[str, int], node: Node, *, finds_statistics: bool = False) -> Defines:
    """The defines of mma/wgmma_tile.cl with the epilogue of `node`; `finds_statistics` as in WgmmaProblem."""
    defines = {name: params[name] for name in SPACE} | {"KEEP": params["SEATS"] - 1, "SHARED": local_bytes(params)}
    turn, together = _finished(params, node, finds_statistics)
    return defines | {"SUMS": params["BN"] // 2, "TURN": turn, "TOGETHER": together}


def _finished(params: Mapping[str, int], node: Node, finds_statistics: bool) -> tuple[int, int]:
    """(vectors per iteration of the store loop, vectors whose epilogues run interleaved).

    Interleaving overlaps the loads of several vectors but needs registers. A GELU by the built-in erf after a product
    of 3072 columns took 39 us with four vectors interleaved and 32 with one. Long unrolled code misses the instruction
    cache in every launch: 28 GELUs of normalised rows took 38 us in a network and 25 in a loop of equal launches; with
    four vectors per iteration 34 and 26.
    """
    instrs = () if node.epilogue is None or params["PARTS"] > 1 else node.epilogue.instrs
    is_long = len(instrs) > _SHORT
    is_slow = is_long and any(i.fn not in _SIMPLE for i in instrs)
    vectors = turn = params["BN"] // 8
    if is_long or finds_statistics:
        turn = max(n for n in range(2, _LONGEST_TURN + 1, 2) if vectors % n == 0)
    together = 1 if is_slow else 4 if params["BN"] * params["PW"] > 512 else 8
    return turn, math.gcd(together, turn)


def tile_grid(params: Mapping[str, int], high: int, wide: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(grid, work-group) for `high` x `wide` tiles along positions and channels."""
    group = _ITEMS * params["PW"]
    return (high * wide * group, params["PARTS"]), (group, 1)
