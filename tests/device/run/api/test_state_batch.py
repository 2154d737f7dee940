"""GroupQueryAttention's caches of a batch: each sequence's new rows go behind its own, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import opalite
from opalite.cl.runtime import Runtime

from ....helpers import decoders

LENGTHS = [5, 3, 4]


def steps() -> list[dict[str, Any]]:
    """Feeds of a prompt padded at its right, and of tokens behind it."""
    rng = np.random.default_rng(0)
    longest, batch = max(LENGTHS), len(LENGTHS)
    prompt = rng.integers(1, decoders.WORDS, (batch, longest))
    mask = (np.arange(longest) < np.array(LENGTHS)[:, None]).astype(np.int64)
    found = [{"input_ids": prompt, "attention_mask": mask}]
    for i in range(1, 7):
        mask = (np.arange(longest + i) < np.array(LENGTHS)[:, None] + i).astype(np.int64)
        found.append({"input_ids": rng.integers(1, decoders.WORDS, (batch, 1)), "attention_mask": mask})
    return found


def by_onnxruntime(model: bytes, feeds: list[dict[str, Any]]) -> list[Any]:
    """Logits of each run, with caches as arrays."""
    session = ort.InferenceSession(model)
    names = [i.name for i in session.get_inputs() if i.name.startswith("past")]
    shape = (len(LENGTHS), decoders.SHARED, 0, decoders.SIZE)
    past = {n: np.zeros(shape, np.float32) for n in names}
    found = []
    for fed in feeds:
        logits, *presents = session.run(None, {**fed, **past})
        past = dict(zip(names, presents, strict=True))
        found.append(logits)
    return found


@pytest.mark.parametrize("cache", ["model", "int8"])
def test_rows_of_different_lengths(rt: Runtime, cache: str) -> None:
    model = decoders.grouped()
    state = opalite.InferenceSession(model, device=rt.info.id, precision="fp32").state(cache=cache)
    wanted = by_onnxruntime(model, steps())
    for i, (fed, theirs) in enumerate(zip(steps(), wanted, strict=True)):
        ours = state.run(fed)[0]
        if i:  # of the prompt, logits of padding differ
            np.testing.assert_allclose(ours, theirs, atol=2e-4 if cache == "model" else 0.1)
    assert state.copies == ""
    assert len(state) == max(LENGTHS) + len(wanted) - 1


def test_caches_as_arrays(rt: Runtime) -> None:
    """They are copied, as an earlier array keeps the rows that padding was."""
    model = decoders.grouped()
    session = opalite.InferenceSession(model, device=rt.info.id, precision="fp32")
    names = [i.name for i in session.get_inputs() if i.name.startswith("past")]
    past = {n: np.zeros((len(LENGTHS), decoders.SHARED, 0, decoders.SIZE), np.float32) for n in names}
    for i, (fed, theirs) in enumerate(zip(steps(), by_onnxruntime(model, steps()), strict=True)):
        logits, *presents = session.run(None, {**fed, **past})
        past = dict(zip(names, presents, strict=True))
        if i:
            np.testing.assert_allclose(logits, theirs, atol=2e-4)


def test_capacity_grows(rt: Runtime) -> None:
    session = opalite.InferenceSession(decoders.grouped(layers=1), device=rt.info.id, precision="fp32")
    one, batch = session.state(reserve=8), session.state(reserve=8)
    for i in range(40):
        ids = np.array([[i % decoders.WORDS]])
        mask = np.ones((1, i + 1), np.int64)
        wanted = one.run({"input_ids": ids, "attention_mask": mask})[0]
        found = batch.run({"input_ids": ids.repeat(2, 0), "attention_mask": mask.repeat(2, 0)})[0]
        np.testing.assert_allclose(found, wanted.repeat(2, 0), atol=2e-4)
    assert batch.copies == ""
