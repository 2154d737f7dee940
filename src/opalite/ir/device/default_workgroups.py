"""Work-group sizes where a launch leaves the choice open: chunks for CPUs, waves for GPUs."""

from __future__ import annotations

import itertools
import math

from .device_info import DeviceInfo

Grid = tuple[int, ...]

CPU_GROUPS = 32  # enough work-groups to balance a few cores; each costs well under a microsecond
CPU_ITEMS = 256
GPU_ITEMS = 128  # any compute unit holds several such groups, and small grids reach every unit
WAVE = 32  # work-items in lock step on a GPU that does not tell, or that joins narrow waves
NEARLY = 0.9  # of the best share of busy lanes: below, a larger group's fewer starts make up for it no more


def default_group(grid: Grid, device: DeviceInfo) -> Grid | None:
    """The untuned work-group size for `grid`; None for an empty grid."""
    if not all(grid):
        return None
    return _cpu_group(grid) if device.is_cpu else _gpu_group(grid, device)


def size_grid(grid: Grid, group: Grid | None, device: DeviceInfo) -> tuple[Grid, Grid]:
    """`grid` rounded up to its work-group, and that: `group`, else the untuned one. No axis of the grid is empty."""
    local = group or default_group(grid, device)
    assert local is not None
    return tuple(-(-g // w) * w for g, w in zip(grid, local, strict=True)), local


def _gpu_group(grid: Grid, device: DeviceInfo) -> Grid:
    """At most GPU_ITEMS work-items: small groups spread over all units.

    Divisors of the axes, innermost first, if that gives a wave or the whole grid. Where axes have too few divisors, as
    primes have, the grid is rounded up: kernels return beyond its end.
    """
    limit, group = min(GPU_ITEMS, device.max_work_group_size), []
    left = limit
    for extent, most in zip(grid, device.max_work_item_sizes, strict=False):
        size = next(d for d in range(min(left, extent, most), 0, -1) if extent % d == 0)
        group.append(size)
        left //= size
    wave = min(max(device.wave_size, device.full_wave, WAVE), limit)
    if math.prod(group) >= min(wave, math.prod(grid)):
        return tuple(group)
    return _rounded_group(grid, device, limit, wave)


def _rounded_group(grid: Grid, device: DeviceInfo, limit: int, wave: int) -> Grid:
    """The group whose waves have the most lanes at work, or nearly so, with the most work-items, innermost first."""
    sizes = [
        sorted({min(1 << i, most, extent) for i in range(limit.bit_length())})
        for extent, most in zip(grid, device.max_work_item_sizes, strict=False)
    ]
    groups = [g for g in itertools.product(*sizes) if math.prod(g) <= limit]

    def busy(group: Grid) -> float:
        """Share of the lanes that have a work-item of the grid."""
        count = math.prod(-(-g // w) for g, w in zip(grid, group, strict=True))
        return math.prod(grid) / (count * -(-math.prod(group) // wave) * wave)

    shares = {group: busy(group) for group in groups}
    enough = NEARLY * max(shares.values())
    return max((g for g in groups if shares[g] >= enough), key=lambda g: (math.prod(g), g))


def _cpu_group(grid: Grid) -> Grid:
    """Divisors of the axes, innermost first: enough items to amortise a group's start, CPU_GROUPS groups left."""
    wanted = max(1, min(CPU_ITEMS, math.prod(grid) // CPU_GROUPS))
    group = []
    for extent in grid:
        size = next(d for d in range(min(wanted, extent), 0, -1) if extent % d == 0)
        group.append(size)
        wanted //= size
    return tuple(group)
