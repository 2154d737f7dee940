"""Work-group sizes where a launch leaves the choice open: chunks for CPUs, divisors for GPUs, Paddle-Lite's halving."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..ir.device import DeviceInfo
from .base import Grid, Launch

CPU_GROUPS = 32  # enough work-groups to balance a few cores; each costs well under a microsecond
CPU_ITEMS = 256
GPU_ITEMS = 128  # any compute unit holds several such groups, and small grids reach every unit


def default_group(grid: Grid, device: DeviceInfo) -> Grid | None:
    """The untuned work-group size for `grid`; None for an empty grid."""
    if not all(grid):
        return None
    return _cpu_group(grid) if device.is_cpu else _gpu_group(grid, device)


def size_launches(
    launches: Sequence[Launch], device: DeviceInfo, group: Grid | None = None
) -> list[tuple[Launch, Grid, Grid]]:
    """(launch, global size, work-group size) of every launch that has work; global sizes are rounded up to the group.

    A launch's own work-group leads. `group`, which tuning found, serves the one launch that leaves its own open; where
    there are several, or none was found, they get the untuned one.
    """
    found = []
    busy = [launch for launch in launches if all(launch.grid)]
    sole = open_launch(busy)
    for launch in busy:
        tuned = group if launch is sole and group is not None and len(group) == len(launch.grid) else None
        local = launch.group or tuned or default_group(launch.grid, device)
        assert local is not None
        found.append((launch, tuple(-(-g // w) * w for g, w in zip(launch.grid, local, strict=True)), local))
    return found


def open_launch(launches: Sequence[Launch]) -> Launch | None:
    """The launch that has work and leaves its work-group open, if there is exactly one."""
    found = [launch for launch in launches if launch.group is None and all(launch.grid)]
    return found[0] if len(found) == 1 else None


def uneven_group(grid: Grid, device: DeviceInfo) -> Grid:
    """A small work-group that divides no axis of `grid`, if the device allows one: it shows missing guards."""
    left, group = device.max_work_group_size, []
    for extent, limit in zip(grid, device.max_work_item_sizes, strict=False):
        size = next((d for d in (3, 5, 7, 11, 13) if extent % d and d <= min(left, limit)), 1)
        group.append(size)
        left //= size
    return tuple(group)


def group_refusal(items: int, device: DeviceInfo) -> str | None:
    """Why a work-group of `items` work-items cannot run on `device`, or None."""
    limit = device.max_work_group_size
    return f"the device runs at most {limit} work-items in a group, got {items}" if items > limit else None


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


def halving(grid: Grid, limit: int, item_limits: tuple[int, ...]) -> Grid:
    """Paddle-Lite's default: start from the grid and halve y, then z, then x until the group fits.

    An odd extent that does not fit drops to 1, as halving would no longer divide it. Uses half of `limit`, as the
    seed's divisor of 2 does, and never exceeds the per-axis limits.
    """
    half = max(1, limit // 2)
    x, y, z = (*grid, 1, 1)[:3]

    def halve(n: int) -> int:
        return 1 if n & 1 else n >> 1

    while y > min(half, item_limits[1]):
        y = halve(y)
    while z > item_limits[2] or y * z > half:
        z = halve(z)
    while x > item_limits[0] or x * y * z > half:
        x = halve(x)
    return (x, y, z)[: len(grid)]
