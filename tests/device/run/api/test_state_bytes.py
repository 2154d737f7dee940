"""session.state(cache="int8"): caches in 8 bits, appended to and read in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.errors import OptionError

from ....helpers.counters import settled
from ....helpers.decoders import KINDS, SIZE, feeds_of, told

TOKENS = [5, 3, 8, 60, 2, 9, 44, 17, 1, 70, 31, 6]


def agree(found: list[Any], wanted: list[Any], atol: float) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol * np.abs(b).max())


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "merged"])
def test_logits_are_near_those_of_float_caches(rt: Runtime, kind: str) -> None:
    session = opalite.InferenceSession(KINDS[kind](), device=rt.info.id)
    plain, narrow = session.state(max_length=64), session.state(max_length=64, cache="int8")
    wanted, found = told(plain, kind, TOKENS), told(narrow, kind, TOKENS)
    agree(found, wanted, 0.02)
    assert any((a != b).any() for a, b in zip(found, wanted, strict=True))
    assert narrow.copies == ""
    size = 16 if kind == "gpt2" else SIZE
    assert narrow.nbytes == plain.nbytes * (size + 4) // (4 * size)
    for a, b in zip(plain.arrays().values(), narrow.arrays().values(), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert np.abs(a - b).max() < 0.02 * np.abs(a).max()
    # Nothing is built or allocated by the steps that follow, nor planned.
    session.settle()
    counters, plans = session.runtime.counters, session.stats().plans_made
    before = settled(rt)
    told(narrow, kind, [4, 8, 15], len(TOKENS))
    spent = counters.snapshot() - before
    assert (spent.programs_built, spent.memory_objects, session.stats().plans_made) == (0, 0, plans)


def test_a_state_is_truncated_and_continued(rt: Runtime) -> None:
    session = opalite.InferenceSession(KINDS["llama"](), device=rt.info.id)
    state = session.state(cache="int8", reserve=8)
    wanted = told(state, "llama", TOKENS)
    state.truncate(7)
    agree(told(state, "llama", TOKENS[7:], 7), wanted[4:], 1e-5)
    other = state.fork([0, 0])
    agree([other.run(feeds_of("llama", [[7], [7]], 12))[0][:1]], [state.run(feeds_of("llama", [[7]], 12))[0]], 1e-5)
    taken = session.state(cache="int8")
    taken.set_values(state.arrays())
    agree([taken.run(feeds_of("llama", [[3]], 13))[0]], [state.run(feeds_of("llama", [[3]], 13))[0]], 1e-5)


def test_halves_are_kept_in_bytes_too(rt: Runtime) -> None:
    session = opalite.InferenceSession(KINDS["llama"](), device=rt.info.id, precision="fp16")
    narrow = session.state(cache="int8")
    wanted = told(opalite.InferenceSession(KINDS["llama"](), device=rt.info.id).state(), "llama", TOKENS)
    agree(told(narrow, "llama", TOKENS), wanted, 0.05)
    assert narrow.copies == ""


def test_what_cannot_be_kept_so(rt: Runtime) -> None:
    session = opalite.InferenceSession(KINDS["llama"](), device=rt.info.id)
    with pytest.raises(OptionError, match="model, int8"):
        session.state(cache="int4")
