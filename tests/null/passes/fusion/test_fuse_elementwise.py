"""passes/fusion/fuse_elementwise.py: chains become one expression, constant scalars literals."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.passes.fusion.fuse_elementwise import fuse_elementwise, inline_scalars
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graphs import GraphMaker
from ..texts import Case, check

CASES = (
    Case(
        "inline_scalars",
        "a constant of one element",
        inline_scalars,
        """
        graph g(%x: f32[3], %z: f32[3]) {
            const %k: f32[1] = [2.0]
            %y = Elementwise(%x, %k, %z) {expr="mul($0, $1); add(%0, $2)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[3], %z: f32[3]) {
            %y = Elementwise(%x, %z) {expr="mul($0, 2.0:f32); add(%0, $1)", shape=[3]}
            return %y
        }
        """,
    ),
    Case(
        "inline_scalars",
        "inputs of one element are not known",
        inline_scalars,
        """
        graph g(%x: f32[3], %k: f32[1]) {
            %y = Elementwise(%x, %k) {expr="mul($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "fuse_elementwise",
        "every operand that is the producer's result",
        fuse_elementwise,
        """
        graph g(%x: f32[3], %z: f32[3]) {
            %a = Elementwise(%x, %z) {expr="add($0, $1)"}
            %y = Elementwise(%a, %a) {expr="tanh($0); mul(%0, $1)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[3], %z: f32[3]) {
            %y = Elementwise(%x, %z) {expr="add($0, $1); tanh(%0); mul(%1, %0)", shape=[3]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_elementwise",
        "a shared operand is read once",
        fuse_elementwise,
        """
        graph g(%x: f32[3], %z: f32[3]) {
            %a = Elementwise(%x, %z) {expr="add($0, $1)"}
            %y = Elementwise(%z, %a) {expr="mul($0, $1); tanh(%0)"}
            return %y
        }
        """,
        """
        graph g(%x: f32[3], %z: f32[3]) {
            %y = Elementwise(%x, %z) {expr="add($0, $1); mul($1, %0); tanh(%1)", shape=[3]}
            return %y
        }
        """,
    ),
    Case(
        "fuse_elementwise",
        "two readers",
        fuse_elementwise,
        """
        graph g(%x: f32[3]) {
            %a = Elementwise(%x) {expr="tanh($0)"}
            %b = Elementwise(%a) {expr="neg($0)"}
            %c = Elementwise(%a) {expr="exp($0)"}
            return %b, %c
        }
        """,
    ),
    Case(
        "fuse_elementwise",
        "a broadcast operand would be computed many times",
        fuse_elementwise,
        """
        graph g(%x: f32[3], %z: f32[4,3]) {
            %a = Elementwise(%x) {expr="tanh($0)"}
            %y = Elementwise(%z, %a) {expr="mul($0, $1)"}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


def test_expressions_have_limits() -> None:
    """Of operands, which become kernel arguments, and of instructions, which a compiler takes long for."""
    g = GraphMaker()
    x, y = g.input("x", 3), g.input("y", 3)

    def many(a: Any, *others: Any) -> Any:
        for other in others:
            a = a + other
        return a

    others = [g.input(f"i{k}", 3) for k in range(12)]
    inner = g.map("a", many, x, *others[:6])
    sums = g.map("b", many, inner, *others[6:])  # 13 operands
    wide = g.map("c", lambda v: many(v, *[v.call("tanh")] * 60), y)
    deep = g.map("d", lambda v: many(v.call("exp"), *[v] * 60), wide)  # 121 instructions
    graph = g.done(sums, deep)
    run_rule(graph, "fuse_elementwise", fuse_elementwise, Context(check=True))
    assert len(graph.nodes) == 4
    small = g.map("e", many, g.map("f", many, x, *others[:5]), *others[5:11])
    graph = g.done(small)
    graph.prune()
    run_rule(graph, "fuse_elementwise", fuse_elementwise, Context(check=True))
    assert len(graph.nodes) == 1
