"""The oracle of templates: a Program that is not the plain emission's is judged by what both compute on the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir import DType, Graph
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.symbols import Trace
from opalite.plan.program import LaunchStep, ScalarArg

from ...helpers import symbolic
from ...helpers.device_programs import NotHere, run_here
from ...helpers.graphs import GraphMaker
from ...helpers.symbolic import Traced

INTEL = read_description("intel_uhd_630")
X = np.arange(30, dtype=np.float32).reshape(5, 6)


def turned() -> Graph:
    trace = Trace()
    n, m = trace.symbol(5), trace.symbol(6)
    g = GraphMaker()
    t = g.add("t", "Transpose", g.input("x", n, m), perm=(1, 0))
    graph = g.done(g.add("y", "Reduce", t, kind="sum", axes=(0,), keepdims=False), g.map("z", "neg", t))
    graph.trace = trace
    return graph


@pytest.fixture
def traced(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Traced:
    def differ(*_: Any) -> None:
        raise AssertionError("another plan")

    monkeypatch.setattr(Traced, "_check_same", differ)
    return Traced(turned(), rt.info)


def test_another_plan_that_computes_the_same_is_right(traced: Traced) -> None:
    assert traced.check((5, 6), [X]) is not None
    assert traced.check((5, 4), [X[:, :4].copy()]) is not None


def test_another_plan_that_computes_something_else_is_not(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    program = traced.template.at((5, 6))
    assert program is not None
    steps = list(program.steps)
    at, step = next((i, s) for i, s in enumerate(steps) if isinstance(s, LaunchStep))
    assert isinstance(step, LaunchStep)
    fewer = [ScalarArg(a.value.dtype.type(a.value - 1)) if isinstance(a, ScalarArg) else a for a in step.args]
    steps[at] = replace(step, args=tuple(fewer))
    wrong = replace(program, steps=steps)
    monkeypatch.setattr(type(traced.template), "at", lambda self, sizes: wrong)
    with pytest.raises(AssertionError, match="not those of a plain emission"):
        traced.check((5, 6), [X])


def test_what_no_device_here_runs_has_to_be_equal(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise NotHere("images")

    monkeypatch.setattr(symbolic, "run_here", refuse)
    with pytest.raises(AssertionError, match="another plan"):
        traced.check((5, 6), [X])


def test_packed_dot_products_of_another_device_are_computed_here(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphMaker()
    trace = Trace()
    x = g.input("x", trace.symbol(5), 64, dtype=DType.UINT8)
    weights = g.rng.integers(-90, 90, (64, 8)).astype(np.int8)
    graph = g.done(g.add("y", "IntegerMatMul", x, g.const("w", weights), None, None, trans_a=False, trans_b=False))
    graph.trace = trace
    traced = Traced(graph, INTEL)
    program = traced.template.at((5,))
    assert program is not None
    assert any("-DDOT=1" in s.options for s in program.sources)
    values = g.rng.integers(0, 256, (5, 64)).astype(np.uint8)
    try:
        (found,) = run_here(program, [values])
    except NotHere as e:
        if "-cl-std=CL3.0" not in str(e):  # which the other device's compiler takes, and this one may not
            raise
        pytest.skip("the compiler here does not take OpenCL C 3.0")
    assert found.tolist() == (values.astype(int) @ weights.astype(int)).tolist()
