"""Encoder: encodes the text, sound or picture of an encoder-decoder model, once per input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from .audio import Spectrogram, find_spectrogram, load_samples

if TYPE_CHECKING:
    from ..run.api.session.inference_session import InferenceSession
    from ..run.model.model_inputs_outputs import NodeArg

Array = np.ndarray[Any, Any]

_TOKENS, _MASK = "input_ids", "attention_mask"


class Encoder:
    """An encoder on the device. preprocessor: the audio-feature configuration in the model folder."""

    def __init__(self, session: InferenceSession, preprocessor: Mapping[str, Any]) -> None:
        self.session = session
        self._inputs = {a.name: a for a in session.get_inputs()}
        self._preprocessor = preprocessor

    @property
    def takes_text(self) -> bool:
        """Whether the encoder reads tokens; else it reads arrays (sound, pictures)."""
        return _TOKENS in self._inputs

    @cached_property
    def _sound(self) -> tuple[NodeArg, Spectrogram]:
        """The input for audio features, and their computation."""
        found = [a for a in self._inputs.values() if a.dtype is not None and a.dtype.is_float and len(a.shape) == 3]
        if self.takes_text or len(found) != 1:
            raise InputError(f"the encoder's inputs are {', '.join(self._inputs)}: none takes features of sound")
        size = found[0].shape[1]
        return found[0], find_spectrogram(self._preprocessor, size if isinstance(size, int) else None)

    def windows(self, sound: Any) -> list[Array]:
        """Split the samples of a sound (llm/audio.py) into windows of the encoder's input length."""
        spectrogram = self._sound[1]
        return spectrogram.windows(load_samples(sound, spectrogram.sampling_rate))

    def features(self, sound: Any) -> dict[str, Array]:
        """Return the encoder input of a sound, by name. InputError if the sound has several windows."""
        arg, spectrogram = self._sound
        windows = self.windows(sound)
        if len(windows) > 1:
            seconds = sum(w.size for w in windows) / spectrogram.sampling_rate
            raise InputError(
                f"the sound lasts {seconds:.1f} s, and the encoder reads {spectrogram.chunk_length} s at once: "
                "pass the windows of Generator.windows(sound) one by one"
            )
        return {arg.name: spectrogram.features(windows[0])[None].astype(self._type(arg.name))}

    def run(self, tokens: Sequence[int], given: Mapping[str, Any]) -> dict[str, Any]:
        """Run the encoder: outputs by name, plus the decoder's input encoder_attention_mask.

        given: arrays by input name, such as input_features. InputError names a missing input.
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
                f"--load-inputs {arg.name}=FILE.npy; of sound, a wav file by audio, or --audio"
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
