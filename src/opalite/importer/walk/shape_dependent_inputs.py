"""Shape-dependent inputs: values of a segment that depend on sizes only, computed on the host.

Position ids, masks and lengths are computed once for each choice of sizes. A segment's graph gets them as further
inputs; its exports may contain them too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np

from ...ir import Array, Graph, Node, TensorType, Value
from ...ir.symbols import Rehinted, Substituted, Trace
from .constant_evaluation import evaluate_nodes

_KEPT = 16  # choices of sizes


class ShapeDependentInputs:
    """Computes values from `trace`'s sizes.

    leaves: tensors whose elements are expressions; nodes: the computation on these and on constants, in order; wanted:
    the results by their names in the run.
    """

    def __init__(
        self, trace: Trace, leaves: Mapping[Value, Array], nodes: Sequence[Node], wanted: Mapping[str, Value]
    ) -> None:
        self.trace = trace
        self.leaves = {v: a.reshape(-1).tolist() for v, a in leaves.items()}
        self.nodes = list(nodes)
        self.wanted = dict(wanted)
        self._lock = Lock()
        self._found: OrderedDict[tuple[int, ...], dict[str, Array]] = OrderedDict()

    def at(self, sizes: tuple[int, ...]) -> Mapping[str, Array]:
        """Return the values by name, cached for recently used sizes."""
        with self._lock:
            found = self._found.get(sizes)
            if found is None:
                found = self._found[sizes] = self._compute(sizes)
                if len(self._found) > _KEPT:
                    self._found.popitem(last=False)
            else:
                self._found.move_to_end(sizes)
            return found

    def _compute(self, sizes: tuple[int, ...]) -> dict[str, Array]:
        at = Substituted(self.trace, sizes)
        at.learn([v for row in self.leaves.values() for v in row])
        known = {v: np.array(at(row), v.dtype.np).reshape(v.shape) for v, row in self.leaves.items()}
        arrays = evaluate_nodes(*substitute_sizes(self.nodes, known, list(self.wanted.values()), at))
        return dict(zip(self.wanted, arrays, strict=True))


def substitute_sizes(
    nodes: Sequence[Node], known: Mapping[Value, Array], wanted: Sequence[Value], at: Substituted
) -> tuple[list[Node], dict[Value, Array], list[Value]]:
    """Copy nodes, initial values and results with sizes replaced by numbers."""
    made: dict[Value, Value] = {}

    def copied(v: Value) -> Value:
        if v.is_const:
            return v
        if v not in made:
            made[v] = Value(v.name, TensorType(v.dtype, at(v.shape)))
        return made[v]

    copies = [
        Node(
            at(n.op), [None if v is None else copied(v) for v in n.inputs], [copied(v) for v in n.outputs], name=n.name
        )
        for n in nodes
    ]
    return copies, {copied(v): a for v, a in known.items()}, [copied(v) for v in wanted]


def graph_at(graph: Graph, sizes: tuple[int, ...]) -> Graph:
    """Copy `graph` with its symbols replaced by the numbers `sizes`."""
    assert graph.trace is not None
    return _substituted(graph, Substituted(graph.trace, sizes), None)


def graph_with_hints(graph: Graph, sizes: tuple[int, ...]) -> Graph:
    """Copy `graph` with `sizes` as new hints of its symbols; planning the copy adds guards to the copy only."""
    assert graph.trace is not None
    at = Rehinted(graph.trace, sizes)
    return _substituted(graph, at, at.trace)


def _substituted(graph: Graph, at: Substituted, trace: Trace | None) -> Graph:
    made = graph.copy()
    made.trace = trace
    for v in made.values():
        if not v.is_const:
            v.type = replace(v.type, shape=at(v.shape))
    for node in made.nodes:
        node.op = at(node.op)
    return made
