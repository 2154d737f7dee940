"""Common-subexpression elimination: equal nodes on equal inputs become one.

Exporters repeat masks in each layer, and the quantization of a shared input in each product.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ops.data_movement import Pad, Reshape, Slice, Transpose
from ...ops.host import HostOp
from ...ops.operator import Op
from ..rewrite_driver import Rule, Sweep, joined_origin

_SMALL = 64  # constants of at most this many elements are compared by contents, larger ones by identity
_FOLDED = Pad | Reshape | Slice | Transpose


@dataclass
class _Class:
    """Nodes that compute the same; `inner` are those without an output of the graph."""

    nodes: list[Node] = field(default_factory=list)
    inner: list[Node] = field(default_factory=list)


def merge_equal_nodes() -> Rule:
    """Rule that merges nodes with equal operators and equal inputs.

    Excluded are host nodes, in-place writes, outputs of the graph (which have names), and movements that a
    reader may absorb, because a movement with several readers is not absorbed.
    """
    sweeps: WeakKeyDictionary[Sweep, Mapping[Node, _Class]] = WeakKeyDictionary()

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        classes = sweeps.get(sweep)
        if classes is None:
            classes = sweeps[sweep] = _classes(sweep.graph.nodes, sweep.exposed)
        alike = classes.get(node)
        if isinstance(node.op, _FOLDED) or alike is None or len(alike.nodes) < 2:
            return None
        others = [n for n in alike.inner if n is not node]
        if not others:
            return None
        made = node.with_(origin=joined_origin(node, *others))
        replace = {old: new for n in (node, *others) for old, new in zip(n.outputs, made.outputs, strict=True)}
        return Patch([node, *others], [made], replace)

    return rule


def _classes(nodes: Sequence[Node], exposed: Set[Value]) -> Mapping[Node, _Class]:
    """The equivalence class of each node, by value numbering in execution order; none for excluded nodes."""
    numbers: dict[Hashable, Hashable] = {}
    known: dict[Hashable, _Operators] = {}
    found: dict[Node, _Class] = {}
    for node in nodes:
        if node.op.in_place or isinstance(node.op, HostOp) or node.epilogue is not None:
            continue
        key = type(node.op), node.precision, len(node.outputs), tuple(_number(v, numbers) for v in node.inputs)
        alike = found[node] = known.setdefault(key, _Operators()).class_of(node.op)
        alike.nodes.append(node)
        if exposed.isdisjoint(node.outputs):
            alike.inner.append(node)
        for own, first in zip(node.outputs, alike.nodes[0].outputs, strict=True):
            numbers[own] = first
    return found


class _Operators:
    """Classes of nodes of one operator type on the same inputs, by operator."""

    def __init__(self) -> None:
        self._first: tuple[Op, _Class] | None = None
        self._by_text: dict[str, list[tuple[Op, _Class]]] = {}

    def class_of(self, op: Op) -> _Class:
        if self._first is None:  # most have a single node, and need no text
            self._first = op, _Class()
            return self._first[1]
        if not self._by_text:
            self._by_text[repr(self._first[0])] = [self._first]
        # 0.0 and -0.0 compare equal but have different texts.
        written = self._by_text.setdefault(repr(op), [])
        found = next((each for other, each in written if other == op), None)
        if found is None:
            found = _Class()
            written.append((op, found))
        return found


def _number(v: Value | None, numbers: Mapping[Hashable, Hashable]) -> Hashable:
    held = None if v is None or v.quantized is not None else v.lazy_data
    if isinstance(held, np.ndarray) and held.size <= _SMALL and v is not None:
        return v.dtype, held.shape, held.tobytes()
    return numbers.get(v, v)
