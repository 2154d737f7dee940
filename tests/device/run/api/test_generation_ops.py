"""BeamSearch on a device: its decoder's runs, and the order of its caches."""

from __future__ import annotations

import numpy as np

import opalite

from ....helpers.generators import WORDS, gpt, search_model
from ....helpers.numpy_session import NumpySession


def test_beam_search_on_a_device() -> None:
    ids = np.random.default_rng(0).integers(2, WORDS, (2, 4)).astype(np.int32)
    numbers = {"max_length": 16, "min_length": 0, "num_beams": 3, "num_return_sequences": 2}
    inputs = [("input_ids", ids), *((n, np.array([v], np.int32)) for n, v in numbers.items())]
    attrs = {"eos_token_id": 1, "pad_token_id": 0, "decoder": gpt(3)}
    model, feeds = search_model("BeamSearch", inputs, ["sequences", "sequences_scores"], **attrs)
    want = NumpySession(model).run(feeds)
    session = opalite.InferenceSession(model)
    for _ in range(2):
        sequences, scores = session.run(None, feeds)
        np.testing.assert_array_equal(sequences, want[0])
        np.testing.assert_allclose(scores, want[1], rtol=1e-3, atol=1e-3)
