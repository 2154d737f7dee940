"""The planner's strategies against an independent verifier."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opalite.plan.memory import arena_planner
from opalite.plan.memory.arena_planner import (
    STRATEGIES,
    Plan,
    Replacer,
    Request,
    lower_bound,
    plan_memory,
    verify_plan,
)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    found = []
    for i in range(draw(st.integers(0, 24))):
        first = draw(st.integers(0, 30))
        found.append(Request(i, draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 12))))
    return found


@given(requests(), st.sampled_from([1, 64, 128]), st.sampled_from(sorted(STRATEGIES)))
def test_every_strategy_passes_the_verifier(found: list[Request], align: int, strategy: str) -> None:
    plan, totals = plan_memory(found, align, strategy)
    assert totals == {strategy: plan.total}
    assert plan.total >= lower_bound(found, align)


@given(requests())
def test_best_is_no_worse_than_any(found: list[Request]) -> None:
    plan, totals = plan_memory(found, 64)
    assert plan.total == min(totals.values())
    assert plan.total <= totals["naive"]


def test_the_search_reaches_a_bound_that_no_order_by_size_reaches() -> None:
    rows = [(3, 0, 1), (2, 1, 2), (3, 2, 3), (1, 0, 2), (2, 3, 4), (4, 4, 5), (1, 2, 5), (2, 5, 6)]
    found = [Request(i, 1000 * size, first, last) for i, (size, first, last) in enumerate(rows)]
    plan, totals = plan_memory(found, 1)
    assert plan.total <= 1.05 * lower_bound(found)
    assert plan.total == min(totals.values())


def test_a_chain_needs_two_neighbours_only() -> None:
    chain = [Request(i, 1000 * (i % 3 + 1), i, i + 1) for i in range(20)]
    plan, _ = plan_memory(chain, 1)
    assert plan.total == lower_bound(chain) == 5000


def test_the_verifier_sees_an_overlap() -> None:
    pair = [Request(0, 100, 0, 2), Request(1, 100, 2, 3)]
    with pytest.raises(AssertionError, match="overlap"):
        verify_plan(pair, Plan("by hand", {0: 0, 1: 64}, 256), 64)
    verify_plan(pair, Plan("by hand", {0: 0, 1: 128}, 256), 64)


def test_the_verifier_sees_misalignment_and_the_end() -> None:
    one = [Request(0, 100, 0, 2)]
    with pytest.raises(AssertionError, match="aligned"):
        verify_plan(one, Plan("by hand", {0: 10}, 256), 64)
    with pytest.raises(AssertionError, match="sticks out"):
        verify_plan(one, Plan("by hand", {0: 64}, 128), 64)


def test_many_overlaps_are_placed_again_by_the_sizes_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests' own sizes may be open, and have no order."""
    monkeypatch.setattr(arena_planner, "MOST_OVERLAPS", 0)
    open_sizes = [Request(i, cast(int, None), 0, 1 + i) for i in range(4)]
    sizes = {0: 100, 1: 300, 2: 200, 3: 50}
    plan, least = Replacer(open_sizes, [0, 1, 2, 3]).place(sizes, 64)
    placed = [Request(r.id, sizes[r.id], r.first, r.last) for r in open_sizes]
    verify_plan(placed, plan, 64)
    assert plan.total >= least


def test_the_smallest_gap_that_fits_is_taken() -> None:
    """Gaps of 20 and of 5 bytes between memory in use; what fits in neither comes after it."""
    busy = [(0, 10), (30, 40), (45, 50)]
    assert [arena_planner._best_fit(busy, size) for size in (5, 6, 21)] == [40, 10, 50]
