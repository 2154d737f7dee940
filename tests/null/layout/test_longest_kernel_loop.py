"""Drivers whose loops end early: what a work-item would walk too far for is left to the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.ir.device.device_family import SHORT_LOOPS
from opalite.ir.place import Memory
from opalite.kernel.testing.single_node import make_node
from opalite.layout.kernel_candidates import find_options
from opalite.layout.longest_kernel_loop import LONGEST, longest_kernel_loop
from opalite.passes.pipeline import place

from ...helpers.graphs import GraphMaker
from ...helpers.kernel_nodes import samples
from .test_image_plans import load

LLVMPIPE = load("rusticl_llvmpipe")
SHORT = replace(LLVMPIPE, quirks=(*LLVMPIPE.quirks, SHORT_LOOPS))


def node_of(name: str, attrs: dict[str, Any], *shapes: tuple[int, ...]) -> Any:
    return make_node(name, attrs, [np.zeros(s, np.float32) for s in shapes], const=(1,) if len(shapes) > 1 else ())


LONG = {
    "sum": ("Reduce", {"kind": "sum", "axes": (1,), "keepdims": True}, (3, 70_000)),
    "softmax": ("Softmax", {"axis": 0, "log": False}, (70_000, 3)),
    "running sum": ("Cumulative", {"kind": "sum", "axis": 1, "exclusive": False, "reverse": False}, (2, 70_000)),
    "product": ("MatMul", {"trans_a": False, "trans_b": False}, (2, 70_000), (70_000, 3)),
    "transposed product": ("MatMul", {"trans_a": True, "trans_b": False}, (70_000, 2), (70_000, 3)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_walks_are_refused_where_loops_end_early(name: str) -> None:
    node = node_of(*LONG[name])
    assert longest_kernel_loop(node) == 70_000
    options, refusals = find_options(node, SHORT, Memory.BUFFER)
    assert not options
    asked = {name: why for name, why in refusals.items() if why != "tensors are kept in buffers"}
    assert asked
    assert all("loop over 70000 elements" in why for why in asked.values()), asked
    assert find_options(node, LLVMPIPE, Memory.BUFFER)[0], "elsewhere it has a kernel"


def test_nodes_of_usual_sizes_keep_their_kernels() -> None:
    for op, attrs, arrays, const in samples():
        node = make_node(op, attrs, arrays, const=const)
        assert longest_kernel_loop(node) <= LONGEST, op
    conv = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "group": 1}
    attention = {"scale": 1.0, "causal": False, "softcap": 0.0}
    assert find_options(node_of("Conv", conv, (1, 512, 7, 7), (512, 512, 3, 3)), SHORT, Memory.BUFFER)[0]
    assert longest_kernel_loop(node_of("Attention", attention, *[(1, 3, 197, 64)] * 3)) <= LONGEST


def test_a_long_walk_runs_on_the_host_and_the_rest_does_not() -> None:
    m = GraphMaker()
    x = m.input("x", 2, 70_000)
    graph = m.done(m.add("total", "Reduce", m.map("minus", "neg", x), kind="sum", axes=(1,), keepdims=True))
    place(graph, SHORT)
    reasons = {n.op.name: n.choice.host_reason for n in graph.nodes if n.choice is not None}
    assert "65,535 iterations" in reasons["Reduce"]
    assert not reasons["Elementwise"]
