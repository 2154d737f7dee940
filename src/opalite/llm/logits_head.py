"""LogitsHead: the heavy part of choosing a token, on the device that computed the logits.

An ONNX model of a few nodes (importer/proto/sampling_model.py), run as any other: the last position's logits,
penalties, and the k largest. Of a row of 150,000 numbers a few hundred bytes cross to the host.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from ..importer.proto.sampling_model import logits_head
from ..run.api.values.ort_value import OrtValue
from .sampling import Candidates

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession

Array = np.ndarray[Any, Any]
_STEP = 64
"""Lists of tokens are filled up to multiples of it, so that few sizes occur."""


class LogitsHead:
    """Candidates for the next token from a decoder's logits [1, positions, vocabulary], of float32 or float16.

    session: the decoder's, on whose device the head runs. vocabulary: how many tokens there are.
    """

    def __init__(self, session: InferenceSession, logits: str) -> None:
        self._device = session.device
        info = next(a for a in session.get_outputs() if a.name == logits)
        assert info.dtype is not None
        self._dtype = info.dtype
        self._sessions: dict[tuple[int, bool, bool], InferenceSession] = {}

    def candidates(
        self,
        logits: Any,
        count: int,
        temperature: float = 1.0,
        penalty: float = 1.0,
        seen: Collection[int] = (),
        banned: Collection[int] = (),
    ) -> Candidates:
        """The `count` likeliest tokens after the last position; count=0 stands for all.

        logits: an array, or a value on the device. penalty: for the tokens `seen`. banned: tokens that are none.
        """
        feeds: dict[str, Any] = {"logits": logits}
        vocabulary = vocabulary_of(logits)
        if penalty != 1 and seen:
            feeds["seen"] = _filled(seen)
            feeds["penalty"] = np.array([[penalty]], np.float32)
        if banned:
            feeds["banned"] = _filled(banned)
        count = min(count, vocabulary)
        if count != 1:
            feeds["temperature"] = np.array([[temperature or 1.0]], np.float32)
        found = self._session(count, "seen" in feeds, "banned" in feeds).run(None, feeds)
        if count == 1:
            return Candidates(np.zeros(1, np.float32), np.asarray(found[0]).reshape(1), 0.0, vocabulary == 1)
        if count:
            return Candidates(found[1][0], found[2][0], float(found[0].item()), count == vocabulary)
        order = np.argsort(-found[1][0], kind="stable")
        return Candidates(found[1][0][order], order, float(found[0].item()), True)

    def _session(self, count: int, penalised: bool, banned: bool) -> InferenceSession:
        from ..run.api.session.inference_session import InferenceSession

        key = count, penalised, banned
        if key not in self._sessions:
            model = logits_head(self._dtype, *key)
            self._sessions[key] = InferenceSession(model, device=self._device, precision="fp32")
        return self._sessions[key]

    def close(self) -> None:
        """Release what the device holds."""
        for session in self._sessions.values():
            session.close()


def vocabulary_of(logits: Any) -> int:
    """The last size of an array, or of a value on the device, which is not fetched for that."""
    return int(logits.shape()[-1] if isinstance(logits, OrtValue) else logits.shape[-1])


def _filled(tokens: Collection[int]) -> Array:
    """[1, n] with the first token again up to a multiple of _STEP: what happens to one token twice happens once."""
    row = np.fromiter(sorted(tokens), np.int64)
    return np.concatenate([row, np.full(-len(row) % _STEP, row[0])])[None]
