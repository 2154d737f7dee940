"""KernelCandidate: a kernel with a binding, and a copy of the node in that binding's layouts."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.graph import Node
from ..ir.place import Layout
from ..kernels.kernel import Binding, Kernel


@dataclass(frozen=True, eq=False)
class KernelCandidate:
    """One way to compute a node, with the node in its layouts."""

    kernel: Kernel
    binding: Binding
    node: Node


def visible_layouts(node: Node, binding: Binding) -> tuple[Layout | None, ...]:
    """The layouts of `binding` that other nodes see; constants are converted for free."""
    pairs = zip(node.inputs, binding.inputs, strict=True)
    return (*(None if v is None or v.is_const else layout for v, layout in pairs), *binding.outputs)
