"""layout/assign_layouts.py: nodes are asked again only where a neighbour chose anew, which comes to the same
choices."""

from __future__ import annotations

import random

import pytest

from opalite.expr.trace_function import call
from opalite.ir import DType, Graph, Node, TensorType, Value
from opalite.ir.place import FLAT, packed
from opalite.kernels.kernel import Binding
from opalite.layout.assign_layouts import _improve, _local_seconds, _Problem
from opalite.layout.kernel_candidates import Option
from opalite.ops.elementwise import Elementwise

from ..passes.texts import CPU

LAYOUTS = (FLAT, packed(4), packed(8))


def some_problem(seed: int) -> _Problem:
    """A graph of additions with up to six options each, whose times and casts are of one magnitude."""
    rng = random.Random(seed)
    type_ = TensorType(DType.FLOAT32, (1, 16, 8, 8))
    graph = Graph()
    graph.inputs = [Value("x", type_)]
    values = list(graph.inputs)
    problem = _Problem(graph, CPU)
    cast = problem.cast_seconds(type_, FLAT, packed(4))
    for i in range(rng.randint(10, 40)):
        node = Node(Elementwise(call("add", DType.FLOAT32, DType.FLOAT32)), rng.choices(values[-5:], k=2), [])
        node.outputs = [Value(f"v{i}", type_, producer=node)]
        values += node.outputs
        graph.nodes.append(node)
        options = []
        for _ in range(rng.randint(1, 6)):
            binding = Binding((rng.choice(LAYOUTS), rng.choice(LAYOUTS)), (rng.choice(LAYOUTS),))
            options.append(Option(None, binding, rng.choice((0.0, 0.5, 1.0, rng.random())) * cast))
        problem.options[node] = sorted(options, key=lambda o: o.seconds)
    graph.outputs = values[-1:]
    problem.find_uses()
    return problem


def swept(problem: _Problem, chosen: dict[Node, Option]) -> None:
    """All nodes asked of all options, to and fro, until nothing changes."""
    for sweep in range(12):
        before = dict(chosen)
        for node in problem.graph.nodes if sweep % 2 == 0 else reversed(problem.graph.nodes):
            seconds = {o: _local_seconds(problem, chosen, node, o) for o in problem.options[node]}
            best = min(problem.options[node], key=seconds.__getitem__)
            if seconds[best] < seconds[chosen[node]] * (1 - 1e-9):
                chosen[node] = best
        if chosen == before:
            return


@pytest.mark.parametrize("seed", range(60))
def test_the_choice_is_that_of_whole_sweeps(seed: int) -> None:
    problem = some_problem(seed)
    rng = random.Random(seed)
    start = {node: rng.choice(options) for node, options in problem.options.items()}
    chosen, expected = dict(start), dict(start)
    _improve(problem, chosen)
    swept(problem, expected)
    assert [chosen[n].binding for n in problem.graph.nodes] == [expected[n].binding for n in problem.graph.nodes]
    assert [chosen[n].seconds for n in problem.graph.nodes] == [expected[n].seconds for n in problem.graph.nodes]
