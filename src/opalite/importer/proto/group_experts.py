"""Experts of a mixture, unrolled by an exporter, as products with the matrices of the experts that tokens picked.

An unrolled loop finds each expert's tokens by NonZero, so that the number of rows is known after a run alone, and the
model falls into a piece for each expert. Grouped, a layer has static sizes (`microsoft/unrolled_experts.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir import Array
from ...ir.constants.lazy_array import LazyArray
from .constants import Constants
from .expert_loops import GraphIndex, find_expert_loops
from .expert_rows import write_rows
from .graphdef import GraphDef, NodeDef, make_graph
from .sorted_experts import group_sorted_experts


def group_experts(graph: GraphDef) -> GraphDef:
    """Return the graph with grouped experts; the graph itself if it has none that can be grouped."""
    if not any(_has_open_rows(n, graph) for n in graph.nodes):
        return graph
    index = GraphIndex(_with_slices(graph))
    gone: set[NodeDef] = set()
    nodes: list[NodeDef] = []
    for loop in find_expert_loops(index):
        written = write_rows(index, loop)
        if written is not None:
            gone |= {loop.finder, *loop.nodes, *(n for s in loop.steps for n in s.nodes)}
            nodes += written
    for concat, written in group_sorted_experts(index):
        gone.add(concat)
        nodes += written
    if not nodes:
        return graph
    rest = [n for n in index.graph.nodes if n not in gone]  # other experts' nodes are left without a reader
    made = make_graph(graph.name, graph.inputs, graph.outputs, [*rest, *nodes], Constants())
    made = GraphDef(made.name, made.inputs, made.outputs, made.nodes, index.graph.constants)
    return made if set(made.captures) <= set(graph.captures) else graph


def _has_open_rows(node: NodeDef, graph: GraphDef) -> bool:
    """Whether a node gives as many rows as contents say, as the rows of an expert are."""
    splits = node.op_type == "Split" and len(node.inputs) > 1 and node.inputs[1] not in graph.constants
    return not node.domain and (node.op_type == "NonZero" or splits)


def _with_slices(graph: GraphDef) -> GraphDef:
    """Return the graph with constants in place of Gathers of one matrix of a constant."""
    constants, nodes = graph.constants.copy(), []
    for node in graph.nodes:
        number = _slice_of(node, graph)
        if number is None:
            nodes.append(node)
        else:
            constants[node.outputs[0]] = _matrix(graph.constants.held(node.inputs[0]), number)
    return replace(graph, nodes=tuple(nodes), constants=constants) if len(nodes) < len(graph.nodes) else graph


def _slice_of(node: NodeDef, graph: GraphDef) -> int | None:
    """Return which matrix of a constant [experts, rows, columns] a node gathers, else None."""
    if node.op_type != "Gather" or node.domain or node.attrs.get("axis", 0):
        return None
    if any(n not in graph.constants for n in node.inputs) or any(v.name == node.outputs[0] for v in graph.outputs):
        return None
    held, at = (graph.constants.held(n) for n in node.inputs)
    if len(held.shape) != 3 or at.shape != ():
        return None
    number = int(np.asarray(graph.constants[node.inputs[1]]))
    return number + held.shape[0] * (number < 0) if -held.shape[0] <= number < held.shape[0] else None


def _matrix(held: Array | LazyArray, number: int) -> Array | LazyArray:
    if not isinstance(held, LazyArray):
        return np.asarray(held[number])

    def load() -> Array:
        found: Array = held.read_rows(number, number + 1)[0]
        return found

    return LazyArray(held.dtype, held.shape[1:], load, key=(held.key, number))
