"""Work-groups of launches: which of them leave the choice open, what is too large, Paddle-Lite's halving."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.device.default_workgroups import size_grid
from ..ir.device.device_info import DeviceInfo
from .kernel import Grid, Launch


def size_launches(
    launches: Sequence[Launch], device: DeviceInfo, group: Grid | None = None
) -> list[tuple[Launch, Grid, Grid]]:
    """(launch, global size, work-group size) of every launch that has work; global sizes are rounded up to the group.

    A launch's own work-group leads. `group`, which tuning found, serves the one launch that leaves its own open; where
    there are several, or none was found, they get the untuned one.
    """
    return [(launch, *size_grid(launch.grid, local, device)) for launch, local in nonempty_launches(launches, group)]


def nonempty_launches(launches: Sequence[Launch], group: Grid | None = None) -> list[tuple[Launch, Grid | None]]:
    """Launches that have work, with the work-groups that are decided; arguments as `size_launches` has them."""
    busy = [launch for launch in launches if all(launch.grid)]
    sole = launch_with_open_group(busy)
    fits = sole is not None and group is not None and len(group) == len(sole.grid)
    return [(launch, launch.group or (group if launch is sole and fits else None)) for launch in busy]


def launch_with_open_group(launches: Sequence[Launch]) -> Launch | None:
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
