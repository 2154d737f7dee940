"""Audio: wav files of every sample width, resampling, and errors."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.llm.audio import load_samples, read_wav, resample


def write(path: Path, samples: Any, width: int, rate: int = 16000) -> Path:
    """Samples [count, channels] from -1 to 1."""
    integers = np.round(np.asarray(samples) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    raw = (integers + (128 if width == 1 else 0)).astype("<i8").reshape(-1, 1).view(np.uint8)[:, :width]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(np.shape(samples)[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(raw.tobytes())
    return path


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_integers_of_every_width(tmp_path: Path, width: int) -> None:
    both = np.stack([np.linspace(-1, 1, 101), np.linspace(-1, 0, 101)], 1)
    samples, rate = read_wav(write(tmp_path / "a.wav", both, width, 8000))
    assert (samples.dtype, rate) == (np.float32, 8000)
    np.testing.assert_allclose(samples, both.mean(1), atol=1.5 / 2 ** (8 * min(width, 3) - 1))


@pytest.mark.parametrize("rate", [8000, 11025, 44100, 48000])
def test_a_tone_at_another_rate(rate: int) -> None:
    def tone(hertz: float, per_second: int, count: int) -> Any:
        return np.sin(2 * np.pi * hertz * np.arange(count) / per_second).astype(np.float32)

    found = resample(tone(440, rate, rate), rate, 16000)
    assert found.shape == (16000,)
    np.testing.assert_allclose(found[300:-300], tone(440, 16000, 16000)[300:-300], atol=1e-4)
    np.testing.assert_allclose(resample(np.ones(rate, np.float32), rate, 16000)[300:-300], 1, atol=1e-5)
    if rate > 20000:  # what the new rate has no room for is gone, not folded back
        assert np.abs(resample(tone(9000, rate, rate), rate, 16000)[300:-300]).max() < 1e-3
    assert resample(found[:7], rate, 16000).shape == (-(-7 * 16000 // rate),)


def test_what_may_be_heard(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", np.zeros((4, 1)), 2)
    assert load_samples(path, 16000).shape == load_samples(str(path), 16000).shape == (4,)
    assert load_samples((np.ones((8000, 2)), 8000), 16000).shape == (16000,)
    for wrong in (np.zeros(3, np.int16), np.zeros(0, np.float32), np.zeros((1, 1, 1)), "no such.wav", ([1.0], 0)):
        with pytest.raises(InputError):
            load_samples(wrong, 16000)
    with pytest.raises(InputError, match="finite"):
        load_samples(np.array([0.0, np.nan]), 16000)
    (tmp_path / "b.wav").write_bytes(b"RIFF....WAVE")
    with pytest.raises(InputError, match="ffmpeg"):
        read_wav(tmp_path / "b.wav")
    with pytest.raises(InputError, match="no samples"):
        read_wav(write(tmp_path / "c.wav", np.zeros((0, 1)), 2))
