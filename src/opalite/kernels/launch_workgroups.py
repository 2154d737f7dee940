"""Work-group sizes of launches: which are open, which are too large, and Paddle-Lite's default."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.device.device_info import DeviceInfo
from .launch import Grid, Launch


def nonempty_launches(launches: Sequence[Launch], group: Grid | None = None) -> list[tuple[Launch, Grid | None]]:
    """Nonempty launches with their work-group, None if undecided.

    A launch's own work-group takes precedence. `group` (from tuning) applies only if exactly one launch leaves its
    work-group open.
    """
    busy = [launch for launch in launches if all(launch.grid)]
    sole = launch_with_open_group(busy)
    fits = sole is not None and group is not None and len(group) == len(sole.grid)
    return [(launch, launch.group or (group if launch is sole and fits else None)) for launch in busy]


def launch_with_open_group(launches: Sequence[Launch]) -> Launch | None:
    """The nonempty launch without a work-group of its own, if there is exactly one."""
    found = [launch for launch in launches if launch.group is None and all(launch.grid)]
    return found[0] if len(found) == 1 else None


def group_refusal(items: int, device: DeviceInfo) -> str | None:
    """The reason why `device` cannot run a work-group of `items` work-items, or None."""
    limit = device.max_work_group_size
    return f"the device runs at most {limit} work-items in a group, got {items}" if items > limit else None


def halving(grid: Grid, limit: int, item_limits: tuple[int, ...]) -> Grid:
    """Paddle-Lite's default work-group: the grid with y, then z, then x halved until it fits.

    An odd extent that does not fit becomes 1. The limit is `limit` / 2, as in Paddle-Lite. Per-axis limits are
    respected.
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
