"""Log-mel features against the published formula in float64, and configurations of folders."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.llm.audio import Spectrogram, find_spectrogram

rng = np.random.default_rng(5)


def mel(hertz: float) -> float:
    return 3 * hertz / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


def by_formula(x: Any, size: int, frames: list[int]) -> Any:
    """Compute features of some frames of 30 s by loops; the maximum of all frames is among them."""
    whole = np.zeros(480000)
    whole[: len(x)] = x
    hann = [math.sin(math.pi * i / 400) ** 2 for i in range(400)]
    edges = [mel(8000) * i / (size + 1) for i in range(size + 2)]
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    out = np.zeros((size, len(frames)))
    for column, frame in enumerate(frames):
        at = np.arange(frame * 160 - 200, frame * 160 + 200)
        at = np.where(at < 0, -at, np.where(at > 479999, 2 * 479999 - at, at))
        power = np.abs(fourier @ (whole[at] * hann)) ** 2
        for m in range(size):
            low, middle, high = (inverse(e) for e in edges[m : m + 3])
            for k in range(201):
                f = 40.0 * k
                rise, fall = (f - low) / (middle - low), (high - f) / (high - middle)
                out[m, column] += max(0.0, min(rise, fall)) * 2 / (high - low) * power[k]
    logs = np.log10(np.maximum(out, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


def inverse(m: float) -> float:
    return 200 * m / 3 if m < 15 else 1000 * math.exp((m - 15) * math.log(6.4) / 27)


@pytest.mark.parametrize("size", [80, 128])
def test_features_are_those_of_the_formula(size: int) -> None:
    x = rng.standard_normal(3200) * 0.1 + np.sin(np.arange(3200) * 0.2)
    x[1600:] *= 1e-3
    found = Spectrogram(feature_size=size).features(x.astype(np.float32))
    assert (found.shape, found.dtype) == ((size, 3000), np.float32)
    frames = [0, 1, *range(2, 12, 3), 19, 20, 1500, 2999]
    loudest = int(found.max(0).argmax())
    wanted = by_formula(x.astype(np.float32), size, [*frames, loudest])
    np.testing.assert_allclose(found[:, [*frames, loudest]], wanted, atol=1e-5)


def test_windows_and_silence() -> None:
    spectrogram = Spectrogram(chunk_length=2)
    assert [w.size for w in spectrogram.windows(np.zeros(70000, np.float32))] == [32000, 32000, 6000]
    assert [w.size for w in spectrogram.windows(np.zeros(32000, np.float32))] == [32000]
    assert (spectrogram.features(np.zeros(5, np.float32)) == np.float32(-1.5)).all()
    sound = rng.standard_normal(32000).astype(np.float32)
    normal = Spectrogram(chunk_length=2, do_normalize=True)
    np.testing.assert_allclose(normal.features(3 * sound + 1), normal.features(sound), atol=1e-4)


def test_what_a_folder_tells() -> None:
    told = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": 128,
        "chunk_length": 20,
        "n_samples": 1,
    }
    found = find_spectrogram(told, 128)
    assert (found.feature_size, found.chunk_length, found.samples) == (128, 20, 320000)
    assert find_spectrogram({}, 128).feature_size == 128
    assert find_spectrogram({}, None) == Spectrogram()
    with pytest.raises(InputError, match="128 features, but the encoder reads 80"):
        find_spectrogram(told, 80)
    with pytest.raises(InputError, match="Speech2TextFeatureExtractor"):
        find_spectrogram({"feature_extractor_type": "Speech2TextFeatureExtractor"}, None)
