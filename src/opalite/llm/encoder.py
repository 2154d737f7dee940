"""Encoder: what an encoder-decoder makes of its text, sound or picture, once for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    from ..run.api.session import InferenceSession

_TOKENS, _MASK = "input_ids", "attention_mask"


class Encoder:
    """An encoder on the device."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs = {a.name: a for a in session.get_inputs()}

    @property
    def takes_text(self) -> bool:
        """Whether it reads tokens; else sound, a picture or the like, as arrays."""
        return _TOKENS in self._inputs

    def run(self, tokens: Sequence[int], given: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, and the mask that a decoder asks for as encoder_attention_mask.

        given: arrays by input name, such as input_features. InputError names what is missing.
        """
        feeds = dict(given)
        if self.takes_text and _TOKENS not in feeds:
            feeds[_TOKENS] = np.array([tokens], self._type(_TOKENS))
        if _MASK in self._inputs and _MASK not in feeds and _TOKENS in feeds:
            feeds[_MASK] = np.ones(np.shape(feeds[_TOKENS]), self._type(_MASK))
        missing = [n for n, a in self._inputs.items() if n not in feeds and not a.is_optional]
        if missing:
            arg = self._inputs[missing[0]]
            raise InputError(
                f"the encoder reads '{arg.name}' {arg.type}{arg.shape}: give the array by encoder_inputs, or by "
                f"--load-inputs {arg.name}=FILE.npy"
            )
        names = [a.name for a in self.session.get_outputs()]
        found = dict(zip(names, self.session.run(None, feeds), strict=True))
        if _MASK in feeds:
            found["encoder_attention_mask"] = feeds[_MASK]
        elif hidden := [v for n, v in found.items() if "hidden" in n]:
            found["encoder_attention_mask"] = np.ones(np.shape(hidden[0])[:2], np.int64)
        return found

    def _type(self, name: str) -> Any:
        dtype = self._inputs[name].dtype
        assert dtype is not None
        return dtype.np
