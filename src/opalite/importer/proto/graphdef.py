"""GraphDef and NodeDef: an ONNX graph as Python data, checked and in execution order.

Neither refers to a protobuf message. The memory of the message can be freed, and importing the graph for new input
shapes is fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

import onnx

from ...errors import ModelFormatError, UnsupportedOpError
from ...ir import Array
from ...ir.constants.model_file import FilePart
from .constants import Constants
from .decode import TensorReader, ValueInfo, decode_type

DOMAIN = "opalite"
"""Domain of Opalite's internal operators."""

Opsets = Mapping[str, int]
_A = onnx.AttributeProto


def plain_domain(domain: str) -> str:
    """Normalise a domain name: 'ai.onnx' becomes the default domain ''."""
    return "" if domain == "ai.onnx" else domain


@dataclass(frozen=True)
class AttrRef:
    """Attribute of a node in a function body: its value is the function's attribute `name`."""

    name: str


@dataclass(frozen=True)
class Attr:
    """Decoded attribute: ONNX type number and value (int, float, str, tuple of these, ndarray, GraphDef...)."""

    type: int
    value: Any


@dataclass(eq=False)
class NodeDef:
    """One ONNX node. used: for each output, whether it has a reader; reads: inputs and captured names."""

    op_type: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attr] = field(default_factory=dict)
    overload: str = ""
    opsets: Opsets = field(default_factory=dict)
    used: tuple[bool, ...] = ()

    @cached_property
    def attrs(self) -> dict[str, Any]:
        """Attribute values by name."""
        return {k: a.value for k, a in self.attributes.items()}

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache of values that importer functions compute from the attributes."""
        return {}

    @cached_property
    def graphs(self) -> tuple[GraphDef, ...]:
        """Inner graphs: branches and loop bodies."""
        return tuple(a.value for a in self.attributes.values() if isinstance(a.value, GraphDef))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """All names that the node needs, inputs first."""
        captured = (n for g in self.graphs for n in g.captures)
        return tuple(dict.fromkeys(n for n in (*self.inputs, *captured) if n))

    @property
    def label(self) -> str:
        """Name of the node in messages."""
        return f"{self.op_type} node '{self.name or next((o for o in self.outputs if o), '')}'"


@dataclass(eq=False)
class GraphDef:
    """Inputs, constants (initializers and Constant nodes) and used nodes of one graph, in execution order."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[NodeDef, ...]
    constants: Constants

    @cached_property
    def captures(self) -> tuple[str, ...]:
        """Names of the outer graph that this graph reads."""
        own = {v.name for v in self.inputs} | self.constants.keys() | {o for n in self.nodes for o in n.outputs}
        read = [n for node in self.nodes for n in node.reads] + [v.name for v in self.outputs]
        return tuple(dict.fromkeys(n for n in read if n and n not in own))

    @cached_property
    def size(self) -> int:
        """Number of nodes, including inner graphs."""
        return sum(1 + sum(g.size for g in node.graphs) for node in self.nodes)

    def bind(self, attributes: Mapping[str, Attr]) -> GraphDef:
        """Return a copy with references to function attributes replaced by `attributes`; unset ones are removed."""
        nodes = [_bind_node(node, attributes) for node in self.nodes]
        constants = self.constants.copy()
        return replace(self, nodes=tuple(_extract_constants(nodes, constants)), constants=constants)


def parse_graph(
    proto: Any, opsets: Opsets, reader: TensorReader, weights: Mapping[int, memoryview | FilePart] | None = None
) -> GraphDef:
    """Return the GraphDef of a GraphProto; ModelFormatError for a name defined twice or a cycle.

    `weights` holds data that was extracted from the message, by initializer number.
    """
    taken = weights or {}
    constants = Constants({t.name: reader.held(t, taken.get(i)) for i, t in enumerate(proto.initializer)})
    constants.update((t.values.name, reader.sparse(t)) for t in proto.sparse_initializer)
    inputs = tuple(decode_type(v.type, v.name) for v in proto.input)
    outputs = tuple(decode_type(v.type, v.name) for v in proto.output)
    nodes = [parse_node(n, opsets, reader) for n in proto.node]
    return make_graph(proto.name, inputs, outputs, nodes, constants)


def parse_function(
    proto: Any, reader: TensorReader, outer: Opsets | None = None
) -> tuple[GraphDef, dict[str, Attr | None]]:
    """Return the body of a FunctionProto, and its attributes with their defaults (None: no default).

    `outer` holds opset versions of domains that the function does not import itself.
    """
    opsets = {**(outer or {}), **read_opsets(proto.opset_import)}
    nodes = [parse_node(n, opsets, reader) for n in proto.node]
    inputs = tuple(ValueInfo(n) for n in proto.input)
    outputs = tuple(ValueInfo(n) for n in proto.output)
    attributes: dict[str, Attr | None] = dict.fromkeys(proto.attribute)
    attributes.update((a.name, parse_attribute(a, opsets, reader)) for a in proto.attribute_proto)
    return make_graph(proto.name, inputs, outputs, nodes, Constants()), attributes


def read_opsets(imports: Any) -> dict[str, int]:
    """Return the opset version of each domain."""
    return {plain_domain(o.domain): int(o.version) for o in imports}


def make_graph(
    name: str,
    inputs: tuple[ValueInfo, ...],
    outputs: tuple[ValueInfo, ...],
    nodes: Sequence[NodeDef],
    constants: Constants,
) -> GraphDef:
    """Make a checked GraphDef: nodes sorted, unused ones removed, Constant nodes converted to constants."""
    _check_names(name, inputs, nodes, constants)
    rest = _extract_constants(nodes, constants)
    order = _mark_used(_sort_nodes(name, rest), [v.name for v in outputs])
    return GraphDef(name, inputs, outputs, tuple(order), constants)


def parse_node(proto: Any, opsets: Opsets, reader: TensorReader) -> NodeDef:
    """Return the NodeDef of a NodeProto."""
    domain = plain_domain(proto.domain)
    return NodeDef(
        proto.op_type,
        domain,
        opsets.get(domain, 1 if domain else max(opsets.get("", 0), 1)),
        proto.name,
        tuple(proto.input),
        tuple(proto.output),
        {a.name: parse_attribute(a, opsets, reader) for a in proto.attribute},
        proto.overload if "overload" in _NODE_FIELDS else "",
        opsets,
    )


_NODE_FIELDS = {f.name for f in onnx.NodeProto.DESCRIPTOR.fields}


def parse_attribute(proto: Any, opsets: Opsets, reader: TensorReader) -> Attr:
    """Return the decoded value of an AttributeProto."""
    if proto.ref_attr_name:
        return Attr(proto.type, AttrRef(proto.ref_attr_name))
    kind = proto.type or _guess_type(proto)
    decode = _DECODERS.get(kind)
    if decode is not None:
        return Attr(kind, decode(proto, reader))
    if kind == _A.GRAPH:
        return Attr(kind, parse_graph(proto.g, opsets, reader))
    if kind == _A.GRAPHS:
        return Attr(kind, tuple(parse_graph(g, opsets, reader) for g in proto.graphs))
    raise ModelFormatError(f"attribute '{proto.name}' has the unknown type {kind}")


_DECODERS: dict[int, Any] = {
    _A.INT: lambda a, r: int(a.i),
    _A.FLOAT: lambda a, r: float(a.f),
    _A.STRING: lambda a, r: _text(a.s),
    _A.INTS: lambda a, r: tuple(a.ints),
    _A.FLOATS: lambda a, r: tuple(a.floats),
    _A.STRINGS: lambda a, r: tuple(map(_text, a.strings)),
    _A.TENSOR: lambda a, r: r.dense(a.t),
    _A.TENSORS: lambda a, r: tuple(map(r.dense, a.tensors)),
    _A.SPARSE_TENSOR: lambda a, r: r.sparse(a.sparse_tensor),
    _A.SPARSE_TENSORS: lambda a, r: tuple(map(r.sparse, a.sparse_tensors)),
    _A.TYPE_PROTO: lambda a, r: _copy(a.tp),
    _A.TYPE_PROTOS: lambda a, r: tuple(map(_copy, a.type_protos)),
}


def _copy(proto: Any) -> Any:
    """Copy a TypeProto, so that the model's message can be freed."""
    return type(proto).FromString(proto.SerializeToString())


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _guess_type(proto: Any) -> int:
    """Infer the attribute type from the field that is set: files of IR version 1 omit the type."""
    fields = (("f", _A.FLOAT), ("i", _A.INT), ("s", _A.STRING), ("t", _A.TENSOR), ("g", _A.GRAPH))
    lists = (("floats", _A.FLOATS), ("ints", _A.INTS), ("strings", _A.STRINGS), ("tensors", _A.TENSORS))
    for name, kind in fields:
        if proto.HasField(name):
            return int(kind)
    return int(next((kind for name, kind in lists if len(getattr(proto, name))), _A.INTS))


# Structure


def _check_names(
    graph: str, inputs: Sequence[ValueInfo], nodes: Sequence[NodeDef], constants: Mapping[str, Array]
) -> None:
    defined: dict[str, str] = {}
    for v in inputs:
        if v.name in defined:
            raise ModelFormatError(f"graph '{graph}' has two inputs named '{v.name}'")
        defined[v.name] = "a graph input"
    defined.update((name, "an initializer") for name in constants)
    for node in nodes:
        for out in node.outputs:
            if out and out in defined:
                raise ModelFormatError(
                    f"{node.label} defines '{out}', which {defined[out]} of graph '{graph}' defines already: "
                    "every name may be defined once"
                )
            defined[out] = node.label


def _sort_nodes(graph: str, nodes: Sequence[NodeDef]) -> list[NodeDef]:
    """Sort nodes into execution order; keep the given order if it is valid."""
    producer = {out: node for node in nodes for out in node.outputs if out}
    state: dict[NodeDef, bool] = {}  # False: being visited, True: done
    order: list[NodeDef] = []
    for root in nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            if state.get(node):
                stack.pop()
                continue
            waiting = [producer[n] for n in node.reads if n in producer and not state.get(producer[n])]
            if not waiting:
                state[node] = True
                order.append(node)
                stack.pop()
                continue
            state[node] = False
            for other in waiting:
                if state.get(other) is False:
                    raise ModelFormatError(
                        f"graph '{graph}' has a cycle: {node.label} reads an output of {other.label}, "
                        "which depends on it"
                    )
            stack.extend(reversed(waiting))
    return order


def _mark_used(nodes: Sequence[NodeDef], outputs: Sequence[str]) -> list[NodeDef]:
    """Return the nodes that `outputs` depend on, with `used` set."""
    needed = set(outputs)
    kept: list[NodeDef] = []
    for node in reversed(nodes):
        node.used = tuple(bool(o) and o in needed for o in node.outputs)
        if any(node.used):
            kept.append(node)
            needed.update(node.reads)
    return kept[::-1]


def _bind_node(node: NodeDef, attributes: Mapping[str, Attr]) -> NodeDef:
    bound: dict[str, Attr] = {}
    for name, attr in node.attributes.items():
        if isinstance(attr.value, AttrRef):
            if attr.value.name in attributes:
                bound[name] = attributes[attr.value.name]
        elif isinstance(attr.value, GraphDef):
            bound[name] = replace(attr, value=attr.value.bind(attributes))
        else:
            bound[name] = attr
    return replace(node, attributes=bound)


def _extract_constants(nodes: Sequence[NodeDef], constants: Constants) -> list[NodeDef]:
    """Move the values of Constant nodes to `constants`; return the other nodes."""
    rest = []
    for node in nodes:
        if node.op_type == "Constant" and not node.domain and node.outputs and not _has_refs(node):
            constants[node.outputs[0]] = constant_value(node)
        else:
            rest.append(node)
    return rest


def _has_refs(node: NodeDef) -> bool:
    return any(isinstance(a.value, AttrRef) for a in node.attributes.values())


def constant_value(node: NodeDef) -> Array:
    """Return the tensor of a Constant node."""
    for name, value in node.attrs.items():
        if name in ("value", "sparse_value"):
            return np.asarray(value)
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if name in ("value_string", "value_strings"):
            return np.asarray(value, object)
    raise UnsupportedOpError(f"{node.label} holds no value of a known kind: its attributes are {list(node.attrs)}")
