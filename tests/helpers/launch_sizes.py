"""Sizes of launches as the tests run them: the whole grid of each."""

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
