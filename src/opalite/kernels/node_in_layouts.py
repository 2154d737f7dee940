"""Copies of a node with its values in the layouts of a binding."""

from __future__ import annotations

from ..ir.graph import Node, Value
from ..ir.place import FLAT, Layout, Place, Target
from ..ops.elementwise import PlaceCast
from .kernel import Binding


def place_node(node: Node, binding: Binding) -> Node:
    """A copy of `node` with values in the layouts of `binding`; float32 is stored as its precision says.

    A PlaceCast is returned unchanged, because its value types already name their layouts.
    """
    if isinstance(node.op, PlaceCast):
        return node
    made: dict[Value, Value] = {}

    def placed(i: int, v: Value | None, layout: Layout | None) -> Value | None:
        if v is None:
            return None
        place = Place(Target.OPENCL, layout or FLAT, node.stored_input(i) if layout is not None else None)
        if v not in made or made[v].type.place != place:
            made[v] = Value(v.name, v.type.with_place(place))
            made[v].share(v)
        return made[v]

    ins = [placed(i, v, at) for i, (v, at) in enumerate(zip(node.inputs, binding.inputs, strict=True))]
    outs = [
        Value(v.name, v.type.with_place(Place(Target.OPENCL, layout, node.precision.override(v.dtype))))
        for v, layout in zip(node.outputs, binding.outputs, strict=True)
    ]
    return node.with_(inputs=ins, outputs=outs)
