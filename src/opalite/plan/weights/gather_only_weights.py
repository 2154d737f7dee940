"""Which weights of a program are tables of which its runs pick rows, and read no others."""

from __future__ import annotations

from ..program import LaunchStep, Program, SlotArg

_PICK = ("Gather", "QuantizedGather")
"""Operators whose kernels read the rows that are named alone."""


def picked_slots(program: Program) -> set[int]:
    """The slots of weights that no launch reads but those of such operators."""
    from ...kernels.kernel_registry import kernels_for  # not where plans are read: importing kernels takes long

    picking = {k.name for op in _PICK for k in kernels_for(op)}
    picked, others = set[int](), set[int]()
    for step in program.steps:
        if isinstance(step, LaunchStep):
            used = {arg.slot for arg in step.args if isinstance(arg, SlotArg)}
            (picked if step.kernel in picking else others).update(used)
    return (picked & program.weights.keys()) - others
