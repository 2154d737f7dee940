"""Concats on GPUs: what is left to move is moved by one launch, whose numbers are those of any device."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir import DeviceInfo, DType, Graph
from opalite.ir.device.device_descriptions import read_description
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.symbols import Trace
from opalite.kernels.data_movement.strided_copy import MAX_INPUTS
from opalite.plan.planner import Knowledge, PlanOptions, plan
from opalite.plan.program import LaunchStep, Program

from ...helpers.device_programs import run_here
from ...helpers.graphs import GraphMaker, feeds_for, run_graph
from ...helpers.symbolic import Traced

OPTIONS = PlanOptions(PrecisionPolicy(Precision.FP32))


def load(name: str) -> DeviceInfo:
    return read_description(name)


def joined(shapes: list[tuple[int, ...]], axis: int, dtype: DType = DType.FLOAT32) -> Graph:
    g = GraphMaker()
    inputs = [g.input(f"x{i}", *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    return g.done(g.add("y", "Concat", *inputs, axis=axis))


def moves(program: Program) -> int:
    return sum(isinstance(s, LaunchStep) and s.kernel == "ConcatCopy" for s in program.steps)


@pytest.mark.parametrize(
    ("shapes", "axis", "launches"),
    [
        ([(3, 5), (2, 5), (1, 5)], 0, 1),
        ([(3, 5), (3, 0), (3, 7), (3, 1)], 1, 3),  # the last is one element of each line: a column
        ([(3, 5), (3, 0), (3, 7), (3, 2)], 1, 1),
        ([(2, 3, 5, 7), (2, 4, 5, 7), (2, 1, 5, 7)], 1, 1),
        ([(1, 2, 3, 5), (1, 2, 3, 2)], 3, 1),
        ([(1, 1 + i % 3, 2, 3) for i in range(MAX_INPUTS + 3)], 1, 2),
    ],
)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT64, DType.UINT8])
def test_runs_are_moved_at_once(
    rt: Runtime, shapes: list[tuple[int, ...]], axis: int, launches: int, dtype: DType
) -> None:
    graph = joined(shapes, axis, dtype)
    feeds = feeds_for(graph)
    want = run_graph(graph, feeds)
    program = plan(graph, OPTIONS, Knowledge(load("nvidia_h200"))).program
    assert moves(program) == launches
    for got, expected in zip(run_here(program, list(feeds.values())), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_cpu_takes_a_launch_for_each(rt: Runtime) -> None:
    program = plan(joined([(3, 5), (3, 7), (3, 2)], 1), OPTIONS, Knowledge(load("pocl_avx512"))).program
    assert moves(program) == 3


def test_open_sizes(rt: Runtime) -> None:
    trace = Trace()
    h, w = trace.symbol(5), trace.symbol(6)
    g = GraphMaker()
    a, b, c = g.input("a", 1, 4, h, w), g.input("b", 1, 8, h, w), g.input("c", 1, 3, h, w)
    graph = g.done(g.add("y", "Concat", g.map("p", "neg", a), b, g.map("q", "exp", c), axis=1))
    graph.trace = trace
    traced = Traced(graph, load("nvidia_h200"))
    rng = np.random.default_rng(0)
    for sizes in ((5, 6), (3, 8), (17, 2)):
        feeds = [rng.standard_normal((1, n, *sizes)).astype(np.float32) for n in (4, 8, 3)]
        placed = traced.check(sizes, feeds)
        assert placed is not None, traced.template.failing(sizes)
        (got,) = run_here(traced.template.at(sizes), feeds)
        np.testing.assert_allclose(got, np.concatenate([-feeds[0], feeds[1], np.exp(feeds[2])], 1), rtol=1e-5)
