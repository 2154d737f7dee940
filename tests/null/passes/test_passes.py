"""Each pass by what it leaves of a small graph; results must stay what the references give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from opalite.errors import CheckError
from opalite.ir import DeviceInfo, DType, Graph, Patch, TensorType, Value, apply_patches, check_graph
from opalite.ir.device.device_family import UNBUILT
from opalite.layout.kernel_candidates import find_options
from opalite.passes.attention.recognize_norm_attention import recognize_attention, recognize_layer_norm
from opalite.passes.cleanup.fold_constants import fold_constants
from opalite.passes.cleanup.remove_no_ops import merge_movements, remove_noop
from opalite.passes.data_movement.move_transposes import move_transposes
from opalite.passes.fusion.fold_into_conv import fold_affine, fold_pad
from opalite.passes.fusion.fuse_elementwise import fuse_elementwise, inline_scalars
from opalite.passes.fusion.fuse_epilogue import fuse_epilogues
from opalite.passes.pipeline import optimise, place
from opalite.passes.rewrite_driver import Context, Rule, run_rule

from ...helpers.graphs import GraphMaker, check_same, feeds_for, operators, run_graph

CPU = DeviceInfo(kind="cpu", family="pocl", native_float_width=16, max_work_group_size=4096, fp64=True)
MOVE = move_transposes(None)
Maker = Callable[[GraphMaker], Graph]


def batch_norm(g: GraphMaker) -> Graph:
    c = g.conv("c", g.input("x", 2, 5, 7, 7), 6)
    scaled = g.map("m", "mul", c, g.noise("s", 1, 6, 1, 1))
    moved = g.map("a", "sub", scaled, g.noise("t", 6, 1, 1))
    return g.done(g.map("r", lambda v: v.call("max", 0), moved))


def transposed_batch_norm(g: GraphMaker) -> Graph:
    x = g.input("x", 1, 4, 5, 5)
    attrs = {"strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 2, "output_padding": (0, 0)}
    c = g.add("c", "ConvTranspose", x, g.noise("w", 4, 3, 2, 2), None, **attrs)
    return g.done(g.map("m", "mul", c, g.noise("s", 1, 6, 1, 1)))


def padded_conv(g: GraphMaker) -> Graph:
    x = g.input("x", 1, 3, 6, 6)
    p = g.add("p", "Pad", x, pads=(0, 0, 1, 2, 0, 0, 0, 1), mode="constant", value=0.0)
    return g.done(g.conv("c", p, 4, pad=1))


def chain(g: GraphMaker) -> Graph:
    x, y = g.input("x", 3, 4), g.input("y", 3, 4)
    s = g.map("s", "add", x, y)
    m = g.map("m", "mul", s, g.const("k", np.float32(2.0)))
    return g.done(g.map("t", "tanh", m))


def silu(g: GraphMaker) -> Graph:
    x = g.input("x", 3, 4)
    return g.done(g.map("m", "mul", x, g.map("s", "sigmoid", x)))


def layer_norm(g: GraphMaker) -> Graph:
    x = g.input("x", 2, 5, 8)
    mean = g.add("mean", "Reduce", x, kind="mean", axes=(2,), keepdims=True)
    d = g.map("d", "sub", x, mean)
    sq = g.map("sq", lambda v: v.call("pow", 2.0), d)
    var = g.add("var", "Reduce", sq, kind="mean", axes=(2,), keepdims=True)
    root = g.map("root", "sqrt", g.map("eps", lambda v: v + 1e-5, var))
    n = g.map("n", "div", d, root)
    return g.done(g.map("y", "mul", n, g.noise("gamma", 8)))


def attention(g: GraphMaker) -> Graph:
    q, k, v = (g.input(n, 2, 3, 5, 4) for n in "qkv")
    kt = g.add("kt", "Transpose", k, perm=(0, 1, 3, 2))
    scores = g.add("scores", "MatMul", q, kt, trans_a=False, trans_b=False)
    scaled = g.map("scaled", lambda s: s * 0.5, scores)
    masked = g.map("masked", "add", scaled, g.input("mask", 2, 1, 1, 5))
    p = g.add("p", "Softmax", masked, axis=3, log=False)
    return g.done(g.add("o", "MatMul", p, v, trans_a=False, trans_b=False))


def moves(g: GraphMaker) -> Graph:
    x = g.input("x", 2, 3, 4)
    a = g.add("a", "Transpose", x, perm=(2, 0, 1))
    b = g.add("b", "Transpose", a, perm=(1, 2, 0))
    c = g.add("c", "Reshape", b, shape=(6, 4))
    return g.done(g.add("d", "Reshape", c, shape=(3, 8)))


def sliced_scores(keepdims: bool) -> Maker:
    def make(g: GraphMaker) -> Graph:
        x = g.add("t", "Transpose", g.input("x", 2, 9, 5, 6), perm=(2, 0, 3, 1))
        cut = g.add("s", "Slice", x, starts=(1, 0, 5, 8), steps=(2, 1, -1, -1), sizes=(2, 2, 6, 7))
        return g.done(g.add("r", "Reduce", cut, kind="max", axes=(0, 3), keepdims=keepdims))

    return make


def transposed_mean(g: GraphMaker) -> Graph:
    x = g.add("t", "Transpose", g.input("x", 2, 4, 5, 6), perm=(0, 2, 3, 1))
    return g.done(g.add("r", "Reduce", x, kind="mean", axes=(1, 2), keepdims=False))


def slice_read_twice(g: GraphMaker) -> Graph:
    x = g.add("t", "Transpose", g.input("x", 8, 9), perm=(1, 0))
    cut = g.add("s", "Slice", x, starts=(1, 0), steps=(1, 1), sizes=(8, 8))
    return g.done(g.add("r", "Reduce", cut, kind="sum", axes=(1,), keepdims=True), cut)


def gathered(axis: int, *shape: int) -> Maker:
    def make(g: GraphMaker) -> Graph:
        x = g.add("t", "Transpose", g.input("x", 7, 11, 13), perm=(1, 2, 0))
        indices = g.const("i", np.arange(-2, int(np.prod(shape)) - 2, dtype=np.int64).reshape(shape))
        return g.done(g.add("r", "Gather", x, indices, axis=axis))

    return make


def small_slice(g: GraphMaker) -> Graph:
    x = g.add("t", "Transpose", g.input("x", 7, 11, 13), perm=(1, 2, 0))
    return g.done(g.add("s", "Slice", x, starts=(9, 1, 0), steps=(-2, 1, 1), sizes=(4, 3, 7)), x)


@pytest.mark.parametrize(
    "make, rules, left",
    [
        (batch_norm, [fold_affine], ["Conv", "Elementwise"]),
        (transposed_batch_norm, [fold_affine], ["ConvTranspose"]),
        (padded_conv, [fold_pad], ["Conv"]),
        (chain, [inline_scalars, fuse_elementwise], ["Elementwise"]),
        (silu, [fuse_elementwise], ["Elementwise"]),
        (layer_norm, [recognize_layer_norm], ["Normalize", "Elementwise"]),
        (attention, [recognize_attention, merge_movements, remove_noop], ["Attention"]),
        (moves, [merge_movements, remove_noop], ["Reshape"]),
        (sliced_scores(True), [MOVE], ["Slice", "Reduce", "Reshape"]),
        (sliced_scores(False), [MOVE], ["Slice", "Reduce"]),
        (transposed_mean, [MOVE, remove_noop], ["Reduce"]),
        (gathered(0, 2), [MOVE], ["Gather", "Transpose"]),
        (gathered(1, 1, 3), [MOVE], ["Gather", "Transpose"]),
        (gathered(2), [MOVE], ["Gather"]),
        (gathered(2, 2), [MOVE], ["Gather", "Transpose"]),
        (small_slice, [MOVE], ["Transpose", "Slice"]),
        (slice_read_twice, [MOVE], ["Transpose", "Slice", "Reduce"]),
    ],
)
def test_pass(make: Maker, rules: list[Rule], left: list[str]) -> None:
    graph = make(GraphMaker())
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    for rule in rules:
        run_rule(graph, rule.__name__, rule, Context(check=True))
    assert operators(graph) == left
    check_same(before, run_graph(graph, feeds))


def test_linking_takes_the_residual_add_into_the_later_conv() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 16, 9, 9)
    first = g.map("r1", lambda v: v.call("max", 0), g.conv("c1", x, 16))
    total = g.map("sum", "add", g.conv("c2", first, 16), x)
    graph = g.done(g.map("r2", lambda v: v.call("max", 0), total))
    feeds = feeds_for(graph)
    before = run_graph(graph, feeds)
    ctx = Context(check=True)
    optimise(graph, ctx)
    run_rule(graph, "link", fuse_epilogues(CPU), ctx)
    assert operators(graph) == ["Conv", "Conv"]
    check_same(before, run_graph(graph, feeds))


def test_a_value_with_two_readers_is_not_fused_away() -> None:
    g = GraphMaker()
    s = g.map("s", "tanh", g.input("x", 4))
    graph = g.done(g.map("a", "neg", s), g.map("b", "exp", s))
    run_rule(graph, "fuse", fuse_elementwise, Context(check=True))
    assert operators(graph) == ["Elementwise"] * 3


def test_a_graph_output_is_not_fused_away() -> None:
    g = GraphMaker()
    s = g.map("s", "tanh", g.input("x", 4))
    graph = g.done(s, g.map("a", "neg", s))
    run_rule(graph, "fuse", fuse_elementwise, Context(check=True))
    assert operators(graph) == ["Elementwise"] * 2


def test_constants_fold() -> None:
    g = GraphMaker()
    graph = g.done(g.map("s", "add", g.input("x", 3), g.map("k", "exp", g.noise("c", 3))))
    run_rule(graph, "fold", fold_constants, Context(check=True))
    assert operators(graph) == ["Elementwise"]


def test_the_rewrite_budget_stops_rewriting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STOP_AFTER", "1")
    graph = chain(GraphMaker())
    ctx = Context(check=True)
    optimise(graph, ctx)
    assert sum(ctx.applied.values()) == 1


def test_a_replacement_of_another_type_is_refused() -> None:
    g = GraphMaker()
    x = g.input("x", 3)
    graph = g.done(g.map("y", "neg", x))
    other = Value("z", TensorType(DType.FLOAT32, (4,)))
    with pytest.raises(CheckError, match=r"bad_rule.*must keep dtype and shape"):
        apply_patches(graph, [Patch(replace={graph.nodes[0].y: other})], "bad_rule")


def test_the_checker_names_the_pass_and_the_node() -> None:
    g = GraphMaker()
    x = g.input("x", 3)
    graph = g.done(g.map("y", "neg", x))
    graph.nodes[0].y.type = TensorType(DType.FLOAT32, (5,))
    with pytest.raises(CheckError, match=r"after pass 'tidy'.*'y'"):
        check_graph(graph, "tidy")


def test_placing_leaves_no_two_casts_in_a_row() -> None:
    g = GraphMaker()
    x = g.input("x", 1, 16, 8, 8)
    graph = g.done(g.conv("c3", g.map("t", "tanh", g.conv("c1", x, 32)), 16))
    optimise(graph)
    place(graph, CPU, ctx=Context(check=True))
    for node in graph.nodes:
        before = node.x.producer
        if node.op.name == "PlaceCast" and before is not None and before.op.name == "PlaceCast":
            assert node.x.type.place.target is not before.x.type.place.target or (
                node.y.type.place.target is not before.y.type.place.target
            )
    assert operators(graph).count("Conv") == 2


def test_kernels_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphMaker()
    graph = g.done(g.conv("c", g.input("x", 1, 16, 8, 8), 32))
    node = graph.nodes[0]
    options, _ = find_options(node, CPU, None)
    best = options[0].kernel
    assert best is not None
    monkeypatch.setenv("OPALITE_EXCLUDE_KERNELS", f"Nothing, {best.name}")
    left, refusals = find_options(node, CPU, None)
    assert all(o.kernel is not best for o in left)
    assert "OPALITE_EXCLUDE_KERNELS" in refusals[best.name]
    monkeypatch.delenv("OPALITE_EXCLUDE_KERNELS")
    _, refusals = find_options(node, replace(CPU, quirks=(*CPU.quirks, UNBUILT + best.name)), None)
    assert "does not compile on this device" in refusals[best.name]
