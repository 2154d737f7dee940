"""The search for a policy, replayed with known errors of each node: no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from opalite.run.precision.find_mixed_policy import MOST_TRIALS, search


@dataclass
class Known:
    """Differences that add up over the nodes in half."""

    harm: Mapping[str, float]
    count: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.harm)

    def difference(self, kept: Mapping[str, str]) -> float:
        self.count += 1
        return sum(h for n, h in self.harm.items() if n not in kept)


def harm_of(count: int, **most: float) -> dict[str, float]:
    """A small error for every node, more for some."""
    return {f"n{i}": most.get(f"n{i}", 1e-5) for i in range(count)}


def test_one_bad_node_is_found_with_few_neighbours() -> None:
    trials = Known(harm_of(200, n71=0.3))
    kept = search(trials, {}, 0.01)
    assert "n71" in kept
    assert len(kept) <= 3
    assert "in half change the outputs by 0.3" in kept["n71"]


def test_the_worst_groups_come_first_and_what_was_given_stays() -> None:
    trials = Known(harm_of(160, n5=0.2, n95=0.1, n155=0.004))
    kept = search(trials, {"n30": "its values reach 1e+06"}, 0.01)
    assert {"n5", "n95", "n30"} <= kept.keys()
    assert "n155" not in kept
    assert kept["n30"] == "its values reach 1e+06"
    assert trials.difference(kept) <= 0.01


@pytest.mark.parametrize("count", [1, 2, 3, 7, 500])
def test_harm_spread_everywhere_keeps_enough_within_the_budget(count: int) -> None:
    trials = Known({f"n{i}": 1.0 / count for i in range(count)})
    kept = search(trials, {}, 0.3)
    assert trials.difference(kept) <= 0.3
    assert trials.count <= MOST_TRIALS + 2
