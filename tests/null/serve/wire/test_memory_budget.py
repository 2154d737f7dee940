"""One budget for all requests, with a part for each client."""

from __future__ import annotations

import pytest

from opalite.serve.wire.memory_budget import MemoryBudget, default_limit
from opalite.serve.wire.serve_errors import MemoryFull


def test_requests_together_have_a_limit() -> None:
    budget = MemoryBudget(100)
    first, second = budget.account("a"), budget.account("b")
    first.add(60)
    with pytest.raises(MemoryFull):
        second.add(41)
    second.close()
    assert budget.held == 60
    third = budget.account("b")
    third.add(40)
    first.close()
    third.close()
    third.add(1000)  # after its end
    first.close()
    assert (budget.held, budget._clients) == (0, {})


def test_several_requests_of_a_client_have_half_and_one_may_have_all() -> None:
    budget = MemoryBudget(100)
    only = budget.account("a")
    only.add(100)
    only.close()
    first, second, other = budget.account("a"), budget.account("a"), budget.account("b")
    first.add(30)
    with pytest.raises(MemoryFull):
        second.add(21)
    second.close()
    first.add(20)
    other.add(50)
    assert other.hold(-10)
    assert budget.held == 90


def test_the_default_is_a_part_of_this_machines_memory() -> None:
    assert 1 << 24 < default_limit() <= 1 << 30
