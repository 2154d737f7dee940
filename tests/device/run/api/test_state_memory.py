"""The device memory of the caches of a state."""

from __future__ import annotations

import numpy as np

from opalite.cl.runtime import Runtime

from ....helpers.counters import settled
from ....helpers.decoders import KINDS, feeds_of
from .caches.test_model_state import PROMPT, go_on, open_session


def test_another_sequence_takes_the_memory_of_the_last(rt: Runtime) -> None:
    session = open_session(rt, KINDS["llama"]())
    state = session.state(reserve=64)
    first, held = go_on(state, "llama", PROMPT, 12), state.nbytes
    state.reset()
    assert (len(state), state.nbytes) == (0, 0)
    taken = settled(rt)
    again = go_on(state, "llama", PROMPT, 12)
    assert (session.runtime.counters.snapshot() - taken).bytes_allocated < held / 8
    assert again[0] == first[0]
    np.testing.assert_array_equal(again[1], first[1])
    branch = state.fork()
    state.reset()
    assert go_on(state, "llama", PROMPT[:2], 3)[0] == go_on(session.state(reserve=64), "llama", PROMPT[:2], 3)[0]
    assert len(branch) == len(PROMPT) + 11, "a fork keeps its own"
    state.reset()
    batch = np.array([[5, 3], [7, 7]])  # of another size, which takes other memory
    assert state.run(feeds_of("llama", batch, 0))[0].shape[0] == 2
