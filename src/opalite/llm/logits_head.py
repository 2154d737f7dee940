"""LogitsHead: logits processing and top-k on the device, so that only candidates are transferred.

A small ONNX model (importer/proto/sampling_model.py) takes the last position's logits, applies penalties and returns
the k largest. A few hundred bytes are transferred instead of a row of 150,000 numbers.
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
"""Token lists are padded to multiples of this, so that few input sizes occur."""


class LogitsHead:
    """Selects candidates for the next token from logits [1, positions, vocabulary] in float32 or float16.

    session: the decoder's session; the head runs on its device.
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
        """Return the `count` likeliest tokens after the last position; count=0: all tokens.

        logits: an array or a device value. penalty: repetition penalty of the tokens `seen`. banned: excluded tokens.
        """
        feeds: dict[str, Any] = {"logits": logits}
        vocabulary = vocabulary_of(logits)
        if penalty != 1 and seen:
            feeds["seen"] = _padded(seen)
            feeds["penalty"] = np.array([[penalty]], np.float32)
        if banned:
            feeds["banned"] = _padded(banned)
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
        for session in self._sessions.values():
            session.close()


def last_row(logits: Any) -> Array:
    """Return the logits [vocabulary] of the last position of an array or of a device value."""
    found: Array = np.asarray(logits.numpy() if isinstance(logits, OrtValue) else logits)[0, -1]
    return found


def vocabulary_of(logits: Any) -> int:
    """Return the last size of an array or of a device value, without a transfer."""
    return int(logits.shape()[-1] if isinstance(logits, OrtValue) else logits.shape[-1])


def _padded(tokens: Collection[int]) -> Array:
    """Return tokens [1, n], padded with the first one to a multiple of _STEP; duplicates have no effect."""
    row = np.fromiter(sorted(tokens), np.int64)
    return np.concatenate([row, np.full(-len(row) % _STEP, row[0])])[None]
