"""Spectrogram: log-mel features of audio, as in Whisper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InputError

Array = np.ndarray[Any, Any]

_LEAST = 1e-10  # lower bound of a power before the logarithm
_RANGE = 8.0  # dynamic range below the maximum, in powers of ten
_KNEE, _SLOPE, _STEP = 1000.0, 3 / 200, 27 / np.log(6.4)
"""Slaney's mel scale (Auditory Toolbox, 1998): linear below 1000 Hz, logarithmic above."""


@dataclass(frozen=True)
class Spectrogram:
    """Parameters of log-mel features (Radford et al. 2022, section 2.2), named as in preprocessor_config.json.

    Frames of `n_fft` samples at distance `hop_length`, with reflected borders and a Hann window, give power spectra.
    `feature_size` triangular filters on the mel scale sum them from 0 to half of `sampling_rate`. The result is log10,
    clipped at 8 below the maximum, plus 4, divided by 4. A window lasts `chunk_length` seconds and is padded with
    silence.
    """

    feature_size: int = 80
    sampling_rate: int = 16000
    hop_length: int = 160
    chunk_length: int = 30
    n_fft: int = 400
    do_normalize: bool = False

    @property
    def samples(self) -> int:
        """Number of samples of a window."""
        return self.chunk_length * self.sampling_rate

    @cached_property
    def filters(self) -> Array:
        """Mel filters [feature_size, n_fft // 2 + 1], each with unit area."""
        top = self.sampling_rate / 2
        edges = _hertz(np.linspace(0.0, _mel(top), self.feature_size + 2))
        frequencies = np.linspace(0.0, top, self.n_fft // 2 + 1)
        left, middle, right = (edges[i : i + self.feature_size, None] for i in range(3))
        rising, falling = (frequencies - left) / (middle - left), (right - frequencies) / (right - middle)
        made: Array = np.maximum(0, np.minimum(rising, falling)) * (2 / (right - left))
        return made

    def windows(self, sound: Array) -> list[Array]:
        """Split sound [count] into windows; the last one may be shorter."""
        return [sound[i : i + self.samples] for i in range(0, max(1, sound.size), self.samples)]

    def features(self, sound: Array) -> Array:
        """Compute float32 features [feature_size, frames] of a window of float samples, padded with silence."""
        wide = sound.astype(np.float64)
        if self.do_normalize:
            wide = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-7)
        whole = np.pad(wide, (0, max(0, self.samples - wide.size)))[: self.samples]
        around = np.pad(whole, self.n_fft // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(around, self.n_fft)[:: self.hop_length][:-1]
        hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.n_fft) / self.n_fft)
        powers = np.abs(np.fft.rfft(frames * hann)) ** 2
        logs = np.log10(np.maximum(self.filters @ powers.T, _LEAST))
        made: Array = ((np.maximum(logs, logs.max() - _RANGE) + 4) / 4).astype(np.float32)
        return made


def find_spectrogram(config: Mapping[str, Any], size: int | None) -> Spectrogram:
    """Make the Spectrogram of a preprocessor_config.json, by default Whisper's; size: the encoder's feature count.

    InputError for another feature extractor.
    """
    kind = config.get("feature_extractor_type", "WhisperFeatureExtractor")
    if kind != "WhisperFeatureExtractor":
        raise InputError(
            f"preprocessor_config.json wants features of sound by {kind}, and only WhisperFeatureExtractor's are "
            "computed here: give the array by encoder_inputs, or by --load-inputs NAME=FILE.npy"
        )
    names = ("feature_size", "sampling_rate", "hop_length", "chunk_length", "n_fft", "do_normalize")
    values = {n: config[n] for n in names if config.get(n) is not None}
    if size is not None and values.setdefault("feature_size", size) != size:
        raise InputError(
            f"preprocessor_config.json declares {values['feature_size']} features, but the encoder reads {size}"
        )
    return Spectrogram(**values)


def _mel(hertz: float) -> float:
    return float(hertz * _SLOPE if hertz < _KNEE else _KNEE * _SLOPE + np.log(hertz / _KNEE) * _STEP)


def _hertz(mels: Array) -> Array:
    knee = _KNEE * _SLOPE
    made: Array = np.where(mels < knee, mels / _SLOPE, _KNEE * np.exp((np.maximum(mels, knee) - knee) / _STEP))
    return made
