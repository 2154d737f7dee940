"""The few combinations that tests take of many."""

from __future__ import annotations

from itertools import combinations, product

from ..helpers.pairs import pairwise


def test_every_two_values_meet_in_few_rows() -> None:
    choices = (["a", "b", "c", "d"], [1, 2, 3], [None, 0.5], [False, True])
    rows = pairwise(*choices)
    assert len(rows) == 12
    for i, j in combinations(range(4), 2):
        assert set(product(choices[i], choices[j])) == {(row[i], row[j]) for row in rows}
    assert pairwise([1, 2], [3]) == [(1, 3), (2, 3)]
