"""Default work-group sizes for launches without a tuned size: chunks on CPUs, waves on GPUs."""

from __future__ import annotations

import itertools
import math

from .device_info import DeviceInfo

Grid = tuple[int, ...]

CPU_GROUPS = 32  # enough work-groups to balance a few cores; each costs well under a microsecond
CPU_ITEMS = 256
GPU_ITEMS = 128  # any compute unit holds several such groups, and small grids reach every unit
WAVE = 32  # wave size of a GPU that reports none, or that combines narrow waves
NEIGHBOURS = 16  # work-items along the first axis, whose accesses to neighbouring elements are served together
NEARLY = 0.9  # least share of the best lane occupancy: fewer group starts of a larger group outweigh the rest


def default_group(grid: Grid, device: DeviceInfo) -> Grid | None:
    """The default work-group size for `grid`; None for an empty grid."""
    if not all(grid):
        return None
    return _cpu_group(grid) if device.is_cpu else _gpu_group(grid, device)


def size_grid(grid: Grid, group: Grid | None, device: DeviceInfo) -> tuple[Grid, Grid]:
    """(`grid` rounded up to the work-group, the work-group). No axis of the grid is empty."""
    local = group or default_group(grid, device)
    assert local is not None
    return tuple(-(-g // w) * w for g, w in zip(grid, local, strict=True)), local


def _gpu_group(grid: Grid, device: DeviceInfo) -> Grid:
    """A work-group of at most GPU_ITEMS work-items: small groups spread over all compute units.

    Divisors of the axes are preferred, innermost first, if they fill waves or are the whole grid. Otherwise, as for
    prime axes, the grid is rounded up; kernels return beyond its end.
    """
    limit, group = min(GPU_ITEMS, device.max_work_group_size), []
    left = limit
    for extent, most in zip(grid, device.max_work_item_sizes, strict=False):
        size = next(d for d in range(min(left, extent, most), 0, -1) if extent % d == 0)
        group.append(size)
        left //= size
    wave = min(max(device.wave_size, device.full_wave, WAVE), limit)
    items = math.prod(group)
    if items == math.prod(grid) or (items >= wave and items >= NEARLY * -(-items // wave) * wave):
        return tuple(group)
    return _rounded_group(grid, device, limit, wave)


def _rounded_group(grid: Grid, device: DeviceInfo, limit: int, wave: int) -> Grid:
    """The group with (almost) the best lane occupancy, then the most work-items, innermost first."""
    sizes = [
        sorted({min(1 << i, most, extent) for i in range(limit.bit_length())})
        for extent, most in zip(grid, device.max_work_item_sizes, strict=False)
    ]
    near = 1 if device.prefers_images else min(grid[0], NEIGHBOURS)  # texture caches hold blocks of two axes
    groups = [g for g in itertools.product(*sizes) if math.prod(g) <= limit and g[0] >= near]

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
