"""importer/walk/kv_cache_append.py: parts of one past followed by new rows, and graphs that only look alike."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from opalite.importer.walk.kv_cache_append import unstack

from ....helpers.compare_graphs import graphs_equal
from ....helpers.graph_text import parse_graph, print_graph
from ....helpers.graphs import check_same, run_graph

BEFORE = """
    graph g(%p: f32[2,1,3,5,4], %a: f32[1,3,2,4], %b: f32[1,3,2,4]) {
        const %one: i64[] = [1]
        %s = Slice(%p) {sizes=[1, 1, 3, 5, 4], starts=[0, 0, 0, 0, 0], steps=[1, 1, 1, 1, 1]}
        %k0 = Reshape(%s) {shape=[1, 3, 5, 4]}
        %v0 = Gather(%p, %one) {axis=0}
        %k = Concat(%k0, %a) {axis=2}
        %v = Concat(%v0, %b) {axis=2}
        %kl = Reshape(%k) {shape=[1, 1, 3, 7, 4]}
        %vl = Reshape(%v) {shape=[1, 1, 3, 7, 4]}
        %y = Concat(%kl, %vl) {axis=0}
        return %k, %v, %y
    }
"""
AFTER = """
    graph g(%p: f32[2,1,3,5,4], %a: f32[1,3,2,4], %b: f32[1,3,2,4]) {
        %al = Reshape(%a) {shape=[1, 1, 3, 2, 4]}
        %bl = Reshape(%b) {shape=[1, 1, 3, 2, 4]}
        %new = Concat(%al, %bl) {axis=0}
        %y = Concat(%p, %new) {axis=3}
        %ks = Slice(%y) {sizes=[1, 1, 3, 7, 4], starts=[0, 0, 0, 0, 0], steps=[1, 1, 1, 1, 1]}
        %k = Reshape(%ks) {shape=[1, 3, 7, 4]}
        %vs = Slice(%y) {sizes=[1, 1, 3, 7, 4], starts=[1, 0, 0, 0, 0], steps=[1, 1, 1, 1, 1]}
        %v = Reshape(%vs) {shape=[1, 3, 7, 4]}
        return %k, %v, %y
    }
"""


def test_parts_of_one_past() -> None:
    graph = parse_graph(dedent(BEFORE))
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    answers = run_graph(graph, feeds)
    assert unstack(graph, graph.inputs[0], graph.outputs[2], 3)
    graph.prune()
    why = graphs_equal(graph, parse_graph(dedent(AFTER)))
    assert why is None, f"{why}\n{print_graph(graph)}"
    check_same(answers, run_graph(graph, feeds), 0)


@pytest.mark.parametrize(
    "old, new",
    [
        ("const %one: i64[] = [1]", "const %one: i64[] = [0]"),  # the first part twice
        ("%y = Concat(%kl, %vl) {axis=0}", "%y = Concat(%vl, %kl) {axis=0}"),
        ("%v = Concat(%v0, %b) {axis=2}", "%v = Concat(%b, %v0) {axis=2}"),
        ("%kl = Reshape(%k) {shape=[1, 1, 3, 7, 4]}", '%kl = Elementwise(%vl) {expr="neg($0)"}'),
    ],
)
def test_what_is_none(old: str, new: str) -> None:
    text = BEFORE.replace(old, new)
    if "neg" in new:
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines) if "%kl =" in line)
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
        text = "\n".join(lines)
    graph = parse_graph(dedent(text))
    before = print_graph(graph)
    assert not unstack(graph, graph.inputs[0], graph.outputs[2], 3)
    assert print_graph(graph) == before
