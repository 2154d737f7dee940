"""WeightStaging: loads weights into host memory after compilation and before device allocation.

Weights that the device has are skipped. When a new plan replaces an old one, shared weights stay referenced while the
old plan frees the rest.
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
"""Called with a program, or its template, and with notes on it."""


class WeightStaging:
    """An Executable's `on_built`. References shared weights as long as it lives."""

    def __init__(
        self,
        rt: Runtime,
        planned: Planned,
        notes: tuple[str, ...],
        before: Callable[[], None] | None,
        on_built: OnBuilt | None,
    ) -> None:
        """before: called when all programs have compiled, to free memory. on_built: called with the program then, with
        all weights in host memory except those that the device has.
        """
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
