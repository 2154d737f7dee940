"""Lift scalars: where many expressions differ in literals only, these become operands, and all share one program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from ...expr.expression import Expr, In, Lit, Ref
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.tensor_type import TensorType
from ...ops.elementwise import Elementwise
from ..rewrite_driver import Rule, Sweep
from .fuse_elementwise import MAX_OPERANDS

MANY = 32
"""Expressions from which on a program for each costs more than operands."""

_PLAIN = ("add", "sub", "mul", "div", "min", "max")
"""Functions for which the generated code is the same for literals and for operands."""


def lift_scalars() -> Rule:
    """Rule for nodes whose expression has more than MANY variants in the graph."""
    sweeps: WeakKeyDictionary[Sweep, dict[Node, tuple[int, ...]]] = WeakKeyDictionary()

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if sweep not in sweeps:
            sweeps[sweep] = _differing(sweep.graph.nodes)
        places = sweeps[sweep].get(node)
        if not places:
            return None
        if len(node.inputs) + len(places) > MAX_OPERANDS:
            return f"there would be more than {MAX_OPERANDS} operands"
        expr, lifted = _lifted(node.as_(Elementwise).expr, set(places))
        values = [Value("", TensorType(lit.dtype, ()), np.asarray(lit.value, lit.dtype.np)) for lit in lifted]
        op = Elementwise(expr, node.y.shape)
        return Patch.replacing(node, node.with_(op=op, inputs=[*node.inputs, *values]))

    return rule


def _literals(expr: Expr) -> list[Lit]:
    """The literals that may become operands, in order."""
    return [a for i in expr.instrs if i.fn in _PLAIN for a in i.args if isinstance(a, Lit)]


def _differing(nodes: Sequence[Node]) -> dict[Node, tuple[int, ...]]:
    """By node, the numbers of the literals that differ among expressions that are alike otherwise."""
    alike: dict[Hashable, list[tuple[Node, list[Lit]]]] = defaultdict(list)
    for node in nodes:
        if isinstance(node.op, Elementwise) and node.host_dtype is None and (found := _literals(node.op.expr)):
            expr, _ = _lifted(node.op.expr, set(range(len(found))))
            alike[str(expr), expr.dtypes].append((node, found))
    made: dict[Node, tuple[int, ...]] = {}
    for group in alike.values():
        if len({tuple(lit.key() for lit in found) for _, found in group}) > MANY:
            columns = enumerate(zip(*(found for _, found in group), strict=True))
            places = tuple(k for k, column in columns if len({lit.key() for lit in column}) > 1)
            made.update((node, places) for node, _ in group)
    return made


def _lifted(expr: Expr, places: set[int]) -> tuple[Expr, list[Lit]]:
    """`expr` with the literals of these numbers as further operands, and the literals."""
    lifted: list[Lit] = []
    seen = 0

    def place(ref: Ref) -> Ref:
        nonlocal seen
        if not isinstance(ref, Lit):
            return ref
        seen += 1
        if seen - 1 not in places:
            return ref
        lifted.append(ref)
        return In(len(expr.dtypes) + len(lifted) - 1)

    instrs = tuple(replace(i, args=tuple(map(place, i.args))) if i.fn in _PLAIN else i for i in expr.instrs)
    return Expr(instrs, (*expr.dtypes, *(lit.dtype for lit in lifted))), lifted
