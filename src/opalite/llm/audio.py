"""Audio input: wav files as mono samples at the model's rate, and their log-mel spectrogram, as in Whisper."""

from __future__ import annotations

import math
import os
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InputError

Array = np.ndarray[Any, Any]

_ZEROS = 24
"""Zero crossings of the sinc on each side; aliases above the cutoff are below 1e-3."""
_REACH = 0.94
"""Cutoff as a fraction of half the lower rate; the window's transition band is above it."""
_BLOCK = 1 << 16
"""Output samples of one phase computed at once."""
_LEAST = 1e-10  # lower bound of a power before the logarithm
_RANGE = 8.0  # dynamic range below the maximum, in powers of ten
_KNEE, _SLOPE, _STEP = 1000.0, 3 / 200, 27 / np.log(6.4)
"""Slaney's mel scale (Auditory Toolbox, 1998): linear below 1000 Hz, logarithmic above."""


def read_wav(path: str | os.PathLike[str]) -> tuple[Array, int]:
    """Read a wav file of integers: (mean of all channels as float32 from -1 to 1, sampling rate in Hz).

    InputError if the file has another format or no samples.
    """
    try:
        with wave.open(os.fspath(path), "rb") as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            raw = file.readframes(file.getnframes())
    except OSError as e:
        raise InputError(f"{os.fspath(path)} cannot be read: {e.strerror or e}") from e
    except (EOFError, wave.Error) as e:
        raise InputError(
            f"{os.fspath(path)} cannot be read as a wav file of integers (PCM): {e or 'it ends early'}; convert it: "
            "ffmpeg -i FILE -ac 1 -ar 16000 -c:a pcm_s16le speech.wav"
        ) from e
    samples = _numbers(raw[: len(raw) // (width * channels) * width * channels], width)
    if not samples.size or rate < 1:
        raise InputError(f"{os.fspath(path)} holds no samples")
    return samples.reshape(-1, channels).mean(1, dtype=np.float32), rate


def _numbers(raw: bytes, width: int) -> Array:
    """Convert little-endian integers of `width` bytes to float32 from -1 to 1; one-byte integers are unsigned."""
    if width == 1:
        return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    return np.frombuffer(raw, f"<i{width}").astype(np.float32) / np.float32(2 ** (8 * width - 1))


def resample(samples: Array, rate: int, wanted: int) -> Array:
    """Resample float32 samples from `rate` to `wanted` Hz by a Hann-windowed sinc, one filter per phase.

    (Julius O. Smith, Digital Audio Resampling Home Page, bandlimited interpolation.)
    """
    if rate == wanted or not samples.size:
        return samples
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    cut = _REACH * min(1.0, up / down)  # relative to half the old rate
    half = math.ceil(_ZEROS / cut)
    padded = np.pad(samples.astype(np.float32, copy=False), (half, half + down))
    count = -(-samples.size * up // down)
    out = np.empty(count, np.float32)
    taps = np.arange(-half, half + 1)
    for phase in range(min(up, count)):
        first, part = divmod(phase * down, up)
        at = taps - part / up
        weights = cut * np.sinc(cut * at) * np.where(np.abs(at) < half, 0.5 + 0.5 * np.cos(np.pi * at / half), 0)
        weights /= weights.sum()  # a constant signal stays unchanged
        windows = np.lib.stride_tricks.sliding_window_view(padded, taps.size)[first::down]
        for start in range(0, (count - phase + up - 1) // up, _BLOCK):
            found = windows[start : start + _BLOCK] @ weights.astype(np.float32)
            target = out[phase + start * up :: up]
            target[: min(found.size, _BLOCK, target.size)] = found[: target.size]
    return out


def load_samples(sound: Any, rate: int) -> Array:
    """Return samples at `rate` Hz from a wav file's path, from (samples, their rate), or from samples at that rate.

    Samples are float32 [count] or [count, channels]. InputError for any other value.
    """
    if isinstance(sound, str | os.PathLike):
        samples, own = read_wav(sound)
    elif isinstance(sound, tuple) and len(sound) == 2:
        samples, own = np.asarray(sound[0]), int(sound[1])
    else:
        samples, own = np.asarray(sound), rate
    if samples.ndim == 2:
        samples = samples.mean(1)
    if samples.ndim != 1 or samples.dtype.kind != "f" or not samples.size or own < 1:
        raise InputError(
            f"sound is a wav file's path or float samples from -1 to 1, [count] or [count, channels], optionally with "
            f"their rate as (samples, rate); got {samples.dtype.name}{list(samples.shape)} at {own}"
        )
    if not np.isfinite(samples).all():
        raise InputError("sound has samples that are not finite")
    return resample(samples.astype(np.float32, copy=False), own, rate)


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
