"""OriginalGraph: the nodes of the model as its file has them, with shapes, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..importer.proto.decode import ValueInfo
from ..importer.proto.graphdef import GraphDef, NodeDef
from ..ir.constants.lazy_array import LazyArray
from ..ir.dtype import DType
from ..ir.graph import Graph
from ..plan.program import NodeReport

Key = tuple[str, str]
"""Operator and name of a node, as in `Origin`."""

_LONGEST = 60  # characters of an attribute
_SIZES = frozenset({"Shape", "Size"})


@dataclass
class ModelNode:
    """One node of the model. scope: the node of control flow in whose body it is, '' for the model's own graph.

    within: that node's number. follows: 'constants' or 'sizes' if its results follow from these alone, else ''.
    """

    op: str
    name: str
    scope: str
    attributes: dict[str, str]
    inputs: list[str]
    outputs: list[str]
    follows: str = ""
    has_bodies: bool = False
    within: int | None = None


@dataclass
class OriginalGraph:
    """Nodes in the file's order, types by name of the tensor, and edges between numbers of nodes.

    inputs, outputs: names of the model's own tensors.
    """

    nodes: list[ModelNode] = field(default_factory=list)
    tensors: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: list[tuple[int, int, str]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}

    def add(self, node: ModelNode) -> int:
        """Append a node; returns its number."""
        self._numbers.setdefault(node.name, []).append(len(self.nodes))
        self.nodes.append(node)
        return len(self.nodes) - 1

    def find(self, keys: Iterable[Key]) -> list[int]:
        """Numbers of the nodes with these keys.

        Of several nodes with one name, those of the operator; an operator made of others has its own name alone. The
        name of a function's call precedes those of the nodes in its body.
        """
        found: set[int] = set()
        for op, name in keys:
            while name not in self._numbers and "/" in name:
                name = name.rpartition("/")[0]
            named = self._numbers.get(name, [])
            exact = [n for n in named if self.nodes[n].op == op]
            found.update(exact if len(named) > 1 and exact else named)
        return sorted(found)


def original_graph(model: GraphDef, imported: Sequence[Graph]) -> OriginalGraph:
    """The graph of a model. imported: its segments with plain sizes, which know the types of values."""
    found = OriginalGraph()
    types = {v.name: (v.dtype, v.shape) for graph in imported for v in graph.values()}
    _add_graph(found, model, "", {}, {}, types)
    found.inputs = [v.name for v in model.inputs if v.name not in model.constants]
    found.outputs = [v.name for v in model.outputs]
    return found


def graph_of_reports(reports: Iterable[NodeReport]) -> OriginalGraph:
    """The nodes that a bundle still knows, without tensors and edges."""
    found = OriginalGraph()
    for op, name in dict.fromkeys(key for r in reports for key in r.model_nodes):
        found.add(ModelNode(op, name, "", {}, [], []))
    return found


def _add_graph(
    found: OriginalGraph,
    graph: GraphDef,
    scope: str,
    makers: Mapping[str, tuple[str, int | None]],
    follows: Mapping[str, str],
    types: Mapping[str, tuple[DType, Sequence[Any]]],
    within: int | None = None,
) -> None:
    """Add a graph and its bodies. makers: the tensor's name in the document and its node, of outer names.

    within: the number of the node whose body the graph is.
    """
    own, known = dict(makers), dict(follows)

    def declare(name: str, kind: str, info: tuple[DType | None, Sequence[Any] | None], maker: int | None) -> None:
        unique = name if name not in found.tensors else f"{scope}/{name}"
        own[name] = unique, maker
        dtype, shape = types.get(name, info)
        sizes = None if shape is None else [d if isinstance(d, int) else str(d) for d in shape]
        text = "" if sizes is None else "x".join(map(str, sizes))
        about = {"dtype": dtype.short if dtype else "", "shape": text, "kind": kind}
        found.tensors[unique] = about if sizes is None else about | {"sizes": sizes}

    for info in graph.inputs:
        declare(info.name, "input", _declared(info), None)
    for name in graph.constants:
        held = graph.constants.held(name)
        declare(name, "constant", (DType.of(held), held.shape), None)
        known[name] = "constants"
    ends = {v.name: _declared(v) for v in graph.outputs}
    for node in graph.nodes:
        reads = [own.get(n, (n, None)) for n in node.reads]
        made = _node(node, scope, [unique for unique, _ in reads])
        made.follows, made.within = _follows(node, known), within
        number = found.add(made)
        found.edges.extend((maker, number, unique) for unique, maker in reads if maker is not None)
        for name in filter(None, node.outputs):
            declare(name, "output" if name in ends and not scope else "value", ends.get(name, (None, None)), number)
            made.outputs.append(own[name][0])
            if made.follows:
                known[name] = made.follows
        for attribute, body in _attributes(node):
            if isinstance(body, GraphDef):
                inner = f"{node.label}, {attribute}" if len(node.graphs) > 1 else node.label
                _add_graph(found, body, f"{scope}/{inner}" if scope else inner, own, known, types, number)


def _attributes(onnx_node: NodeDef) -> Iterable[tuple[str, Any]]:
    return onnx_node.attrs.items()


def _node(node: NodeDef, scope: str, reads: list[str]) -> ModelNode:
    name = node.name or next((o for o in node.outputs if o), "")
    attributes = {k: _short(v) for k, v in _attributes(node)}
    return ModelNode(node.op_type, name, scope, attributes, reads, [], has_bodies=bool(node.graphs))


def _follows(node: NodeDef, known: Mapping[str, str]) -> str:
    """'constants' or 'sizes' if all that the node reads follows from these, else ''."""
    if node.op_type in _SIZES:
        return "sizes"
    kinds = {known.get(n, "") for n in node.reads}
    if "" in kinds:
        return ""
    return "sizes" if "sizes" in kinds else "constants"


def _declared(info: ValueInfo) -> tuple[DType | None, Sequence[Any] | None]:
    shape = None if info.shape is None else ["?" if d is None else d for d in info.shape]
    return info.dtype, shape


def _short(value: Any) -> str:
    """An attribute in a few words."""
    if isinstance(value, GraphDef):
        return f"graph of {len(value.nodes)} nodes"
    if isinstance(value, LazyArray) or (isinstance(value, np.ndarray) and value.size > 4):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = str(value.tolist()) if isinstance(value, np.ndarray) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
