"""What kernels for matrix units take: operands straight into registers (tiles.py) or from stages (staged_tile.py)."""

from __future__ import annotations

import math

from ...cost.cost_tables import MatrixUnits, WarpgroupTile
from ...ir.device.device_info import DeviceInfo
from ...ops.operator import Cost
from ..filter_window import Window
from ..kernel import ceil_div
from . import mma_tile as mma
from . import staged_tile as mma_stages
from . import wgmma_tile

FEWEST_POSITIONS = 17  # fewer leave most of a stage empty: reading the weights is all there is to do


def has_aligned_pairs(win: Window) -> bool:
    """Whether neighbours from an even position on are neighbours in x, where 16 bytes are then aligned."""
    return win.is_pointwise and math.prod(win.size) % 2 == 0


def mma_seconds(
    positions: int, channels: int, quads: int, device: DeviceInfo, cost: Cost, *, staged: bool, paired: bool = False
) -> float:
    """Expected time of one of the two kinds for `positions` x `channels` results of `quads` quads of terms.

    Their own estimates order the two. What the better one is expected to take is a share of the device's peak, as with
    all other kernels, whose estimates are optimistic alike. `paired` as for the tiles with stages.
    """
    best = _best_seconds(device, cost)
    if positions < FEWEST_POSITIONS or next(mma_stages.legal_tiles(device), None) is None:
        return best + device.launch_s
    cycles = _cycles(positions, channels, quads, device, paired)
    return best * cycles[staged] / min(cycles) + device.launch_s


def warpgroup_seconds(work: wgmma_tile.WgmmaProblem, device: DeviceInfo, cost: Cost, *, paired: bool = False) -> float:
    """As mma_seconds, by Hopper's warpgroups: beside the better one of those two kinds."""
    return _best_seconds(device, cost) * warpgroup_share(work, device, paired=paired) + device.launch_s


def warpgroup_share(work: wgmma_tile.WgmmaProblem, device: DeviceInfo, *, paired: bool = False) -> float:
    """What Hopper's warpgroups are expected to take of the better one's time of those two kinds, with caution."""
    mine = wgmma_tile.tile_cycles(wgmma_tile.find_tile(work, device), work, device) * WarpgroupTile.of(device).caution
    return mine / min(_cycles(work.positions, work.channels, work.quads, device, paired))


def _best_seconds(device: DeviceInfo, cost: Cost) -> float:
    units = MatrixUnits.of(device)
    return max(cost.flops / (device.peak_flops * units.share), cost.bytes / device.bandwidth * units.overlap)


def _cycles(positions: int, channels: int, quads: int, device: DeviceInfo, paired: bool) -> tuple[float, float]:
    """Estimates of the best tiles of the two kinds: operands straight into registers, and from stages."""
    steps = ceil_div(quads, mma.QUADS)
    tile = mma.find_tile(positions, channels, steps, device)
    direct = mma.tile_cycles(tile, positions, channels, steps, device)
    tile = mma_stages.find_tile(positions, channels, quads, device, paired=paired)
    return direct, mma_stages.tile_cycles(tile, positions, channels, quads, device, paired=paired)
