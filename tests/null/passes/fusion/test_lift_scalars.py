"""passes/fusion/lift_scalars.py: literals in which many expressions differ become operands."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.ir import Graph
from opalite.ops.elementwise import Elementwise
from opalite.passes.fusion.lift_scalars import MANY, lift_scalars
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graph_text import parse_graph
from ....helpers.graphs import check_same, run_graph
from ..texts import Case, check


def scaled(count: int, is_lifted: bool) -> str:
    """The text of `count` multiples of x, by literals or by operands."""
    outputs = ", ".join(f"%y{i}" for i in range(count))
    lines = [
        f'const %k{i}: f32[] = [{i}.5]\n%y{i} = Elementwise(%x, %k{i}) {{expr="mul($0, $1)", shape=[3]}}'
        if is_lifted
        else f'%y{i} = Elementwise(%x) {{expr="mul($0, {i}.5:f32)"}}'
        for i in range(count)
    ]
    return "graph g(%x: f32[3]) {\n" + "\n".join(lines) + f"\nreturn {outputs}\n}}\n"


CASES = (
    Case(
        "lift_scalars",
        "many literals become operands",
        lift_scalars(),
        scaled(MANY + 1, False),
        scaled(MANY + 1, True),
    ),
    Case("lift_scalars", "few literals stay", lift_scalars(), scaled(MANY, False)),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


def affine(count: int, expr: str = "mul($0, {a}.5:f32); add(%0, 3.25:f32); pow(%1, {b}.0:f32)") -> Graph:
    """`count` expressions of x that differ in their literals."""
    lines = [f'%y{i} = Elementwise(%x) {{expr="{expr.format(a=i, b=2 + i % 2)}"}}' for i in range(count)]
    outputs = ", ".join(f"%y{i}" for i in range(count))
    return parse_graph("graph g(%x: f32[3]) {\n" + "\n".join(lines) + f"\nreturn {outputs}\n}}\n")


def expressions(graph: Graph) -> set[str]:
    return {str(n.as_(Elementwise).expr) for n in graph.nodes}


def test_literals_that_differ_become_operands() -> None:
    graph = affine(2 * (MANY + 1))
    feeds = {"x": np.array([0.5, 1, 2], np.float32)}
    want = run_graph(graph, feeds)
    run_rule(graph, "lift_scalars", lift_scalars(), Context(check=True))
    # The exponents stay: their functions differ. So does the addend, which all have in common.
    assert expressions(graph) == {f"mul($0, $1); add(%0, 3.25:f32); pow(%1, {b}.0:f32)" for b in (2, 3)}
    check_same(want, run_graph(graph, feeds), 1e-6)


@pytest.mark.parametrize(
    "graph",
    [affine(2 * MANY), affine(MANY + 9, "mul($0, 2.5:f32)"), affine(MANY + 9, "pow($0, {a}.5:f32)")],
    ids=["few", "equal", "exponents"],
)
def test_what_stays(graph: Graph) -> None:
    before = expressions(graph)
    run_rule(graph, "lift_scalars", lift_scalars(), Context(check=True))
    assert expressions(graph) == before


def test_many_operands_stay_literals() -> None:
    expr = "add($0, {a}.0:f32)" + "".join(f"; mul(%{i}, {{a}}.{i + 1}:f32)" for i in range(12))
    graph = affine(MANY + 1, expr)
    before = expressions(graph)
    run_rule(graph, "lift_scalars", lift_scalars(), Context(check=True))
    assert expressions(graph) == before
