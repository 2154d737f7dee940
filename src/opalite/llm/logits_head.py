"""LogitsHead: logits processing and top-k on the device, so that only candidates are transferred.

A small ONNX model (importer/proto/sampling_model.py) takes the last position's logits, applies penalties and returns
the k largest. A few hundred bytes are transferred instead of a row of 150,000 numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    """Selects candidates for the next token from logits [texts, positions, vocabulary] in float32 or float16.

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
        """Return the `count` likeliest tokens after the last position.

        logits: an array or a device value. penalty: repetition penalty of the tokens `seen`. banned: excluded tokens.
        """
        return self.candidates_of_texts(logits, count, [temperature], [penalty], [seen], banned)[0]

    def candidates_of_texts(
        self,
        logits: Any,
        count: int,
        temperatures: Sequence[float],
        penalties: Sequence[float],
        seen: Sequence[Collection[int]],
        banned: Collection[int] = (),
    ) -> list[Candidates]:
        """Return the `count` likeliest tokens of each text; arguments as in `candidates`, for each text."""
        feeds: dict[str, Any] = {"logits": logits}
        vocabulary, texts = vocabulary_of(logits), len(penalties)
        if any(own and penalty != 1 for own, penalty in zip(seen, penalties, strict=True)):
            feeds["seen"] = _padded(seen)
            feeds["penalty"] = np.array([p if own else 1.0 for p, own in zip(penalties, seen, strict=True)], np.float32)
            feeds["penalty"] = feeds["penalty"][:, None]
        if banned:
            feeds["banned"] = _padded([banned] * texts)
        count = min(count, vocabulary)
        if count != 1:
            feeds["temperature"] = np.array([t or 1.0 for t in temperatures], np.float32)[:, None]
        found = self._session(count, "seen" in feeds, "banned" in feeds).run(None, feeds)
        if count == 1:
            zero = np.zeros(1, np.float32)
            return [Candidates(zero, token.reshape(1), 0.0, vocabulary == 1) for token in np.asarray(found[0])]
        rows = zip(*found, strict=True)
        return [Candidates(row, tokens, float(total[0]), count == vocabulary) for total, row, tokens in rows]

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


def last_row(logits: Any, text: int = 0) -> Array:
    """Return the logits [vocabulary] of the last position of an array or of a device value."""
    found: Array = np.asarray(logits.numpy() if isinstance(logits, OrtValue) else logits)[text, -1]
    return found


def vocabulary_of(logits: Any) -> int:
    """Return the last size of an array or of a device value, without a transfer."""
    return int(logits.shape()[-1] if isinstance(logits, OrtValue) else logits.shape[-1])


def _padded(tokens: Sequence[Collection[int]]) -> Array:
    """Return tokens [texts, n], n a multiple of _STEP, padded with the first one of each; duplicates have no effect."""
    rows = [np.fromiter(sorted(own) or (0,), np.int64) for own in tokens]
    longest = -(-max(map(len, rows)) // _STEP) * _STEP
    return np.stack([np.concatenate([row, np.full(longest - len(row), row[0])]) for row in rows])
