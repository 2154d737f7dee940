"""Tensors without elements: every fixture device gets a plan for graphs that hold some, and results are right."""

from __future__ import annotations

from typing import Any

import pytest

from opalite.importer import ImportRun, check_feeds, load_model
from opalite.ir import Graph
from opalite.ir.device.device_descriptions import description_names, read_description
from opalite.ir.place import Memory
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import optimise, place
from opalite.passes.rewrite_driver import Context
from opalite.plan.emit_program import emit
from opalite.plan.program import LaunchStep

from ...helpers.empty_models import BY_HAND, CASES, empty_case
from ...helpers.graphs import GraphMaker, operators
from ...helpers.numpy_session import NumpySession
from ..importer.oracles import assert_same


def _graph(name: str) -> Graph:
    raw, feeds = empty_case(name)
    model = load_model(raw)

    def no_bodies(*_: Any) -> Any:
        raise AssertionError("there is no loop")

    segment = ImportRun(model.importer, check_feeds(model, feeds), no_bodies).segment
    assert segment is not None
    return segment.graph


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_onnxruntime(case: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    raw, feeds = empty_case(case)
    want = BY_HAND.get(case) or ort.InferenceSession(raw, providers=["CPUExecutionProvider"]).run(None, feeds)
    assert_same(NumpySession(raw).run(feeds), want)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16])
@pytest.mark.parametrize("name", description_names())
def test_plans_hold_nothing_to_compute_of_them(name: str, precision: Precision) -> None:
    device = read_description(name)
    for case in CASES:
        graph = _graph(case)
        policy = PrecisionPolicy(precision)
        optimise(graph, Context(check=True), device, policy)
        assert all(o.type.count for n in graph.nodes for o in n.outputs if o in graph.uses()), case
        set_precision(graph, policy)
        place(graph, device, memory=None if device.image_support else Memory.BUFFER, ctx=Context(check=True))
        program = emit(graph, device)
        assert all(min(s.grid) > 0 for s in program.steps if isinstance(s, LaunchStep)), case


def test_what_follows_from_nothing_is_known() -> None:
    g = GraphMaker()
    total = g.add("total", "Reduce", g.input("e", 0, 3), kind="sum", axes=(0,), keepdims=False)
    graph = g.done(g.map("y", "add", g.input("x", 3), total))
    optimise(graph, Context(check=True))
    assert operators(graph) == ["Elementwise"]
    assert total not in graph.values()


def test_a_node_that_computes_nothing_reads_nothing() -> None:
    """Nothing is launched for it, so what it would read need not be there any more."""
    g = GraphMaker()
    a = g.map("a", "neg", g.input("x", 7))
    b = g.map("b", "neg", g.input("v", 7))
    y = g.map("y", "add", a, g.input("e", 0, 1))
    parts = [g.add(f"z{i}", "Slice", b, starts=(4 * i,), steps=(1,), sizes=(3,)) for i in range(2)]
    graph = g.done(y, *parts)
    device = read_description("pocl_avx512")
    place(graph, device)
    emit(graph, device)
