"""Whole graphs in images against the same graphs in buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir import Graph
from opalite.ir.place import Memory
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import optimise, place
from opalite.plan.emit_program import emit
from opalite.run.execute.executable import Executable

from ...helpers.graph_text import parse_graph
from ...helpers.graphs import GraphMaker, check_same, feeds_for, run_graph
from ...null.layout.test_channels_last_plans import channels_last_net
from ...null.layout.test_image_plans import small_net
from ..kernels.conv_checks import as_adreno


def run(rt: Runtime, graph: Graph, memory: Memory | None, precision: Precision = Precision.FP32) -> list[Any]:
    feeds = feeds_for(graph)
    optimise(graph, device=rt.info)
    set_precision(graph, PrecisionPolicy(precision))
    place(graph, rt.info, memory=memory)
    program = emit(graph, rt.info)
    assert bool(program.image_pool) == (memory is not Memory.BUFFER)
    executable = Executable(rt, program)
    arrays = [feeds[port.name] for port in program.inputs]
    executable.run([np.full_like(a, 1e4) for a in arrays])  # leaves stale texels in the pool
    return executable.run(arrays)[0]


def decoder() -> Graph:
    """Operators that `small_net` lacks, some without an image kernel, and a constant among the inputs of Concat."""
    g = GraphMaker()
    x = g.input("x", 2, 6, 13, 11)
    pool = {"kind": "max", "kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    more = {"ceil_mode": False, "count_include_pad": False, "p": 2, "with_indices": False, "storage_order": 0}
    small = g.add("pool", "Pool", g.conv("c", x, 10, group=2), **pool, **more)
    attrs = {"nearest_mode": "floor", "cubic_a": -0.75, "exclude_outside": False, "extrapolation": 0.0, "roi": None}
    sizes = {"sizes": (2, 10, 13, 11), "scales": (1.0, 1.0, 13 / 7, 11 / 6), "antialias": False}
    up = g.add("up", "Resize", small, mode="linear", coordinate="half_pixel", **sizes, **attrs)
    joined = g.add("joined", "Concat", up, x, g.noise("k", 2, 3, 13, 11), axis=1)
    turned = g.add("turned", "Transpose", joined, perm=(0, 1, 3, 2))
    logits = g.map("logits", lambda v: v * 0.02, g.conv("last", turned, 7))
    return g.done(g.add("p", "Softmax", logits, axis=1, log=False))


def sequences() -> Graph:
    """One-dimensional convolutions with groups, dilation and strides, transposed ones, and a residual."""
    g = GraphMaker()
    x = g.input("x", 2, 6, 61)
    attrs = {"strides": (1,), "pads": (2, 4), "dilations": (3,), "group": 2}
    first = g.map("r", lambda v: v.call("max", 0), g.add("c", "Conv", x, g.noise("w", 10, 3, 3), **attrs))
    attrs = {"strides": (1,), "pads": (2, 2), "dilations": (1,), "group": 10}
    deep = g.map("sum", "add", g.add("d", "Conv", first, g.noise("u", 10, 1, 5), **attrs), first)
    attrs = {"strides": (2,), "pads": (1, 0), "dilations": (1,), "group": 1}
    less = g.add("s", "Conv", deep, g.noise("v", 7, 10, 4), g.noise("b", 7), **attrs)
    more = g.add("t", "ConvTranspose", less, g.noise("k", 7, 5, 4), output_padding=(1,), **attrs)
    return g.done(g.add("y", "Normalize", more, g.noise("e", 5), g.noise("f", 5), kind="instance", epsilon=1e-5))


def test_sequences_are_pictures_of_one_row_where_images_are_preferred(rt: Runtime) -> None:
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    check_same(run(rt, sequences(), Memory.BUFFER), run(as_adreno(rt), sequences(), None))


DYNAMIC = """
graph g(%x: f32[2,6,9,7]) {
    const %w: i8[8,6,3,3] = fill 3
    const %k: f32[8,1,1] = fill 0.01
    %l = Reduce(%x) {axes=[0, 1, 2, 3], keepdims=false, kind="min"}
    %h = Reduce(%x) {axes=[0, 1, 2, 3], keepdims=false, kind="max"}
    %s = Elementwise(%l, %h) {expr="max($1, 0.0:f32); min($0, 0.0:f32); sub(%0, %1); div(%2, 255.0:f32)"}
    %z = Elementwise(%l, %s) {expr="min($0, 0.0:f32); neg(%0); div(%1, $1); rint(%2); saturate<u8>(%3)"}
    %q = Elementwise(%x, %s, %z) {expr="div($0, $1); rint(%0); cast<f32>($2); add(%1, %2); saturate<u8>(%3)"}
    %c = IntegerConv(%q, %w, -, %z, -) {dilations=[1, 1], group=1, pads=[1, 1, 1, 1], strides=[1, 1]}
    %y = Elementwise(%c, %s, %k) {expr="cast<f32>($0); mul(%0, $1); mul(%1, $2); max(%2, 0.0:f32)"}
    return %y
}
"""


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
def test_ranges_at_run_time_take_three_launches_on_images(rt: Runtime, precision: Precision) -> None:
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    graph = parse_graph(DYNAMIC)
    wanted = run_graph(graph, feeds_for(graph))
    check_same(wanted, run(as_adreno(rt), graph, None, precision), tolerance=2e-3)
    assert [n.op.name for n in graph.nodes if n.op.name not in ("PlaceCast",)] == ["Extremes", "Elementwise", "Conv"]


@pytest.mark.parametrize("make", [small_net, decoder, channels_last_net])
def test_images_give_what_buffers_give(rt: Runtime, make: Any) -> None:
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    check_same(run(rt, make(), Memory.BUFFER), run(rt, make(), Memory.IMAGE2D))


def test_channels_last_gives_what_the_references_give(rt: Runtime) -> None:
    graph = channels_last_net()
    wanted = run_graph(graph, feeds_for(graph))
    check_same(wanted, run(rt, graph, Memory.BUFFER), tolerance=1e-4)


def test_half_images(rt: Runtime) -> None:
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    check_same(run(rt, decoder(), Memory.BUFFER), run(rt, decoder(), Memory.IMAGE2D, Precision.FP16), tolerance=2e-2)
