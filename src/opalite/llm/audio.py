"""Audio input: reads wav files, mixes channels to mono and resamples to the model's rate."""

from __future__ import annotations

import math
import os
import wave
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


def read_wav(path: str | os.PathLike[str]) -> tuple[Array, int]:
    """Read a wav file of integers: (float32 samples from -1 to 1, mean of all channels; sampling rate in Hz).

    InputError if the file is no wav file of integers or has no samples.
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
