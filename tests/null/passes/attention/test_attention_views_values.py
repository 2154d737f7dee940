"""Movements around attention vanish into views and output axes; answers stay what the references give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opalite.ir import Graph, Value
from opalite.passes.attention.attention_views import order_attention_output, view_attention_inputs
from opalite.passes.cleanup.remove_no_ops import merge_movements, remove_noop, sink_reshape
from opalite.passes.pipeline import optimise
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph

B, S, H, D = 2, 5, 3, 4
ATTENTION = {"scale": 0.5, "causal": False, "softcap": 0.0}
Split = Callable[[GraphMaker, Value], tuple[Value, Value, Value]]


def by_gather(g: GraphMaker, x: Value) -> tuple[Value, Value, Value]:
    """[B,S,3HD] to [3,B,H,S,D], then one index after the other."""
    joint = g.add("split", "Reshape", x, shape=(B, S, 3, H, D))
    joint = g.add("order", "Transpose", joint, perm=(2, 0, 3, 1, 4))
    q, k, v = (g.add(f"g{i}", "Gather", joint, g.const(f"i{i}", np.int64(i - 3 * (i == 2))), axis=0) for i in range(3))
    return g.map("scaled", "mul", q, g.const("root", np.float32(0.25))), k, v


def by_slice(g: GraphMaker, x: Value) -> tuple[Value, Value, Value]:
    """Three slices of the features, each split into heads; keys scaled while they are transposed."""

    def part(i: int) -> Value:
        starts, ones, sizes = (0, 0, i * H * D), (1, 1, 1), (B, S, H * D)
        y = g.add(f"s{i}", "Slice", x, starts=starts, steps=ones, sizes=sizes)
        return g.add(f"t{i}", "Transpose", g.add(f"r{i}", "Reshape", y, shape=(B, S, H, D)), perm=(0, 2, 1, 3))

    kt = g.add("kt", "Transpose", part(1), perm=(0, 1, 3, 2))
    k = g.add("k", "Transpose", g.map("small", "div", kt, g.const("by", np.float32(4.0))), perm=(0, 1, 3, 2))
    return part(0), k, part(2)


def sequence_first(g: GraphMaker, x: Value) -> tuple[Value, Value, Value]:
    """As PyTorch's multi-head attention: [S,B,3E], batch and heads merged and taken apart again."""
    y = g.add("sf", "Transpose", x, perm=(1, 0, 2))
    y = g.add("unflat", "Reshape", y, shape=(1, S, B, 3, H * D))
    y = g.add("kinds", "Transpose", y, perm=(3, 1, 2, 0, 4))
    parts = []
    for i in range(3):
        p = g.add(f"g{i}", "Gather", y, g.const(f"i{i}", np.array([i])), axis=0)
        p = g.add(f"m{i}", "Reshape", p, shape=(S, B * H, D))
        p = g.add(f"t{i}", "Transpose", p, perm=(1, 0, 2))
        parts.append(g.add(f"v{i}", "Reshape", p, shape=(B, H, S, D)))
    return parts[0], parts[1], parts[2]


def make(split: Split) -> Graph:
    g = GraphMaker()
    q, k, v = split(g, g.map("x", "tanh", g.input("in", B, S, 3 * H * D)))
    y = g.add("attention", "Attention", q, k, v, None, **ATTENTION)
    y = g.add("joined", "Transpose", y, perm=(0, 2, 1, 3))
    return g.done(g.map("out", "exp", g.add("flat", "Reshape", y, shape=(B, S, H * D))))


@pytest.mark.parametrize("split", [by_gather, by_slice, sequence_first])
def test_no_movement_is_left(split: Split) -> None:
    graph = make(split)
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    optimise(graph, Context(check=True))
    assert [op for op in operators(graph) if op != "Reshape"] == ["Elementwise", "Attention", "Elementwise"]
    check_same(before, run_graph(graph, feeds))


@pytest.mark.parametrize("perm", [(1, 0, 2), (0, 1, 2)])
def test_an_output_without_its_batch_axis(perm: tuple[int, int, int]) -> None:
    g = GraphMaker()
    q, k, v = (g.input(n, 1, H, S, D) for n in "qkv")
    y = g.add("attention", "Attention", q, k, v, None, **ATTENTION)
    y = g.add("three", "Reshape", y, shape=(H, S, D))
    graph = g.done(g.add("turned", "Transpose", y, perm=perm))
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    for rule in (remove_noop, order_attention_output, merge_movements, remove_noop):
        run_rule(graph, rule.__name__, rule, Context(check=True))
    assert operators(graph) == ["Attention", "Reshape"]
    check_same(before, run_graph(graph, feeds))


def test_rows_stay_whole() -> None:
    """Neither keys given by columns nor an output turned within its heads can be stepped through."""
    g = GraphMaker()
    q, v = g.input("q", B, H, S, D), g.input("v", B, H, S, D)
    k = g.add("k", "Transpose", g.input("kt", B, H, D, S), perm=(0, 1, 3, 2))
    y = g.add("attention", "Attention", q, k, v, None, **ATTENTION)
    graph = g.done(g.add("turned", "Transpose", y, perm=(0, 1, 3, 2)))
    for rule in (view_attention_inputs, order_attention_output):
        run_rule(graph, rule.__name__, rule, Context(check=True))
    assert operators(graph) == ["Transpose", "Attention", "Transpose"]


def test_a_tensor_with_other_readers_is_read_in_place_too() -> None:
    g = GraphMaker()
    q, k = g.input("q", B, H, S, D), g.add("k", "Transpose", g.input("x", B, S, H, D), perm=(0, 2, 1, 3))
    y = g.add("attention", "Attention", q, k, k, None, **ATTENTION)
    graph = g.done(y, g.map("present", "neg", k))
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    run_rule(graph, "views", view_attention_inputs, Context(check=True))
    attention = next(n for n in graph.nodes if n.op.name == "Attention")
    assert attention.input(1) is attention.input(2) is graph.inputs[1]
    check_same(before, run_graph(graph, feeds))


@pytest.mark.parametrize(("other", "left"), [((1, 6, 4), 1), ((4,), 1), ((), 1), ((6, 1), 2)])
def test_a_residual_meets_the_product_before_the_reshape(other: tuple[int, ...], left: int) -> None:
    g = GraphMaker()
    product = g.add("p", "MatMul", g.input("a", 6, 5), g.noise("w", 5, 4), trans_a=False, trans_b=False)
    scaled = g.map("scaled", "mul", product, g.noise("s", 4))
    view = g.add("view", "Reshape", scaled, shape=(1, 6, 4))
    graph = g.done(g.map("sum", "add", view, g.input("r", *other)))
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    run_rule(graph, "sink", sink_reshape, Context(check=True))
    optimise(graph, Context(check=True))
    assert operators(graph).count("Elementwise") == left
    check_same(before, run_graph(graph, feeds))
