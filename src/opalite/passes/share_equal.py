"""Compute once what several nodes compute alike, as where each layer of a model has its mask, or each of three products
quantises the input that they share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ..ir.graph import Node, Value
from ..ir.patch import Patch
from ..ops.append import Append
from ..ops.host import HostOp
from .rewrite import Rule, Sweep, joined_origin

_SMALL = 64  # elements of constants that are compared; larger ones are equal where they are one


def share_equal() -> Rule:
    """Rule that lets nodes of equal operators on equal inputs be one.

    What the host computes and what writes into memory that is there stays apart, and so do outputs of the graph, which
    have names of their own.
    """
    sweeps: WeakKeyDictionary[Sweep, dict[Hashable, list[Node]]] = WeakKeyDictionary()

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        groups = sweeps.get(sweep)
        if groups is None:
            groups = sweeps[sweep] = _groups(sweep.graph.nodes)
        alike = groups.get(_key(node), ())
        if len(alike) < 2 or isinstance(node.op, Append | HostOp):
            return None
        own = repr(node.op)
        others = [n for n in alike if n is not node and _is_equal(n, node, own) and sweep.exposed.isdisjoint(n.outputs)]
        if not others:
            return None
        made = node.with_(origin=joined_origin(node, *others))
        replace = {old: new for n in (node, *others) for old, new in zip(n.outputs, made.outputs, strict=True)}
        return Patch([node, *others], [made], replace)

    return rule


def _groups(nodes: Sequence[Node]) -> dict[Hashable, list[Node]]:
    found: dict[Hashable, list[Node]] = {}
    for node in nodes:
        found.setdefault(_key(node), []).append(node)
    return found


def _key(node: Node) -> Hashable:
    """What equal nodes have in common and is soon found: the kind of operator, and the inputs."""
    return type(node.op), tuple(map(_input_key, node.inputs))


def _input_key(v: Value | None) -> Hashable:
    held = None if v is None or v.levels is not None else v.held
    if v is None or not isinstance(held, np.ndarray) or held.size > _SMALL:
        return v
    return v.dtype, held.shape, held.tobytes()


def _is_equal(a: Node, b: Node, text: str) -> bool:
    """text: b's operator. Numbers that compare equal, as 0.0 and -0.0 do, may be written differently."""
    if len(a.outputs) != len(b.outputs) or a.precision is not b.precision or a.epilogue is not None:
        return False
    return b.epilogue is None and a.op == b.op and repr(a.op) == text
