"""passes/data_movement/minimum_cut.py: cuts of small graphs against all cuts."""

from __future__ import annotations

import itertools
import random

import pytest

from opalite.passes.data_movement.minimum_cut import Edge, minimum_cut

VERTICES = ("s", "a", "b", "c", "d", "t")


def _cost(edges: list[Edge], first: set[object]) -> float:
    return sum(cost for a, b, cost in edges if a in first and b not in first)


@pytest.mark.parametrize("seed", range(12))
def test_no_cut_costs_less(seed: int) -> None:
    draw = random.Random(seed)
    edges = [(*draw.sample(VERTICES, 2), draw.randint(0, 9)) for _ in range(12)]
    first = minimum_cut(edges, "s", "t")
    inner = VERTICES[1:-1]
    all_cuts = [{"s", *some} for n in range(len(inner) + 1) for some in itertools.combinations(inner, n)]
    assert "s" in first
    assert "t" not in first
    assert _cost(edges, first) == min(_cost(edges, cut) for cut in all_cuts)
