"""Nodes that both readers make: Paddle's operators with named slots, and ONNX's If and Loop for blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import AttributeProto, defs

from ....errors import ModelFormatError
from ....ir import DType
from ...proto.constants import Constants
from ...proto.decode import ValueInfo
from ...proto.graphdef import Attr, GraphDef, NodeDef, make_graph
from ...proto.op_schemas import PADDLE

DEEPEST = 32
"""Most blocks inside one another."""

Slots = Sequence[tuple[str | int, str]]
"""Values with the name of the operator's argument that each belongs to, or its number."""


@dataclass
class Program:
    """Contents of a program file: nodes, inputs, outputs and names of parameters."""

    nodes: list[NodeDef] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    params: list[str] = field(default_factory=list)


def port(name: str, dtype: DType | None, shape: Iterable[int]) -> ValueInfo:
    """Return the declaration of an input or output; negative sizes are open."""
    return ValueInfo(name, "tensor", dtype, tuple(None if d < 0 else d for d in shape))


def paddle_nodes(op_type: str, inputs: Slots, outputs: Slots, attrs: Mapping[str, Any]) -> list[NodeDef]:
    """Make the node of an operator of Paddle, or ONNX's nodes where the size of its result depends on data."""
    if op_type in _BY_DATA:
        return _BY_DATA[op_type](dict(inputs), dict(outputs), attrs)
    slots = {"in_slots": tuple(slot for slot, _ in inputs), "out_slots": tuple(slot for slot, _ in outputs)}
    made = tuple(name for _, name in outputs)
    attributes = {k: Attr(0, v) for k, v in {**attrs, **slots}.items()}
    return [NodeDef(op_type, PADDLE, 1, next(filter(None, made), ""), tuple(n for _, n in inputs), made, attributes)]


def onnx_node(op_type: str, inputs: Iterable[str], outputs: Iterable[str], **attrs: Any) -> NodeDef:
    """Make a node of ONNX's newest opset."""
    made = tuple(outputs)
    attributes = {k: Attr(_attribute_type(v), v) for k, v in attrs.items()}
    return NodeDef(op_type, "", defs.onnx_opset_version(), made[0] if made else "", tuple(inputs), made, attributes)


def _attribute_type(value: Any) -> int:
    """Return ONNX's number for the type of an attribute."""
    if isinstance(value, GraphDef):
        return int(AttributeProto.GRAPH)
    return int(AttributeProto.INTS if isinstance(value, tuple) else AttributeProto.INT)


def branch(name: str, nodes: Sequence[NodeDef], results: Sequence[str]) -> GraphDef:
    """Make the graph of a block that an If takes."""
    return make_graph(name, (), tuple(map(ValueInfo, results)), nodes, Constants())


def loop(
    condition: str,
    state: Sequence[str],
    carried: Sequence[str],
    nodes: Sequence[NodeDef],
    results: Sequence[str],
    outputs: Sequence[str],
) -> NodeDef:
    """Make a Loop that runs while `condition`. carried: names of the state within; results: condition, next state."""
    ports = (("count", DType.INT64), ("going", DType.BOOL))
    inputs = [ValueInfo(f"{outputs[0]}/{name}", "tensor", dtype, ()) for name, dtype in ports]
    inputs += map(ValueInfo, carried)
    body = make_graph("body", tuple(inputs), tuple(map(ValueInfo, results)), nodes, Constants())
    if not _may_end(body, carried):
        raise ModelFormatError(
            f"the loop that gives '{outputs[0]}' would never end: its condition depends on nothing new"
        )
    return onnx_node("Loop", ["", condition, *state], outputs, body=body)


def _may_end(body: GraphDef, carried: Sequence[str]) -> bool:
    """Whether the condition of a loop's body depends on a value that its iterations change."""
    made = {name: node for node in body.nodes for name in node.outputs}
    waiting, seen = [body.outputs[0].name], set(carried)
    changed = {name for name, v in zip(carried, body.outputs[1:], strict=False) if v.name != name}
    while waiting:
        name = waiting.pop()
        if name in changed:
            return True
        if name in made and name not in seen:
            seen.add(name)
            waiting += made[name].reads
    return False


# Sizes that depend on data: the host runs such operators, as ONNX's


Named = Mapping[str | int, str]


def _nonzero(inputs: Named, outputs: Named, attrs: Mapping[str, Any]) -> list[NodeDef]:
    (x,), (out,) = inputs.values(), outputs.values()
    return [
        onnx_node("NonZero", [x], [f"{out}/columns"]),
        onnx_node("Transpose", [f"{out}/columns"], [out], perm=(1, 0)),
    ]


def _masked_select(inputs: Named, outputs: Named, attrs: Mapping[str, Any]) -> list[NodeDef]:
    x, mask = (inputs.get(i) or inputs[name] for i, name in enumerate(("x", "mask")))
    (out,) = outputs.values()
    shape, wide, axis = f"{out}/shape", f"{out}/mask", f"{out}/axis"
    nodes = [
        onnx_node("Shape", [x], [shape]),
        onnx_node("Expand", [mask, shape], [wide]),
        onnx_node("Constant", [], [axis], value_ints=(0,)),
    ]
    for value, flat in ((x, f"{out}/flat"), (wide, f"{out}/flat mask")):
        nodes += [
            onnx_node("Flatten", [value], [f"{flat} row"], axis=0),
            onnx_node("Squeeze", [f"{flat} row", axis], [flat]),
        ]
    return [*nodes, onnx_node("Compress", [f"{out}/flat", f"{out}/flat mask"], [out], axis=0)]


def _unique(inputs: Named, outputs: Named, attrs: Mapping[str, Any]) -> list[NodeDef]:
    axis = attrs.get("axis") or ()
    # The slot Index of a ProgramDesc is the way back.
    names = [outputs.get(i) or outputs.get(name, "") for i, name in enumerate(("out", "indices", "index", "counts"))]
    (x,) = inputs.values()
    return [onnx_node("Unique", [x], names, sorted=1, **({"axis": int(axis[0])} if axis else {}))]


_BY_DATA = {
    "nonzero": _nonzero,
    "where_index": _nonzero,
    "masked_select": _masked_select,
    "unique": _unique,
}
