"""Sounds: files of every width, other numbers of samples a second, and pictures of them."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from opalite.errors import InputError
from opalite.media.sound import map_picture, read_sound, resample, write_sound


def tone(rate: int, hertz: float = 440.0, seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_files_of_whole_numbers(tmp_path: Path, width: int, channels: int) -> None:
    samples, path = tone(8000), tmp_path / "a.wav"
    top = 2 ** (8 * width - 1)
    numbers = np.rint(samples.astype(np.float64) * (top - 1)).astype(np.int64) + (128 if width == 1 else 0)
    raw = numbers.repeat(channels).astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as f:
        f.setnchannels(channels)
        f.setsampwidth(width)
        f.setframerate(8000)
        f.writeframes(raw)
    found, rate = read_sound(path)
    assert rate == 8000
    np.testing.assert_allclose(found, samples, atol=2 / top + 1e-6)


def wave_file(kind: int, bits: int, raw: bytes, rate: int = 8000, channels: int = 1, extra: bytes = b"") -> bytes:
    """A .wav file by its chunks, with one that is to be passed over, and a length that a recorder left open."""
    form = struct.pack("<HHIIHH", kind, channels, rate, 0, 0, bits) + extra
    chunks = [(b"LIST", b"abc\0"), (b"fmt ", form)]
    body = b"".join(name + struct.pack("<I", len(data)) + data for name, data in chunks)
    return b"RIFF\xff\xff\xff\xffWAVE" + body + b"data\xff\xff\xff\xff" + raw


@pytest.mark.parametrize("kind", ["<f4", "<f8", "extensible", "extensible float"])
def test_other_kinds_of_samples(tmp_path: Path, kind: str) -> None:
    samples, path = tone(8000), tmp_path / "a.wav"
    if kind.startswith("<"):
        raw = wave_file(3, 8 * int(kind[2]), samples.astype(kind).tobytes())
    else:
        code, form = (3, "<f4") if "float" in kind else (1, "<i2")
        numbers = samples if code == 3 else np.rint(samples * 32767)
        guid = struct.pack("<HHIH", 22, 16, 0, code) + bytes(14)
        raw = wave_file(0xFFFE, 8 * int(form[2]), numbers.astype(form).tobytes(), extra=guid)
    path.write_bytes(raw)
    found, rate = read_sound(path)
    assert rate == 8000
    np.testing.assert_allclose(found, samples, atol=1e-4)


@pytest.mark.parametrize(("kind", "codes"), [(6, [0xD5, 0x55, 0xAA, 0x2A]), (7, [0xFF, 0x7F, 0x80, 0x00])])
def test_samples_of_telephony(tmp_path: Path, kind: int, codes: list[int]) -> None:
    """The least and the largest number of both signs, by G.711's tables."""
    (tmp_path / "a.wav").write_bytes(wave_file(kind, 8, bytes(codes)))
    least, largest = (8, 32256) if kind == 6 else (0, 32124)
    found = read_sound(tmp_path / "a.wav")[0] * 32768
    assert found.tolist() == [least, -least, largest, -largest]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (wave_file(2, 4, b"abcd"), "samples are of kind 2"),
        (wave_file(1, 16, b"abcd", rate=0), "0 samples a second"),
        (wave_file(1, 16, b"abcd", channels=0), "0 channels"),
        (wave_file(3, 32, np.float32([0, np.nan]).tobytes()), "no numbers"),
        (b"OggS" * 20, "convert other sounds"),
        (wave_file(1, 16, b"")[:40], "cut off"),
    ],
)
def test_sounds_that_cannot_be_read(tmp_path: Path, raw: bytes, said: str) -> None:
    (tmp_path / "a.wav").write_bytes(raw)
    with pytest.raises(InputError, match=said):
        read_sound(tmp_path / "a.wav")


@pytest.mark.parametrize("raw", [b"", b"RIFF", b"RIFF\0\0\0\0WAVEfmt "])
def test_damaged_files(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(raw)
    with pytest.raises(InputError, match=r"a\.wav could not be read"):
        read_sound(tmp_path / "a.wav")


@pytest.mark.parametrize("wanted", [16000, 44100, 8000])
def test_resampling_keeps_a_tone(wanted: int) -> None:
    made = resample(tone(22050), 22050, wanted)
    assert len(made) == round(0.5 * wanted)
    np.testing.assert_allclose(made[200:-200], tone(wanted)[: len(made)][200:-200], atol=0.02)


def test_a_written_sound_is_read_back(tmp_path: Path) -> None:
    write_sound(tmp_path / "a.wav", tone(16000)[None], 16000)
    found, rate = read_sound(tmp_path / "a.wav")
    assert rate == 16000
    np.testing.assert_allclose(found, tone(16000), atol=1e-4)


def test_loud_numbers_are_cut_off(tmp_path: Path) -> None:
    write_sound(tmp_path / "a.wav", np.float32([1.5, -1.5, 0.25]), 8000)
    np.testing.assert_allclose(read_sound(tmp_path / "a.wav")[0], [1, -1, 0.25], atol=1e-4)


def test_channels_are_averaged(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as f:
        f.setnchannels(2)
        f.setsampwidth(2)
        f.setframerate(8000)
        f.writeframes(np.array([[100, 300], [-200, 600]], "<i2").tobytes())
    np.testing.assert_allclose(read_sound(tmp_path / "a.wav")[0] * 32768, [200, 200])


def test_pictures_of_bands() -> None:
    made = map_picture(np.random.default_rng(0).random((1, 50, 20)))
    assert made is not None
    assert made.size == (50, 20)
    assert map_picture(np.zeros((1, 1000))) is None
