"""Sound files of a model's inputs and outputs, and pictures of sound."""

from __future__ import annotations

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..errors import InputError
from .drawing import color_map

Array = np.ndarray[Any, Any]
SOUNDS = (".wav",)
_WHOLE, _FLOAT, _ALAW, _ULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE


def is_wave(head: bytes) -> bool:
    """Whether a file that begins so is a .wav file."""
    return head[:4] == b"RIFF" and head[8:12] == b"WAVE"


def read_sound(path: Path) -> tuple[Array, int]:
    """Read a .wav file: whole numbers of 8 to 32 bits, floats, A-law or mu-law.

    Returns samples [n] of -1 to 1, and their number in a second. Channels are averaged. InputError for other files.
    """
    samples, rate = read_channels(path)
    return np.asarray(samples.mean(1), np.float32), rate


def read_channels(path: Path) -> tuple[Array, int]:
    """Like `read_sound`, with samples [n, channels]."""
    try:
        return _parse(path.read_bytes())
    except (OSError, ValueError, struct.error) as e:
        raise InputError(f"{path} could not be read as .wav: {getattr(e, 'strerror', None) or e}") from e


def _parse(raw: bytes) -> tuple[Array, int]:
    """Read the chunks of a file: its format and its samples. Lengths that a recorder left open end with the file."""
    if not is_wave(raw):
        raise ValueError("it does not begin as .wav files do; convert other sounds, for example by ffmpeg")
    at, form, data = 12, b"", None
    while at + 8 <= len(raw) and data is None:
        length = struct.unpack_from("<I", raw, at + 4)[0]
        chunk = raw[at + 8 : at + 8 + length]
        if raw[at : at + 4] == b"fmt ":
            form = chunk
        elif raw[at : at + 4] == b"data":
            data = chunk
        at += 8 + length + length % 2
    if len(form) < 16 or data is None:
        raise ValueError("it is cut off before its samples")
    kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", form)
    if kind == _EXTENSIBLE and len(form) >= 26:
        kind = struct.unpack_from("<H", form, 24)[0]
    if not channels or not rate:
        raise ValueError(f"it says {channels} channels and {rate} samples a second")
    width = (bits + 7) // 8
    whole = data[: len(data) // (width * channels) * width * channels] if width else b""
    samples = _decode(kind, width, whole)
    if not np.isfinite(samples).all():
        raise ValueError("it holds samples that are infinite or no numbers")
    return samples.reshape(-1, channels), rate


def _decode(kind: int, width: int, raw: bytes) -> Array:
    """Samples of -1 to 1 from numbers of `width` bytes."""
    if kind == _FLOAT and width in (4, 8):
        return np.frombuffer(raw, f"<f{width}").astype(np.float32)
    if kind in (_ALAW, _ULAW) and width == 1:
        return _expand(np.frombuffer(raw, np.uint8), kind == _ALAW)
    if kind != _WHOLE or width not in (1, 2, 3, 4):
        raise ValueError(f"its samples are of kind {kind} with {8 * width} bits; expected whole numbers or floats")
    if width == 1:
        return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / 128
    padded = np.zeros((len(raw) // width, 4), np.uint8)
    padded[:, 4 - width :] = np.frombuffer(raw, np.uint8).reshape(-1, width)
    return padded.view("<i4")[:, 0].astype(np.float32) / 2**31


def _expand(codes: Array, is_alaw: bool) -> Array:
    """Samples of the logarithmic codes of telephony (ITU-T G.711)."""
    code = np.bitwise_xor(codes, 0x55 if is_alaw else 0xFF).astype(np.int32)
    exponent, mantissa = code >> 4 & 7, code & 15
    if is_alaw:
        steps = np.where(exponent > 0, (mantissa * 2 + 33) << np.maximum(exponent - 1, 0), mantissa * 2 + 1) * 8
        sign = np.where(code & 0x80, 1, -1)
    else:
        steps = ((mantissa * 2 + 33 << exponent) - 33) * 4
        sign = np.where(code & 0x80, -1, 1)
    return np.asarray(sign * steps / 32768, np.float32)


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
