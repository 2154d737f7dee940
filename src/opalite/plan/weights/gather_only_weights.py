"""Gather-only weights: tables of which a program's runs read only selected rows."""

from __future__ import annotations

from ..program import LaunchStep, Program, SlotArg

_PICK = ("Gather", "QuantizedGather")
"""Operators whose kernels read only selected rows."""


def picked_slots(program: Program) -> set[int]:
    """Slots of weights that only such operators read."""
    from ...kernels.kernel import kernels_for  # lazy: reading plans must not import kernels, which is slow

    picking = {k.name for op in _PICK for k in kernels_for(op)}
    picked, others = set[int](), set[int]()
    for step in program.steps:
        if isinstance(step, LaunchStep):
            used = {arg.slot for arg in step.args if isinstance(arg, SlotArg)}
            (picked if step.kernel in picking else others).update(used)
    return (picked & program.weights.keys()) - others
