"""Weight staging: loads weights into host memory after compilation and before device allocation.

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


def stage_weights(
    rt: Runtime,
    planned: Planned,
    notes: tuple[str, ...],
    before: Callable[[], None] | None,
    on_built: OnBuilt | None,
) -> Callable[[Program], None]:
    """The `on_built` of an Executable of `planned`, which references shared weights as long as it lives.

    before: called when all programs have compiled, to free memory. on_built: called with the program and `notes` then,
    with all weights in host memory except those that the device has.
    """
    shared: list[SharedWeight] = []

    def stage(program: Program) -> None:
        shared.extend(filter(None, map(rt.weights.find, planned.weights)))
        if before is not None:
            before()
        planned.load_weights(parallel_map, rt.weights.has)
        if on_built is not None:
            on_built(planned.template or program, notes)

    return stage
