"""Positions of a graph's nodes in layers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fast_sugiyama", reason="the extra opalite-cl[lens] is not installed")

from opalite.lens.layout import layered_layout


def places(layout: dict[str, Any]) -> dict[int, tuple[float, float]]:
    return {n: (x, y) for n, x, y in zip(layout["ids"], layout["x"], layout["y"], strict=True)}


def test_edges_lead_downwards_and_long_ones_bend_around_nodes() -> None:
    layout = layered_layout(range(5), [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (0, 1)])
    at = places(layout)
    assert [at[n][1] for n in range(5)] == [0, 1, 2, 3, 4]
    assert [e[:2] for e in layout["edges"]] == [[0, 1], [1, 2], [2, 3], [0, 3], [3, 4]], "an edge given twice is one"
    (bends,) = [e[2] for e in layout["edges"] if len(e) > 2]
    assert [y for _, y in bends] == [1, 2]
    assert all(abs(x - at[n][0]) > 0.5 for x, y in bends for n in range(5) if at[n][1] == y), "they miss the boxes"


def test_separate_components_and_single_nodes_do_not_overlap() -> None:
    layout = layered_layout([3, 7, 8, 20, 21, 30], [(7, 8), (20, 21), (8, 99), (3, 3)])
    assert len(set(places(layout).values())) == 6
    assert [e[:2] for e in layout["edges"]] == [[7, 8], [20, 21]], "edges to what is not drawn are left out"


def test_many_single_nodes_take_several_rows() -> None:
    at = places(layered_layout(range(40), []))
    assert len(set(at.values())) == 40
    assert max(x for x, _ in at.values()) < 12
    assert at[0] < at[1], "in order"


def test_a_cycle_and_an_empty_graph_have_a_layout() -> None:
    assert len(set(places(layered_layout(range(3), [(0, 1), (1, 2), (2, 0)])).values())) == 3
    assert layered_layout([], []) == {"ids": [], "x": [], "y": [], "edges": [], "frames": []}


def test_a_body_has_a_frame_beside_its_loop() -> None:
    inside = {10: (1, "loop"), 11: (1, "loop"), 20: (11, "loop/if"), 30: (0, "other")}
    edges = [(0, 1), (1, 2), (0, 10), (10, 11)]  # the body reads an outer value
    layout = layered_layout([0, 1, 2, 10, 11, 20, 30], edges, inside)
    at = places(layout)
    frames = {f[0]: f[1:] for f in layout["frames"]}
    assert [e[:2] for e in layout["edges"]] == [[a, b] for a, b in edges]
    assert at[10][0] > max(at[n][0] for n in (0, 1, 2)) + 1
    assert at[20][0] > at[11][0] + 1
    for node, (_, name) in inside.items():
        owner, x, y, width, height = frames[name]
        assert owner == inside[node][0]
        assert x <= at[node][0] <= x + width - 0.99
        assert y <= at[node][1] <= y + height - 0.99
    boxes = [f[2:] for f in layout["frames"]]
    for i, (x, y, width, height) in enumerate(boxes):
        for left, top, wide, tall in boxes[:i]:
            assert x >= left + wide or left >= x + width or y >= top + tall or top >= y + height
