"""Sequences of a batch are moved in an order that reads each one before it is overwritten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opalite.run.api.caches.state_sequences import SPARE, moves_for


@given(st.integers(1, 8).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
def test_moves(indices: list[int]) -> None:
    held = {i: i for i in range(len(indices))}
    moves = moves_for(indices)
    for source, to in moves:
        held[to] = held[source]
    assert [held[i] for i in range(len(indices))] == indices
    written = [to for _, to in moves if to != SPARE]
    assert sorted(written) == [to for to, source in enumerate(indices) if source != to]
