"""Runs that go on from the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.plan.template.shape_tensors import ShapeTensors
from opalite.run.model.kv_cache.decode_fast_path import DecodeFastPath

from .....helpers.decoders import KINDS, feeds_of


def feed(state: opalite.State, tokens: Sequence[int]) -> None:
    """These tokens one by one."""
    for token in tokens:
        state.run(feeds_of("llama", np.array([[token]]), len(state)))


def test_what_follows_from_sizes_is_made_while_the_device_computes(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "persistent")
    looks = [False]
    made: list[bool] = []  # by a look ahead
    compute, look = ShapeTensors._compute, DecodeFastPath._look_ahead

    def noted(values: ShapeTensors, sizes: tuple[int, ...]) -> dict[str, Any]:
        made.append(looks[0])
        return compute(values, sizes)

    def looking(growing: DecodeFastPath, sizes: Sequence[int]) -> None:
        looks[0] = True
        look(growing, sizes)
        looks[0] = False

    monkeypatch.setattr(ShapeTensors, "_compute", noted)
    monkeypatch.setattr(DecodeFastPath, "_look_ahead", looking)
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        state = session.state(reserve=40)
        feed(state, [1, 2, 3, 4, 5, 6])
        made.clear()
        feed(state, [1, 2, 3])
        assert made == [True] * 3
        state.reset()
        feed(state, [1, 2, 3, 4, 5])
        assert made[-1], "also for a sequence that begins anew"


def test_a_fork_runs_between_a_look_at_feeds_and_their_run(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another thread's may: what each has noted of its caches and sizes is its own."""
    serves = DecodeFastPath.serves
    waiting: list[opalite.State] = []
    given: list[Any] = []

    def interrupted(growing: DecodeFastPath, feeds: Any, caches: Any) -> bool:
        found = serves(growing, feeds, caches)
        if waiting:
            given.append(waiting.pop().run(feeds_of("llama", np.array([[3]]), 9))[0])
        return found

    monkeypatch.setattr(DecodeFastPath, "serves", interrupted)
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        state = session.state(reserve=40)
        feed(state, [1, 2, 3, 4, 5, 6, 7, 8, 9])
        fork = state.fork()
        feed(state, [9])  # so that they are of different lengths
        wanted = [s.fork().run(feeds_of("llama", np.array([[3]]), len(s)))[0] for s in (fork, state)]
        waiting.append(fork)
        found = state.run(feeds_of("llama", np.array([[3]]), 10))[0]
        np.testing.assert_array_equal(given[0], wanted[0])
        np.testing.assert_array_equal(found, wanted[1])
        assert (len(fork), len(state)) == (10, 11)


def test_caches_that_lie_elsewhere_are_seen(rt: Runtime) -> None:
    """Though the state's caches are the objects that they were."""
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        state, other = session.state(reserve=40), session.state(reserve=40)
        feed(state, [1, 2, 3, 4, 5, 6, 7, 8])
        feed(other, [1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
        for cache in other._values.values():
            cache.tensor = cache.copy().tensor
        feed(state, [1])
        feed(state, [2])
        again = [s.run(feeds_of("llama", np.array([[5]]), 10))[0] for s in (state, other)]
        np.testing.assert_array_equal(*again)
