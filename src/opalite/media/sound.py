"""Sound files of a model's inputs and outputs, and pictures of sound."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import InputError
from .drawing import color_map

Array = np.ndarray[Any, Any]
SOUNDS = (".wav",)


def read_sound(path: Path) -> tuple[Array, int]:
    """Read a .wav file of whole numbers of 8 to 32 bits. Returns samples [n] of -1 to 1, and their number in a second.

    Channels are averaged. InputError for other files.
    """
    try:
        with wave.open(str(path), "rb") as f:
            channels, width, rate, count = f.getnchannels(), f.getsampwidth(), f.getframerate(), f.getnframes()
            raw = f.readframes(count)
    except (OSError, EOFError, wave.Error) as e:
        raise InputError(f"{path} could not be read as .wav of whole numbers: {e or 'it is cut off'}") from e
    samples: Array
    whole = raw[: len(raw) // (width * channels) * width * channels]
    if width == 1:
        samples = (np.frombuffer(whole, np.uint8).astype(np.float32) - 128) / 128
    elif width == 3:
        parts = np.frombuffer(whole, np.uint8).reshape(-1, 3).astype(np.int32)
        joined = parts[:, 0] | parts[:, 1] << 8 | parts[:, 2] << 16
        samples = ((joined ^ 0x800000) - 0x800000).astype(np.float32) / 0x800000
    else:
        kind: Any = np.dtype(f"<i{width}")
        samples = np.frombuffer(whole, kind).astype(np.float32) / float(np.iinfo(kind).max + 1)
    return np.asarray(samples.reshape(-1, channels).mean(1), np.float32), rate


def resample(samples: Array, rate: int, wanted: int) -> Array:
    """Change the number of samples in a second; higher tones than the new rate can hold are cut off."""
    if rate == wanted or not len(samples):
        return samples
    count = max(1, round(len(samples) * wanted / rate))
    spectrum = np.fft.rfft(samples)
    held = np.zeros(count // 2 + 1, spectrum.dtype)
    kept = min(len(held), len(spectrum))
    held[:kept] = spectrum[:kept]
    return np.asarray(np.fft.irfft(held, count) * (count / len(samples)), np.float32)


def write_sound(path: Path, samples: Array, rate: int) -> None:
    """Write samples as .wav of 16 bits; numbers beyond -1 to 1 are cut off."""
    numbers = np.rint(np.clip(np.asarray(samples, np.float64).reshape(-1), -1, 1) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(rate)
        f.writeframes(numbers.tobytes())


def map_picture(array: Array) -> Image.Image | None:
    """Draw a map of time and frequency, [time, bands]: time to the right, low bands below. None for other shapes."""
    a = np.squeeze(array)
    if a.ndim != 2 or min(a.shape) < 4 or a.dtype.kind not in "fiu":
        return None
    return color_map(np.asarray(a, np.float64).T[::-1])
