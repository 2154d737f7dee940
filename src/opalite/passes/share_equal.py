"""Compute once what several nodes compute alike, as where each layer of a model has its mask, or each of three products
quantises the input that they share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ..ir.graph import Node, Value
from ..ir.patch import Patch
from ..ops.host import HostOp
from ..ops.movement import Pad, Reshape, Slice, Transpose
from .rewrite import Rule, Sweep, joined_origin

_SMALL = 64  # elements of constants that are compared; larger ones are equal where they are one
_FOLDED = Pad | Reshape | Slice | Transpose
_Classes = Mapping[Node, Sequence[Node]]


def share_equal() -> Rule:
    """Rule that lets nodes of equal operators on equal inputs be one.

    What the host computes and what writes into memory that is there stays apart, and so do outputs of the graph, which
    have names of their own, and movements that whoever reads them may take in: with several readers none does.
    """
    sweeps: WeakKeyDictionary[Sweep, _Classes] = WeakKeyDictionary()

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        classes = sweeps.get(sweep)
        if classes is None:
            classes = sweeps[sweep] = _classes(sweep.graph.nodes)
        alike = classes.get(node, ())
        if isinstance(node.op, _FOLDED) or len(alike) < 2:
            return None
        others = [n for n in alike if n is not node and sweep.exposed.isdisjoint(n.outputs)]
        if not others:
            return None
        made = node.with_(origin=joined_origin(node, *others))
        replace = {old: new for n in (node, *others) for old, new in zip(n.outputs, made.outputs, strict=True)}
        return Patch([node, *others], [made], replace)

    return rule


def _classes(nodes: Sequence[Node]) -> _Classes:
    """All nodes that compute what a node does, itself included; none for those that stay apart.

    By numbers of values, in order of execution: equal operators on values of equal numbers give such.
    """
    numbers: dict[Hashable, Hashable] = {}
    known: dict[Hashable, list[tuple[Node, list[Node]]]] = {}
    found: dict[Node, list[Node]] = {}
    for node in nodes:
        if node.op.in_place or isinstance(node.op, HostOp) or node.epilogue is not None:
            continue
        key = type(node.op), node.precision, len(node.outputs), tuple(_number(v, numbers) for v in node.inputs)
        candidates = known.setdefault(key, [])
        # Numbers that compare equal, as 0.0 and -0.0 do, may be written differently.
        alike = next((c for n, c in candidates if n.op == node.op and repr(n.op) == repr(node.op)), None)
        if alike is None:
            alike = []
            candidates.append((node, alike))
        alike.append(node)
        found[node] = alike
        numbers |= dict(zip(node.outputs, alike[0].outputs, strict=True))
    return found


def _number(v: Value | None, numbers: Mapping[Hashable, Hashable]) -> Hashable:
    held = None if v is None or v.levels is not None else v.held
    if isinstance(held, np.ndarray) and held.size <= _SMALL and v is not None:
        return v.dtype, held.shape, held.tobytes()
    return numbers.get(v, v)
