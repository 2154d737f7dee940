"""How full the waves of a plan's launches are, by the work-items that kernels ask for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from opalite.ir import DeviceInfo
from opalite.ir.device import default_workgroups
from opalite.plan import emit_program
from opalite.plan.program import LaunchStep
from opalite.plan.template import program_template

from .launch_sizes import Grid

LEAST = 0.9
"""The share of its waves' lanes that a plan keeps busy, last waves of launches aside."""


class AskedGrids:
    """Grids before they were rounded up to work-groups, by grid and work-group of the launch."""

    def __init__(self) -> None:
        self._grids: dict[tuple[Grid, Grid], Grid] = {}

    def size_grid(self, grid: Grid, group: Grid | None, device: DeviceInfo) -> tuple[Grid, Grid]:
        """As `default_workgroups.size_grid`, noting the grid; of two that round up to one, the smaller."""
        sized = default_workgroups.size_grid(grid, group, device)
        asked = tuple(int(n) for n in grid)
        self._grids[sized] = min(self._grids.get(sized, asked), asked, key=math.prod)
        return sized

    def waves(self, step: LaunchStep, device: DeviceInfo) -> tuple[int, int]:
        """(the fewest waves that hold the launch's work-items, the waves that its work-groups take).

        On an Adreno, kernels whose own groups do not fill full waves ask for half ones (kernels/wave_request.py).
        """
        assert step.group is not None
        items = math.prod(step.group)
        wave = max(device.wave_size, device.full_wave)
        if not step.open_group and items % wave:
            wave = device.wave_size
        groups = math.prod(step.grid) // items
        asked = math.prod(self._grids[step.grid, step.group])
        return -(-asked // wave) * wave, groups * -(-items // wave) * wave

    def share(self, steps: list[LaunchStep], device: DeviceInfo) -> float:
        """The share of its waves that a plan would need if no lanes were idle but in the last wave of each launch."""
        counts = [self.waves(step, device) for step in steps]
        return sum(fewest for fewest, _ in counts) / max(1, sum(taken for _, taken in counts))

    def worst(self, steps: list[LaunchStep], device: DeviceInfo) -> str:
        """The launch with the most idle lanes, for the message of a failing test."""
        step = max(steps, key=lambda s: self.waves(s, device)[1] - self.waves(s, device)[0])
        return f"{step.entry} of {step.node}: {step.grid} by {step.group}, lanes {self.waves(step, device)}"


@contextmanager
def asked_grids() -> Iterator[AskedGrids]:
    """The grids that plans made in the block ask for."""
    found: Any = AskedGrids()
    with pytest.MonkeyPatch.context() as patch:
        for module in (emit_program, program_template):
            patch.setattr(module, "size_grid", found.size_grid)
        yield found
