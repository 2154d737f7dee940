"""KernelCandidate: a kernel with a binding, and a copy of the node by itself, its values in that binding's layouts."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.graph import Node, Value
from ..ir.place import FLAT, Layout, Place, Target
from ..kernels.base import Binding, Kernel
from ..ops.elementwise import PlaceCast


@dataclass(frozen=True, eq=False)
class KernelCandidate:
    """One way to compute a node, with the node as that way finds it."""

    kernel: Kernel
    binding: Binding
    node: Node


def place_node(node: Node, binding: Binding) -> Node:
    """A copy of `node` with its values in the layouts of `binding`, float32 stored as its precision says.

    A PlaceCast, whose types are places already, is given back as it is.
    """
    if isinstance(node.op, PlaceCast):
        return node
    made: dict[Value, Value] = {}

    def placed(v: Value | None, layout: Layout | None) -> Value | None:
        if v is None:
            return None
        place = Place(Target.OPENCL, layout or FLAT, node.precision.override(v.dtype) if layout is not None else None)
        if v not in made or made[v].type.place != place:
            made[v] = Value(v.name, v.type.with_place(place), v.held)
        return made[v]

    ins = [placed(v, layout) for v, layout in zip(node.inputs, binding.inputs, strict=True)]
    outs = [
        Value(v.name, v.type.with_place(Place(Target.OPENCL, layout, node.precision.override(v.dtype))))
        for v, layout in zip(node.outputs, binding.outputs, strict=True)
    ]
    return node.with_(inputs=ins, outputs=outs)


def crossing(node: Node, binding: Binding) -> tuple[Layout | None, ...]:
    """The layouts of `binding` that other nodes meet: constants come in any layout for nothing."""
    pairs = zip(node.inputs, binding.inputs, strict=True)
    return (*(None if v is None or v.is_const else layout for v, layout in pairs), *binding.outputs)
