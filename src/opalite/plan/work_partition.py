"""Walks: which launches share out their results over work-groups alike.

Where such launches are linked, a work-group finds what it wrote in one of them in the next without waiting for others
(ptx/step_dependencies.py): of a gated layer of a transformer, the second product reads of the first what the same group
computed.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from ..ir.graph import Node, Value
from ..kernels.codegen.epilogue import is_elementwise, is_operand
from ..kernels.kernel import Kernel, Launch
from ..kernels.kernel_sources import option_text
from ..kernels.lower_arguments import names_of
from .program import ScalarArg, StepArg

NO_WALK = -1
Walks = MutableMapping[tuple[str, ...], int]
"""Numbers of walks, by all that they depend on."""


def find_walk(
    node: Node, kernel: Kernel, launch: Launch, args: Sequence[StepArg], walks: Walks
) -> tuple[int, tuple[int, ...]]:
    """`walk` and `own` of a launch's step, whose arguments are `args`. walks: gets the launch's, if it is new."""
    y, operands = node.outputs[0], node.inputs[node.op.arity :]
    own, numbers, writes = [], [], False
    for i, (name, arg) in enumerate(zip(names_of(kernel, launch), args, strict=True)):
        a = launch.args[name]
        if is_operand(name):
            if isinstance(a, Value) and a in operands and is_elementwise(a, y):
                own.append(i)
        elif a is y:
            own.append(i)
            writes = True
        elif isinstance(arg, ScalarArg):
            numbers.append(str(arg.value))
    if len(node.outputs) > 1 or not writes:
        return NO_WALK, ()
    shared_out = launch.entry, option_text(launch.defines), str(launch.grid), str(launch.group)
    key = (kernel.name, *shared_out, str(y.shape), str(y.type.place), *numbers)
    return walks.setdefault(key, len(walks)), tuple(own)
