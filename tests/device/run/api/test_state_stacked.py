"""Keys and values of a layer in one tensor, of onnxruntime's Attention: appended to in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort

import opalite
from opalite.cl.runtime import Runtime

from ....helpers.decoders import HEADS, LAYERS, WIDTH, packed


def test_attention_with_a_past(rt: Runtime) -> None:
    model = packed()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    reference = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    past: dict[str, Any] = {
        f"past_{layer}": np.zeros((2, 2, HEADS, 0, WIDTH // HEADS), np.float32) for layer in range(LAYERS)
    }
    session = opalite.InferenceSession(model, device=rt.info.id)
    state, narrow = session.state(), session.state(cache="int8")
    held, rng = 0, np.random.default_rng(3)
    for count in (6, 1, 1, 1, 1, 3, 1):
        held += count
        feeds = {"input_ids": rng.integers(1, 90, (2, count)), "attention_mask": np.ones((2, held), np.int32)}
        want, *presents = reference.run(None, {**feeds, **past})
        past = dict(zip(past, presents, strict=True))
        np.testing.assert_allclose(state.run(feeds)[0], want, atol=2e-5)
        np.testing.assert_allclose(narrow.run(feeds)[0], want, atol=0.02 * np.abs(want).max())
    assert (state.copies, narrow.copies, len(state)) == ("", "", held)
    for name, value in state.arrays().items():
        np.testing.assert_allclose(value, past[name], atol=2e-5)
    assert narrow.nbytes * 4 * 16 == state.nbytes * 20
