"""WeightStaging: the step between the programs of an Executable and its memory, in which weights come to be in the
host's.

What the device has is not made again. A plan that takes another's place may need what that one has, so it is held while
the other lets go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ....cl.memory.shared_weights import SharedWeight
from ....cl.programs.build_parallelism import parallel_map
from ....cl.runtime import Runtime
from ....plan.program import Program

if TYPE_CHECKING:
    from ....plan.planner import Planned
    from ....plan.template.program_template import Template

OnBuilt: TypeAlias = "Callable[[Program | Template, tuple[str, ...]], None]"
"""Told of a program, or its template, and of notes on it."""


class WeightStaging:
    """An Executable's `on_built`; what it holds goes with it."""

    def __init__(
        self,
        rt: Runtime,
        planned: Planned,
        notes: tuple[str, ...],
        before: Callable[[], None] | None,
        on_built: OnBuilt | None,
    ) -> None:
        """before: called when all has compiled, to let go of memory. on_built: told of the program then, with all of
        its weights but those that the device has in memory."""
        self._weights = rt.weights
        self._planned, self._notes = planned, notes
        self._before, self._on_built = before, on_built
        self._held: list[SharedWeight] = []

    def __call__(self, program: Program) -> None:
        planned = self._planned
        self._held.extend(filter(None, map(self._weights.find, planned.weights)))
        if self._before is not None:
            self._before()
        planned.load_weights(parallel_map, self._weights.has)
        if self._on_built is not None:
            self._on_built(planned.template or program, self._notes)
