"""Runs that go on from the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.plan.sized_values import SizedValues
from opalite.run.model.growing import Growing

from ....helpers.decoders import KINDS, feeds_of


def feed(state: opalite.State, tokens: Sequence[int]) -> None:
    """These tokens one by one."""
    for token in tokens:
        state.run(feeds_of("llama", np.array([[token]]), len(state)))


def test_what_follows_from_sizes_is_made_while_the_device_computes(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPALITE_STEP_LOOP", "0")
    looks = [False]
    made: list[bool] = []  # by a look ahead
    compute, look = SizedValues._compute, Growing._look_ahead

    def noted(values: SizedValues, sizes: tuple[int, ...]) -> dict[str, Any]:
        made.append(looks[0])
        return compute(values, sizes)

    def looking(growing: Growing, sizes: Sequence[int]) -> None:
        looks[0] = True
        look(growing, sizes)
        looks[0] = False

    monkeypatch.setattr(SizedValues, "_compute", noted)
    monkeypatch.setattr(Growing, "_look_ahead", looking)
    with opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp32") as session:
        state = session.state(reserve=40)
        feed(state, [1, 2, 3, 4, 5, 6])
        made.clear()
        feed(state, [1, 2, 3])
        assert made == [True] * 3
        state.reset()
        feed(state, [1, 2, 3, 4, 5])
        assert made[-1], "also for a sequence that begins anew"
