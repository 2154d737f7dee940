"""Work partitions: groups of launches that divide their outputs among work-groups in the same way.

If such launches are linked into a persistent kernel, a work-group reads its own part of an earlier launch's output
without waiting for other groups (ptx/step_dependencies.py): in a transformer's gated layer, the second product reads
what the same group computed in the first.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from ..ir.graph import Node, Value
from ..kernels.codegen.epilogue import is_elementwise, is_operand
from ..kernels.kernel import Kernel
from ..kernels.kernel_sources import option_text
from ..kernels.launch import Launch
from ..kernels.lower_arguments import names_of
from .program import ScalarArg, StepArg

NO_PARTITION = -1
Walks = MutableMapping[tuple[str, ...], int]
"""Partition numbers, by everything that decides the partition."""


def find_work_partition(
    node: Node, kernel: Kernel, launch: Launch, args: Sequence[StepArg], walks: Walks
) -> tuple[int, tuple[int, ...]]:
    """(`walk`, `own`) of the LaunchStep of `launch` with arguments `args`; adds a new partition to `walks`."""
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
        return NO_PARTITION, ()
    shared_out = launch.entry, option_text(launch.defines), str(launch.grid), str(launch.group)
    key = (kernel.name, *shared_out, str(y.shape), str(y.type.place), *numbers)
    return walks.setdefault(key, len(walks)), tuple(own)
