"""Templates: what is traced at one size is at another what is planned there."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opalite.ir import DeviceInfo, DType, Graph, Value
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.symbols import Guard, Trace, compile_numbers
from opalite.plan.bundle.bundle import Bundle, Variant
from opalite.plan.bundle.read_bundle import load_bundle
from opalite.plan.bundle.write_bundle import save_bundle
from opalite.plan.planner import Knowledge, PlanOptions, plan

from ....fuzz.null import compute
from ....helpers.graphs import GraphMaker, check_same, feeds_for, run_graph
from ....helpers.symbolic import Traced, graph_at

DEVICES = ("pocl_avx512", "nvidia_h200", "adreno_640", "mali_g76", "intel_uhd_630")


def load(name: str) -> DeviceInfo:
    return read_description(name)


def convolutions(g: GraphMaker, n: int, h: int, w: int) -> Graph:
    x = g.input("x", n, 3, h, w)
    a = g.map("a", lambda u: u.call("max", 0), g.conv("stem", x, 16, strides=(2, 2)))
    b = g.conv("wide", a, 32, 1)
    c = g.map("c", lambda u: u.call("max", 0), g.conv("deep", b, 32, group=32))
    joined = g.add("joined", "Concat", g.conv("left", c, 16), g.conv("right", c, 16, 1), axis=1)
    pool = {"kind": "max", "kernel": (2, 2), "strides": (2, 2), "pads": (0,) * 4, "dilations": (1, 1), "p": 2}
    flags = dict.fromkeys(("ceil_mode", "count_include_pad", "with_indices", "storage_order"), 0)
    p = g.add("p", "Pool", joined, **pool, **flags)
    m = g.add("m", "Reduce", p, kind="mean", axes=(2, 3), keepdims=True)
    return g.done(g.map("y", lambda u, v: u * v, p, m), m)


def product(g: GraphMaker, name: str, a: Value, b: Value) -> Value:
    return g.add(name, "MatMul", a, b, trans_a=False, trans_b=False)


def attention(g: GraphMaker, n: int, s: int, _: int) -> Graph:
    x = g.input("x", n, s, 32)
    q = product(g, "q", x, g.noise("wq", 32, 32))
    k = g.add("k", "Transpose", product(g, "kk", x, g.noise("wk", 32, 32)), perm=(0, 2, 1))
    scores = g.add("scores", "Softmax", product(g, "qk", q, k), axis=2, log=False)
    y = product(g, "y", scores, x)
    flat = g.add("flat", "Reshape", y, shape=(n * s, 32))
    return g.done(product(g, "out", flat, g.noise("wo", 32, 8)), scores)


def movement(g: GraphMaker, n: int, h: int, w: int) -> Graph:
    x = g.input("x", n, 4, h, w)
    t = g.add("t", "Transpose", x, perm=(0, 2, 3, 1))
    s = g.add("s", "Slice", t, starts=(0, 1, 0, 0), sizes=(n, h - 1, w, 2), steps=(1, 1, 1, 1))
    j = g.add("j", "Concat", s, s, axis=1)
    r = g.add("r", "Reshape", j, shape=(n, 2 * (h - 1) * w, 2))
    return g.done(g.map("y", "exp", r), g.add("m", "Reduce", t, kind="sum", axes=(3,), keepdims=False))


def lookups(g: GraphMaker, n: int, h: int, w: int) -> Graph:
    """Tables of sizes and strides: of axes that are walked one by one, and of coordinates."""
    x = g.input("x", n, h, w)
    taken = g.add("taken", "GatherElements", x, g.input("at", n, 3, w, dtype=DType.INT64), axis=1)
    put = g.add(
        "put", "ScatterElements", x, g.input("to", n, 1, w, dtype=DType.INT64), g.input("new", n, 1, w), **ONE_AXIS
    )
    rows = g.add("rows", "GatherND", x, g.input("pairs", h, 2, dtype=DType.INT64), batch_dims=0)
    more = g.add(
        "more",
        "ScatterND",
        put,
        g.input("triples", w, 1, dtype=DType.INT64),
        g.input("part", w, h, w),
        reduction="none",
    )
    across = g.add("across", "Reduce", more, kind="sum", axes=(0, 2), keepdims=False)
    return g.done(taken, rows, across)


def rolled_rows(g: GraphMaker, n: int, h: int, w: int) -> Graph:
    """Rolled along two axes, as torch.roll is exported, and turned: rows that one table moves, made for each size."""
    x = g.map("x", "tanh", g.input("in", n, h, w, 32))
    steps = (1, 1, 1, 1)
    above = g.add("above", "Slice", x, starts=(0, 1, 0, 0), sizes=(n, h - 1, w, 32), steps=steps)
    below = g.add("below", "Slice", x, starts=(0, 0, 0, 0), sizes=(n, 1, w, 32), steps=steps)
    down = g.add("down", "Concat", above, below, axis=1)
    right = g.add("right", "Slice", down, starts=(0, 0, 1, 0), sizes=(n, h, w - 1, 32), steps=steps)
    left = g.add("left", "Slice", down, starts=(0, 0, 0, 0), sizes=(n, h, 1, 32), steps=steps)
    around = g.add("around", "Concat", right, left, axis=2)
    turned = g.add("turned", "Transpose", around, perm=(2, 0, 1, 3))
    wide = g.add("wide", "Pad", turned, pads=(0, 1, 0, 0, 1, 0, 0, 0), mode="constant", value=0.0)
    return g.done(g.map("y", "tanh", g.add("rows", "Reshape", wide, shape=((w + 1) * (n + 1), h, 32))))


def few_bits(g: GraphMaker, n: int, h: int, w: int) -> Graph:
    """Many rows and few by matrices of 4 bits, with an epilogue."""
    rng = np.random.default_rng(0)
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32}
    q = g.const("q", rng.integers(0, 15, (640, 256)).astype(np.uint8))
    scale = g.const("scale", rng.random((640, 8), np.float32))
    many = g.add("many", "QuantizedMatMul", g.input("x", n, h, w, 256), q, scale, None, **attrs)
    few = g.add("few", "QuantizedMatMul", g.input("last", n, 256), q, scale, None, **attrs)
    return g.done(g.map("y", lambda v: v.call("max", 0), many), few)


ONE_AXIS = {"axis": 1, "reduction": "none"}


GRAPHS: dict[str, Callable[[GraphMaker, int, int, int], Graph]] = {
    "convolutions": convolutions,
    "attention": attention,
    "movement": movement,
    "lookups": lookups,
    "rolled_rows": rolled_rows,
    "few_bits": few_bits,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_traced_at_one_size_is_right_at_another(name: str, device: str) -> None:
    build, rng = GRAPHS[name], random.Random(5)
    trace = Trace()
    info = load(device)
    first = 2, 24 if info.is_cpu else 36, 20  # beyond what kernels for few rows take on GPUs, by guards
    g = GraphMaker()
    graph = build(g, *(trace.symbol(s, n) for s, n in zip(first, "nhw", strict=True)))
    graph.trace = trace
    plain, _ = graph_at(graph.copy(), first)
    traced = Traced(graph.copy(), info)
    assert traced.check(first) is not None
    served = 0
    for _ in range(8):
        sizes = rng.randint(2, 6), rng.randint(2, 70), rng.randint(2, 70)
        placed = traced.check(sizes)
        if placed is None:
            continue
        served += 1
        if np.prod(sizes) < 4000:
            plain, _ = graph_at(graph, sizes)
            feeds = {n: a % 2 if a.dtype.kind == "i" else a for n, a in feeds_for(plain).items()}
            check_same(run_graph(plain, feeds), compute(placed, list(feeds.values())))
    assert served >= 6, [g.text for g in traced.template.guards]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_are_moved_once_whatever_the_sizes(device: str) -> None:
    trace = Trace()
    g = GraphMaker()
    graph = rolled_rows(g, *(trace.symbol(s, n) for s, n in zip((2, 5, 7), "nhw", strict=True)))
    graph.trace = trace
    names = [n.op.name for n in Traced(graph, load(device)).graph.nodes]
    assert names.count("PermuteRows") == 1
    assert not {"Slice", "Concat", "Transpose", "Pad"}.intersection(names)


@pytest.mark.parametrize("device", DEVICES)
def test_a_size_that_is_one_at_hand_is_open_all_the_same(device: str) -> None:
    """What a plain 1 would let pass, as an axis that need not be copied, is picked anew where symbols do not tell."""
    trace = Trace()
    n, s = trace.symbol(4), trace.symbol(3)
    g = GraphMaker()
    x = g.input("x", n, s, 6)
    part = g.add("part", "Slice", x, starts=(0, 0, 0), sizes=(n, s // 3, 6), steps=(1, 1, 1))
    graph = g.done(g.map("y", "exp", g.add("t", "Transpose", part, perm=(0, 2, 1))))
    graph.trace = trace
    traced = Traced(graph.copy(), load(device))
    for sizes in ((4, 3), (5, 4), (2, 30), (9, 9)):
        placed = traced.check(sizes)
        if placed is not None:
            plain, _ = graph_at(graph, sizes)
            feeds = feeds_for(plain)
            check_same(run_graph(plain, feeds), compute(placed, list(feeds.values())))


def test_the_planner_gives_a_template_of_a_graph_with_symbols() -> None:
    trace = Trace()
    graph = convolutions(GraphMaker(), trace.symbol(3, "batch"), 16, 16)
    graph.trace = trace
    planned = plan(graph, PlanOptions(), Knowledge(load("pocl_avx512")))
    template = planned.template
    assert template is not None
    assert (template.names, template.sizes) == (("batch",), (3,))
    other = template.at((5,))
    assert other is not None
    assert other.inputs[0].shape == (5, 3, 16, 16)
    assert planned.program.inputs[0].shape == (3, 3, 16, 16)
    assert other.sources is planned.program.sources
    assert [g.text for g in template.failing((1,))] == ["s0 >= 2"]
    assert template.at((1,)) is None


@pytest.mark.parametrize("size", [5, 150])
def test_general_products_serve_sizes_on_both_sides_of_a_constant(size: int) -> None:
    """Which of two sides of a product is the larger one changes with the sizes, and nothing hangs on it."""
    trace = Trace()
    graph = attention(GraphMaker(), 1, trace.symbol(size), 0)
    graph.trace = trace
    template = plan(graph, PlanOptions(tier="generic"), Knowledge(load("pocl_avx512"))).template
    assert template is not None
    assert all(template.holds((s,)) for s in (3, 16, 17, 31, 33, 70, 1000)), [g.text for g in template.guards]


def test_what_stays_is_the_same_object() -> None:
    trace = Trace()
    graph = convolutions(GraphMaker(), 1, trace.symbol(32), 16)
    graph.trace = trace
    template = Traced(graph, load("pocl_avx512")).template
    a, b, c = (template.at((h,)) for h in (32, 40, 40))
    assert a is not None
    assert b is not None
    assert c is not None
    assert all(x is y for x, y in zip(b.steps, c.steps, strict=True))
    assert all(x is y for x, y in zip(b.slots, c.slots, strict=True))
    changed = [x is not y for x, y in zip(a.slots, b.slots, strict=True)]
    assert any(changed)
    assert not all(changed)


def test_a_plain_graph_has_no_template() -> None:
    assert plan(convolutions(GraphMaker(), 1, 16, 16), PlanOptions(), Knowledge(load("mali_g76"))).template is None


def test_a_template_comes_back_from_a_file(tmp_path: Path) -> None:
    trace = Trace()
    graph = attention(GraphMaker(), trace.symbol(3, "batch"), trace.symbol(24, "length"), 0)
    graph.trace = trace
    device = load("pocl_avx512")
    template = Traced(graph, device).template
    save_bundle(tmp_path / "a.opal", Bundle([Variant(device, template)], {}))
    (variant,) = load_bundle(tmp_path / "a.opal").variants
    kept = variant.template
    assert kept is not None
    assert variant.program.inputs[0].shape == (3, 24, 32)
    for sizes in ((3, 24), (2, 40), (7, 33), (1, 24)):
        a, b = template.at(sizes), kept.at(sizes)
        assert (a is None) == (b is None) == (sizes[0] == 1)
        assert kept.failing(sizes) == template.failing(sizes)
        if a is None or b is None:
            continue
        assert (a.steps, a.slots, a.inputs, a.arena_bytes) == (b.steps, b.slots, b.inputs, b.arena_bytes)
        assert list(a.placement) == list(b.placement)
        assert a.weights.keys() == b.weights.keys()
        for number, array in a.weights.items():
            np.testing.assert_array_equal(b.weights[number], array)


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "s0.real", "s2", "[s0]", "s0 if s0 else 1", "s0 < 3 < 5", "2**s0", "True", "'a'", "max"],
)
def test_texts_that_are_no_arithmetic_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        compile_numbers(2, [], [text])


def test_a_division_by_zero_is_a_guard_that_fails() -> None:
    trace = Trace()
    graph = convolutions(GraphMaker(), trace.symbol(3), 16, 16)
    graph.trace = trace
    template = Traced(graph, load("pocl_avx512")).template
    broken = replace(template, guards=(*template.guards, Guard("1 // (s0 - 5) != 7", "")))
    assert broken.at((5,)) is None
    assert broken.at((6,)) is not None
    assert [g.text for g in broken.failing((5,))] == ["1 // (s0 - 5) != 7"]
