"""passes/cleanup/hoist_slice.py: what is computed is what the slice holds; answers stay what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.ir import Graph
from opalite.ir.symbols import Trace
from opalite.passes.cleanup.hoist_slice import hoist_slice
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph
from ..texts import Case, check

CASES = (
    Case(
        "hoist_slice",
        "the last row of a product",
        hoist_slice,
        """
        graph g(%x: f32[2,5,6], %w: f32[6,9], %b: f32[9]) {
            %p = MatMul(%x, %w) {trans_a=false, trans_b=false}
            %s = Elementwise(%p, %b) {expr="add($0, $1)"}
            %y = Slice(%s) {sizes=[2, 1, 9], starts=[0, 4, 0], steps=[1, 1, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[2,5,6], %w: f32[6,9], %b: f32[9]) {
            %r = Slice(%x) {sizes=[2, 1, 6], starts=[0, 4, 0], steps=[1, 1, 1]}
            %p = MatMul(%r, %w) {trans_a=false, trans_b=false}
            %y = Elementwise(%p, %b) {expr="add($0, $1)"}
            return %y
        }
        """,
    ),
    Case(
        "hoist_slice",
        "columns of a product",
        hoist_slice,
        """
        graph g(%x: f32[2,5,6], %w: f32[6,9]) {
            %p = MatMul(%x, %w) {trans_a=false, trans_b=false}
            %y = Slice(%p) {sizes=[2, 5, 1], starts=[0, 0, 4], steps=[1, 1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "hoist_slice",
        "most rows of a product",
        hoist_slice,
        """
        graph g(%x: f32[2,5,6], %w: f32[6,9]) {
            %p = MatMul(%x, %w) {trans_a=false, trans_b=false}
            %y = Slice(%p) {sizes=[2, 4, 9], starts=[0, 1, 0], steps=[1, 1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "hoist_slice",
        "rows that are read elsewhere, too",
        hoist_slice,
        """
        graph g(%x: f32[2,5,6], %w: f32[6,9]) {
            %p = MatMul(%x, %w) {trans_a=false, trans_b=false}
            %y = Slice(%p) {sizes=[2, 1, 9], starts=[0, 1, 0], steps=[1, 1, 1]}
            %z = Reduce(%p) {axes=[1], keepdims=false, kind="max"}
            return %y, %z
        }
        """,
    ),
    Case(
        "hoist_slice",
        "an expression behind no product",
        hoist_slice,
        """
        graph g(%x: f32[2,5,6]) {
            %p = Elementwise(%x) {expr="exp($0)"}
            %y = Slice(%p) {sizes=[2, 1, 6], starts=[0, 1, 0], steps=[1, 1, 1]}
            return %y
        }
        """,
    ),
    Case(
        "hoist_slice",
        "the last query",
        hoist_slice,
        """
        graph g(%x: f32[5,24], %w: f32[24,24], %k: f32[1,4,5,6], %v: f32[1,4,5,6], %m: f32[1,1,5,5]) {
            %p = MatMul(%x, %w) {trans_a=false, trans_b=false}
            %r = Reshape(%p) {shape=[1, 5, 4, 6]}
            %q = Transpose(%r) {perm=[0, 2, 1, 3]}
            %a = Attention(%q, %k, %v, %m) {causal=true, scale=0.5, softcap=0.0}
            %y = Slice(%a) {sizes=[1, 4, 1, 6], starts=[0, 0, 4, 0], steps=[1, 1, 1, 1]}
            return %y
        }
        """,
        """
        graph g(%x: f32[5,24], %w: f32[24,24], %k: f32[1,4,5,6], %v: f32[1,4,5,6], %m: f32[1,1,5,5]) {
            %s = Slice(%x) {sizes=[1, 24], starts=[4, 0], steps=[1, 1]}
            %p = MatMul(%s, %w) {trans_a=false, trans_b=false}
            %r = Reshape(%p) {shape=[1, 1, 4, 6]}
            %q = Transpose(%r) {perm=[0, 2, 1, 3]}
            %l = Slice(%m) {sizes=[1, 1, 1, 5], starts=[0, 0, 4, 0], steps=[1, 1, 1, 1]}
            %y = Attention(%q, %k, %v, %l) {causal=false, scale=0.5, softcap=0.0}
            return %y
        }
        """,
    ),
    Case(
        "hoist_slice",
        "a query that does not see what comes after it",
        hoist_slice,
        """
        graph g(%x: f32[1,4,5,24], %w: f32[24,6], %k: f32[1,4,5,6], %v: f32[1,4,5,6]) {
            %q = MatMul(%x, %w) {trans_a=false, trans_b=false}
            %a = Attention(%q, %k, %v) {causal=true, scale=0.5, softcap=0.0}
            %y = Slice(%a) {sizes=[1, 4, 1, 6], starts=[0, 0, 3, 0], steps=[1, 1, 1, 1]}
            return %y
        }
        """,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pass(case: Case) -> None:
    check(case)


def block(index: Any, rows: Any = 7) -> Graph:
    """Two layers with a sum around each, normalised, of which the rows at a Gather's `index` are read."""
    g = GraphMaker()
    x = g.input("x", 2, rows, 16)
    for i in range(2):
        scale = g.noise(f"scale{i}", 16)
        n = g.add(f"n{i}", "Normalize", x, scale, None, kind="layer", axis=2, epsilon=1e-5)
        h = g.add(f"h{i}", "MatMul", n, g.noise(f"w{i}", 16, 32), trans_a=False, trans_b=False)
        p = g.add(f"p{i}", "MatMul", h, g.noise(f"v{i}", 32, 16), trans_a=False, trans_b=False)
        x = g.map(f"x{i}", "add", x, p)
    f = g.add("f", "Normalize", x, None, None, kind="rms", axis=2, epsilon=1e-5)
    return g.done(g.add("y", "Gather", f, g.const("index", np.array(index)), axis=1))


def sliced(graph: Graph) -> Graph:
    run_rule(graph, "hoist_slice", hoist_slice, Context(check=True))
    return graph


@pytest.mark.parametrize("index", [0, [3], -1, [[-2]]])
def test_layers_compute_the_row_that_is_read(index: Any) -> None:
    graph = block(index)
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    sliced(graph)
    check_same(before, run_graph(graph, feeds))
    found = operators(graph)
    assert found.count("Slice") == 2  # for the norm and for the sum around the layer
    assert "Gather" not in found
    assert all(n.y.shape[1] == 1 for n in graph.nodes if n.op.name == "MatMul")


def test_several_positions_are_gathered_behind() -> None:
    assert operators(sliced(block([0, 1]))) == operators(block([0, 1]))


@pytest.mark.parametrize("index", [-1, 2])
def test_a_row_of_a_number_of_rows_that_is_open(index: int) -> None:
    trace = Trace()
    graph = sliced(block(index, trace.symbol(7, "rows")))
    assert all(n.y.shape == (2, 1, 16) for n in graph.nodes if n.op.name == "Slice")
    assert trace.holds([30])
    assert trace.holds([2]) == (index == -1)


def test_both_ways_to_a_sum_are_followed() -> None:
    g = GraphMaker()
    p = g.add("p", "MatMul", g.input("x", 2, 7, 16), g.noise("w", 16, 8), trans_a=False, trans_b=False)
    gate = g.map("gate", "sigmoid", g.map("half", "neg", p))
    graph = g.done(g.add("y", "Gather", g.map("s", "mul", p, gate), g.const("index", np.array(6)), axis=1))
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    check_same(before, run_graph(sliced(graph), feeds))
    assert operators(graph)[:2] == ["Slice", "MatMul"]


def test_a_mask_whose_rows_are_told_otherwise_is_not_cut() -> None:
    trace = Trace()
    g = GraphMaker()
    rows, others = trace.symbol(7, "rows"), trace.symbol(7, "others")
    q = g.add("q", "MatMul", g.input("x", 1, 2, rows, 16), g.noise("w", 16, 8), trans_a=False, trans_b=False)
    k, v = (g.input(name, 1, 2, 7, 8) for name in "kv")
    a = g.add("a", "Attention", q, k, v, g.input("m", 1, 1, others, 7), scale=1.0, causal=False, softcap=0.0)
    graph = g.done(g.add("y", "Gather", a, g.const("index", np.array(-1)), axis=2))
    assert operators(sliced(graph)) == ["MatMul", "Attention", "Gather"]
