"""passes/data_movement/axis_orders.py: each operator between two Transposes, computed in the order of its input."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from opalite.passes.data_movement.axis_orders import reshaped_order
from opalite.passes.data_movement.move_transposes import move_transposes
from opalite.passes.rewrite_driver import Context, run_rule

from ....helpers.graph_text import parse_graph
from ....helpers.graphs import check_same, run_graph
from ..texts import GPU, Case, check

MOVE = move_transposes(GPU)

RESIZE = (
    'mode="linear", coordinate="half_pixel", nearest_mode="floor", cubic_a=-0.75, exclude_outside=false, '
    "antialias=false, roi=none, extrapolation=0.0"
)
POSITION = "cast<f32>(%0); mul($0, %1); max(%2, $1)"
OPERATORS = (
    ("Pad(%f) {pads=[0, 1, 2, 0, 0, 0, 1, 3], EDGE}", "Pad(%x) {pads=[0, 2, 0, 1, 0, 1, 3, 0], EDGE}"),
    (
        "Slice(%f) {starts=[0, 5, 1, 0], steps=[1, -2, 1, 1], sizes=[2, 3, 3, 6]}",
        "Slice(%x) {starts=[0, 1, 0, 5], steps=[1, 1, 1, -2], sizes=[2, 3, 6, 3]}",
    ),
    ("Concat(%f, %f) {axis=1}", "Concat(%x, %x) {axis=3}"),
    ("Softmax(%f) {axis=1, log=false}", "Softmax(%x) {axis=3, log=false}"),
    ("Cumulative(%f) {axis=2, SUM}", "Cumulative(%x) {axis=1, SUM}"),
    ('Reduce(%f) {axes=[1, 3], keepdims=true, kind="max"}', 'Reduce(%x) {axes=[2, 3], keepdims=true, kind="max"}'),
    ("ArgReduce(%f) {axis=1, LARGEST}", "ArgReduce(%x) {axis=3, LARGEST}"),
    ("Gather(%f, %i) {axis=1}", "Gather(%x, %i) {axis=3}"),
    (
        "Resize(%f) {sizes=[2, 8, 8, 6], scales=[1.0, 1.0, 2.0, 1.0], RESIZE}",
        "Resize(%x) {sizes=[2, 8, 6, 8], scales=[1.0, 2.0, 1.0, 1.0], RESIZE}",
    ),
    ("Elementwise(%f, %p) {expr=AT2}", "Elementwise(%x, %q) {expr=AT1}"),
)
"""Operators on [2,8,4,6] from an input [2,4,6,8], and the same channels last."""

SHORT = {
    "EDGE": 'mode="edge", value=0',
    "SUM": 'kind="sum", exclusive=false, reverse=true',
    "LARGEST": 'keepdims=true, kind="max", select_last=false',
    "RESIZE": RESIZE,
    "AT1": f'"coord<i32>(1:i32); {POSITION}"',
    "AT2": f'"coord<i32>(2:i32); {POSITION}"',
}


@pytest.mark.parametrize(("first", "last"), OPERATORS, ids=[first.split("(")[0] for first, _ in OPERATORS])
def test_an_operator_between_transposes(first: str, last: str) -> None:
    text = """
        graph g(%x: f32[2,4,6,8]) {{
            const %i: i64[3] = [1, 7, 0]
            const %{name}: f32{shape} = fill 0.5
            {lines}
            return %y
        }}
    """
    turned = f"%f = Transpose(%x) {{perm=[0, 3, 1, 2]}}\n%o = {first}\n%y = Transpose(%o) {{perm=[0, 2, 3, 1]}}"
    for name, attributes in SHORT.items():
        turned, last = turned.replace(name, attributes), last.replace(name, attributes)
    before = text.format(name="p", shape="[8,1,1]", lines=turned)
    check(Case("move_transposes", first, MOVE, before, text.format(name="q", shape="[8]", lines=f"%y = {last}")))


@pytest.mark.parametrize(
    ("before", "after", "order", "stored"),
    [
        ((2, 3, 4, 5), (2, 12, 5), (0, 3, 1, 2), (0, 2, 1)),  # pixels are merged
        ((2, 12, 5), (2, 3, 4, 5), (0, 2, 1), (0, 3, 1, 2)),
        ((2, 3, 4, 6), (2, 3, 4, 2, 3), (0, 3, 1, 2), (0, 3, 4, 1, 2)),  # channels are split
        ((2, 4, 5), (2, 1, 4, 5), (0, 2, 1), (0, 1, 3, 2)),
        ((2, 3, 4, 5), (2, 3, 20), (0, 3, 1, 2), None),  # a column and a channel are one axis
        ((2, 3, 4, 5), (2, 12, 5), (0, 2, 1, 3), None),  # a row and a column change places
        ((2, 6), (3, 4), (1, 0), None),
        ((1, 1, 1), (1, 1), (2, 1, 0), (0, 1)),
    ],
)
def test_reshapes_keep_axes_that_are_merged_or_split_together(
    before: tuple[int, ...], after: tuple[int, ...], order: tuple[int, ...], stored: tuple[int, ...] | None
) -> None:
    assert reshaped_order(before, after, order) == stored


def test_a_table_looked_up_between_transposes() -> None:
    text = """
        graph g(%x: i32[2,4,6,8]) {{
            const %t: f32[256] = seed 1
            {lines}
            return %y
        }}
    """
    before = text.format(
        lines="%f = Transpose(%x) {perm=[0, 3, 1, 2]}\n%g = Gather(%t, %f) {axis=0}\n"
        "%y = Transpose(%g) {perm=[0, 2, 3, 1]}"
    )
    check(Case("move_transposes", "a table", MOVE, before, text.format(lines="%y = Gather(%t, %x) {axis=0}")))


def test_indices_with_axes_in_another_order_stay() -> None:
    text = """
        graph g(%x: i32[2,4,6], %m: f32[9,5]) {
            %f = Transpose(%x) {perm=[2, 0, 1]}
            %g = Gather(%m, %f) {axis=0}
            return %g
        }
    """
    check(Case("move_transposes", "indices", MOVE, text, text))


def test_indices_of_the_rank_of_the_data_stay() -> None:
    text = """
        graph g(%x: f32[2,3,2,4], %m: f32[9,8,7,6]) {
            %f = Transpose(%x) {perm=[0, 3, 1, 2]}
            %i = Elementwise(%f) {expr="cast<i32>($0)"}
            %g = Gather(%m, %i) {axis=0}
            %h = Slice(%g) {starts=[0, 0, 0, 0, 0, 0, 0], steps=[1, 1, 1, 1, 1, 1, 1], sizes=[2, 4, 3, 2, 1, 1, 1]}
            %r = Reshape(%h) {shape=[2, 4, 3, 2]}
            %y = Transpose(%r) {perm=[0, 2, 3, 1]}
            return %y
        }
    """
    graph = parse_graph(dedent(text))
    feeds = {v.name: np.random.default_rng(1).uniform(0, 8, v.shape).astype(np.float32) for v in graph.inputs}
    answers = run_graph(graph, feeds)
    run_rule(graph, "move_transposes", MOVE, Context(check=True))
    check_same(answers, run_graph(graph, feeds))


def test_an_operand_of_fewer_axes_is_read_as_it_is_written() -> None:
    text = """
        graph g(%x: f32[5,3,4], %z: f32[2,5,3,4]) {
            %t = Transpose(%x) {perm=[2, 0, 1]}
            %e = Elementwise(%t) {expr="neg($0)"}
            %u = Transpose(%e) {perm=[1, 2, 0]}
            %v = Elementwise(%u) {expr="exp($0)"}
            %f = Transpose(%z) {perm=[0, 3, 1, 2]}
            %s = Elementwise(%f, %e) {expr="add($0, $1)"}
            %y = Transpose(%s) {perm=[0, 2, 3, 1]}
            return %y, %v
        }
    """
    graph = parse_graph(dedent(text))
    feeds = {v.name: np.random.default_rng(1).uniform(0, 8, v.shape).astype(np.float32) for v in graph.inputs}
    answers = run_graph(graph, feeds)
    run_rule(graph, "move_transposes", MOVE, Context(check=True))
    check_same(answers, run_graph(graph, feeds))
