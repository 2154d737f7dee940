"""Sizes of launches as the tests run them: the whole grid of each, and small work-groups that divide no axis."""

from __future__ import annotations

from collections.abc import Sequence

from opalite.ir.device.default_workgroups import size_grid
from opalite.ir.device.device_info import DeviceInfo
from opalite.kernels.launch import Grid, Launch
from opalite.kernels.launch_workgroups import nonempty_launches


def size_launches(
    launches: Sequence[Launch], device: DeviceInfo, group: Grid | None = None
) -> list[tuple[Launch, Grid, Grid]]:
    """(launch, global size, work-group size) of every nonempty launch; global sizes are rounded up to the group.

    A launch's own work-group takes precedence. `group` (from tuning) applies only if exactly one launch leaves its
    work-group open. All others get the device's default.
    """
    return [(launch, *size_grid(launch.grid, local, device)) for launch, local in nonempty_launches(launches, group)]


def uneven_group(grid: Grid, device: DeviceInfo) -> Grid:
    """A small work-group that divides no axis of `grid`, if possible: tests use it to reveal missing bounds checks."""
    left, group = device.max_work_group_size, []
    for extent, limit in zip(grid, device.max_work_item_sizes, strict=False):
        size = next((d for d in (3, 5, 7, 11, 13) if extent % d and d <= min(left, limit)), 1)
        group.append(size)
        left //= size
    return tuple(group)
