"""Work-group sizes where a launch leaves the choice open: chunks for CPUs, divisors for GPUs."""

from __future__ import annotations

import math

from .device import DeviceInfo

Grid = tuple[int, ...]

CPU_GROUPS = 32  # enough work-groups to balance a few cores; each costs well under a microsecond
CPU_ITEMS = 256
GPU_ITEMS = 128  # any compute unit holds several such groups, and small grids reach every unit


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
    """Divisors of the axes, innermost first, of at most GPU_ITEMS work-items: small groups spread over all units."""
    left, group = min(GPU_ITEMS, device.max_work_group_size), []
    for extent, limit in zip(grid, device.max_work_item_sizes, strict=False):
        size = next(d for d in range(min(left, extent, limit), 0, -1) if extent % d == 0)
        group.append(size)
        left //= size
    return tuple(group)


def _cpu_group(grid: Grid) -> Grid:
    """Divisors of the axes, innermost first: enough items to amortise a group's start, CPU_GROUPS groups left."""
    wanted = max(1, min(CPU_ITEMS, math.prod(grid) // CPU_GROUPS))
    group = []
    for extent in grid:
        size = next(d for d in range(min(wanted, extent), 0, -1) if extent % d == 0)
        group.append(size)
        wanted //= size
    return tuple(group)
