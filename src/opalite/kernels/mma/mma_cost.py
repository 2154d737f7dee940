"""Cost model of matrix-unit kernels: operands loaded straight into registers, or staged in local memory."""

from __future__ import annotations

import math

from ...cost.cost_tables import MatrixUnits, WarpgroupTile
from ...ir.device.device_info import DeviceInfo
from ...ops.operator import Cost
from ..filter_window import Window
from ..launch import ceil_div
from . import mma_tile as mma
from . import staged_tile as mma_stages
from . import wgmma_tile

FEWEST_POSITIONS = 17  # fewer rows leave most of a stage empty: the kernel is bound by reading weights


def has_aligned_pairs(win: Window) -> bool:
    """Whether positions 2i and 2i + 1 are always adjacent in x, so that 16-byte loads are aligned."""
    return win.is_pointwise and math.prod(win.size) % 2 == 0


def mma_seconds(
    positions: int, channels: int, quads: int, device: DeviceInfo, cost: Cost, *, staged: bool, paired: bool = False
) -> float:
    """Expected seconds of a register or staged mma kernel for `positions` x `channels` results of `quads` x 4 terms.

    The cycle estimates only rank the two. The faster one is assigned a share of the device's peak, as all other kernels
    are, so that times are comparable. paired: see `has_aligned_pairs`.
    """
    best = _best_seconds(device, cost)
    if positions < FEWEST_POSITIONS or next(mma_stages.legal_tiles(device), None) is None:
        return best + device.launch_s
    cycles = _cycles(positions, channels, quads, device, paired)
    return best * cycles[staged] / min(cycles) + device.launch_s


def warpgroup_seconds(work: wgmma_tile.WgmmaProblem, device: DeviceInfo, cost: Cost, *, paired: bool = False) -> float:
    """Expected seconds of a wgmma kernel: the better mma kernel's time, scaled by the estimated ratio."""
    return _best_seconds(device, cost) * warpgroup_share(work, device, paired=paired) + device.launch_s


def warpgroup_share(work: wgmma_tile.WgmmaProblem, device: DeviceInfo, *, paired: bool = False) -> float:
    """Estimated time of a wgmma kernel over that of the better mma kernel, with a safety margin."""
    mine = wgmma_tile.tile_cycles(wgmma_tile.find_tile(work, device), work, device) * WarpgroupTile.of(device).caution
    return mine / min(_cycles(work.positions, work.channels, work.quads, device, paired))


def _best_seconds(device: DeviceInfo, cost: Cost) -> float:
    units = MatrixUnits.of(device)
    return max(cost.flops / (device.peak_flops * units.share), cost.bytes / device.bandwidth * units.overlap)


def _cycles(positions: int, channels: int, quads: int, device: DeviceInfo, paired: bool) -> tuple[float, float]:
    """Estimated cycles of the best register tile and of the best staged tile."""
    steps = ceil_div(quads, mma.QUADS)
    tile = mma.find_tile(positions, channels, steps, device)
    direct = mma.tile_cycles(tile, positions, channels, steps, device)
    tile = mma_stages.find_tile(positions, channels, quads, device, paired=paired)
    return direct, mma_stages.tile_cycles(tile, positions, channels, quads, device, paired=paired)
