"""Register tiles of channel-packed convolutions: register limits, and the untuned choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from ...cost.cost_tables import RegisterTile
from ...ir.device.device_info import DeviceInfo
from ...ir.symbols import hint_of
from ..launch import ceil_div

TILE_WIDTHS = (7, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16)
TILE_BLOCKS = (2, 1, 3, 4, 6, 8)

# Most layers of common networks are hardly slower with one of these.
_SHARED = ((6, 4), (7, 2), (9, 3), (14, 1))


@dataclass(frozen=True)
class FilterChunks:
    """The order in which register tiles read filters: `group` adjacent tiles use `rows` filter rows in turn.

    During each row, `ahead` 64-byte lines of the next chunk are prefetched. Hardware prefetchers stop at page
    boundaries, so filters used by few tiles stalled: 1.7 times as long with 4608 rows of 7 tiles.
    """

    group: int
    rows: int
    ahead: int

    @classmethod
    def of(
        cls, rows: int, row_bytes: int, tiles: int, accumulators: int, blocks: int, device: DeviceInfo
    ) -> FilterChunks:
        """The order for `rows` filter rows of `row_bytes`, for each of `blocks` tiles of output channels.

        `tiles` adjacent pixel tiles, with `accumulators` vectors each, share the rows.
        """
        if not device.is_cpu:
            return cls(1, rows, 0)
        c = RegisterTile.of(device)
        group, chunk = max(1, min(c.group, c.kept // accumulators)), max(1, round(c.chunk_bytes / row_bytes))
        if 2 * rows < 3 * chunk:
            return cls(group, rows, 0)
        cached = rows * row_bytes * blocks <= c.cached_bytes
        return cls(group, chunk, 0 if cached else ceil_div(ceil_div(row_bytes, 64), min(hint_of(tiles), group)))

    @property
    def args(self) -> dict[str, int]:
        """The kernel's arguments `chunk` and `ahead`."""
        return {"chunk": self.rows, "ahead": self.ahead}


def tile_refusal(tw: int, tb: int, pack: int, device: DeviceInfo) -> str | None:
    """The reason why a tile of `tw` pixels and `tb` blocks would spill registers, or None.

    A CPU holds the accumulators, one weight vector per block and a broadcast, in 32 registers with AVX-512, else 16. A
    GPU work-item should have at most 64 accumulators, so that enough work-items fit a compute unit.
    """
    if device.is_cpu:
        return None if _fits(tw, tb, _registers(pack)) else "the tile exceeds the registers"
    return "the tile exceeds 64 accumulators" if tw * tb * pack > 64 else None


def _fits(tw: int, tb: int, registers: int) -> bool:
    return tw * tb + tb + 1 <= registers


@cache
def _cpu_tiles(registers: int) -> tuple[tuple[int, int], ...]:
    """The tiles that fit a CPU with so many registers."""
    return tuple((w, b) for w in TILE_WIDTHS for b in TILE_BLOCKS if _fits(w, b, registers))


def _registers(pack: int) -> int:
    """Vector registers of a CPU whose vectors hold `pack` floats."""
    return 32 if pack >= 16 else 16


def find_tile(
    columns: int,
    rows: int,
    blocks: int,
    pack: int,
    device: DeviceInfo,
    staged: float = 0.0,
    streamed: float = 0.0,
    reach: Callable[[int], float] | None = None,
) -> tuple[int, int]:
    """The (TW, TB) for `rows` lines of `columns` pixels and `blocks` output blocks.

    The tile of least estimated time, or one that many layers share if it is hardly slower: compiling a program for each
    layer's best tile would dominate the first start. staged: cost of copying one input pixel, in multiply-adds of one
    block; 0 without staging. streamed: cost of one weight vector. reach: input blocks that a tile of so many output
    blocks reads, if not all.
    """
    if not device.is_cpu:
        return _gpu_tile(columns, rows, blocks, pack, device)
    candidates = _cpu_tiles(_registers(pack))
    c, registers = RegisterTile.of(device), _registers(pack)

    def cost(tile: tuple[int, int]) -> float:
        w, b = tile
        turn = max(w * b, c.latency, c.weight * b, c.operand * (w + b), c.issue * (w * b + w + b + 2))
        turn *= c.crowded if staged and w * b > registers // 2 else 1.0
        items = ceil_div(columns, w) * rows * ceil_div(blocks, b)
        turns = 1.0 if reach is None else reach(b)
        return ceil_div(items, device.compute_units) * turns * (turn + c.turn + staged * w + streamed * b)

    costs = {tile: cost(tile) for tile in candidates}
    least = min(costs.values())
    shared = (tile for tile in _SHARED if tile in costs and costs[tile] <= c.slack * least)
    return next(shared, min(candidates, key=costs.__getitem__))


def _gpu_tile(columns: int, rows: int, blocks: int, pack: int, device: DeviceInfo) -> tuple[int, int]:
    """The largest of a few tiles that leaves every compute unit enough work-items to hide latency."""
    wanted = device.compute_units * max(device.wave_size, 32) * 4
    tiles: Iterable[tuple[int, int]] = ((4, 4), (4, 2), (2, 2), (2, 1))
    for w, b in tiles:
        if tile_refusal(w, b, pack, device) is None and ceil_div(columns, w) * rows * ceil_div(blocks, b) >= wanted:
            return w, b
    return 1, 1
