"""StepPreparation: plans and programs of a step, made while the first prompt is read."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..run.api.caches.model_state import State
    from .decoder import Decoder

_MOST_POSITIONS = 1024
"""Positions of the caches of zeros: kernels are chosen by their number, and they take memory."""


class StepPreparation:
    """Runs a token after zeros on a state of its own, in a thread, so that the second token finds its plan.

    A prompt of one token is followed by steps of two plans: models compute broadcasts for a single position apart.
    """

    def __init__(self, decoder: Decoder, prompt: int) -> None:
        """prompt: number of tokens of the prompt; kernels are chosen for as many positions."""
        self._decoder = decoder
        self._lengths = (1, 2) if prompt == 1 else (min(prompt, _MOST_POSITIONS),)
        self._thread = threading.Thread(target=self._run, name="opalite-prepare-step")
        self._thread.start()

    def _run(self) -> None:
        decoder = self._decoder
        with suppress(Exception):  # the step itself raises it, where the caller can see it
            for length in self._lengths:
                state = decoder.new_state()
                zeros = self._zeros(state, length)
                if zeros is not None:
                    state.set_values(zeros)
                    state.run(decoder.inputs.feeds([0], length), [decoder.inputs.logits])

    def _zeros(self, state: State, length: int) -> dict[str, Any] | None:
        """Return caches of zeros by input; None if a size is known by a run alone."""
        inputs = {a.name: a for a in self._decoder.session.get_inputs()}
        found = {}
        for pair in state.pairs:
            arg, shape = inputs[pair.past], list[int]()
            for axis, dim in enumerate(arg.shape):
                if isinstance(dim, int):
                    shape.append(dim)
                elif axis in (pair.time, pair.batch):
                    shape.append(length if axis == pair.time else 1)
                elif dim in self._decoder.sizes:
                    shape.append(self._decoder.sizes[dim])
                else:
                    return None
            assert arg.dtype is not None
            found[pair.past] = np.zeros(shape, arg.dtype.np)
        return found

    def wait(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()
