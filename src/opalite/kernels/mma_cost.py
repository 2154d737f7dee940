"""What kernels for matrix units take: operands straight into registers (mma.py) or from stages (mma_stages.py)."""

from __future__ import annotations

from ..ir.device import DeviceInfo
from ..ops.base import Cost
from . import mma, mma_stages
from .base import ceil_div

FEWEST_POSITIONS = 17  # fewer leave most of a stage empty: reading the weights is all there is to do
_EFFICIENCY = 3.0  # of the peak without matrix units
_OVERLAP = 0.95  # of the time to move the bytes, so that ties go to the kernels with the least arithmetic
_EXCESS = 2.0  # how far mma.py's estimate was exceeded: by 1.3 to 4 in the layers of ResNet-50 and VGG-16


def mma_seconds(positions: int, channels: int, quads: int, device: DeviceInfo, cost: Cost, *, staged: bool) -> float:
    """Expected time of one of the two kinds for `positions` x `channels` results of `quads` quads of terms.

    Their own estimates order the two. What the better one is expected to take is a share of the device's peak, as with
    all other kernels, whose estimates are optimistic alike.
    """
    best = max(cost.flops / (device.peak_flops * _EFFICIENCY), cost.bytes / device.bandwidth * _OVERLAP)
    if positions < FEWEST_POSITIONS or next(mma_stages.legal_tiles(device), None) is None:
        return best + device.launch_s
    steps = ceil_div(quads, mma.QUADS)
    tile = mma.find_tile(positions, channels, steps, device)
    direct = _EXCESS * mma.tile_cycles(tile, positions, channels, steps, device)
    tile = mma_stages.find_tile(positions, channels, quads, device)
    stages = mma_stages.tile_cycles(tile, positions, channels, quads, device)
    mine = stages if staged else direct
    return best * mine / min(direct, stages) + device.launch_s
