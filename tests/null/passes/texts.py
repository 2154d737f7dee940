"""Passes as texts: a graph before and the graph expected, compared by structure; answers stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import numpy as np

from opalite.ir import DeviceInfo, Graph, Value
from opalite.passes.rewrite_driver import Context, Rule, run_rule

from ...helpers.compare_graphs import graphs_equal
from ...helpers.graph_text import parse_graph, print_graph
from ...helpers.graphs import check_same, run_graph

CPU = DeviceInfo(kind="cpu", family="pocl", native_float_width=16, max_work_group_size=4096, fp64=True)
GPU = DeviceInfo(max_work_group_size=256, compute_units=16, clock_mhz=1000, local_mem=1 << 15)
DOT = DeviceInfo(max_work_group_size=256, extensions=("cl_khr_integer_dot_product",))


@dataclass(frozen=True)
class Case:
    """What the pass `name` makes of the graph `before`; `after` None: it leaves the graph alone.

    rule: of the pass. whole: a pass that takes the whole graph, in place of a rule; with a rule, it runs first.
    prepare: what the text form does not tell, done to the values of both graphs by name.
    """

    name: str
    title: str
    rule: Rule | None
    before: str
    after: str | None = None
    whole: Callable[[Graph], object] | None = None
    prepare: Callable[[dict[str, Value]], None] | None = None
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return f"{self.name}: {self.title}"


def check(case: Case) -> None:
    """AssertionError with both texts if the rule gives another graph than expected, or other answers."""
    graph = _parsed(case, case.before)
    feeds = _feeds(graph)
    answers = run_graph(graph, feeds)
    if case.whole is not None:
        case.whole(graph)
    if case.rule is not None:
        run_rule(graph, case.name, case.rule, Context(check=True))
    wanted = _parsed(case, case.before if case.after is None else case.after)
    why = graphs_equal(graph, wanted)
    assert why is None, f"{why}\ngot:\n{print_graph(graph)}\nexpected:\n{print_graph(wanted)}"
    check_same(answers, run_graph(graph, feeds), case.tolerance)


def _parsed(case: Case, text: str) -> Graph:
    graph = parse_graph(dedent(text))
    if case.prepare is not None:
        case.prepare({v.name: v for v in graph.values()})
    return graph


def _feeds(graph: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    floats = {v.name: rng.standard_normal(v.shape) for v in graph.inputs}
    return {
        v.name: (floats[v.name] if v.dtype.is_float else rng.integers(0, 8, v.shape)).astype(v.dtype.np)
        for v in graph.inputs
    }
