"""`opalite run` on pictures, sounds and films."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from onnx import helper
from opalite.cli import main
from opalite.media.sound import read_sound, write_sound
from opalite.media.video import FilmWriter, frames

from ..helpers.small_models import adder, inverter, make_model, port, save
from .test_cli import opalite


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder, where the models and inputs of a test are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    save(inverter(), "invert.onnx")
    save(adder(), "add.onnx")


def test_open_sizes_are_the_pictures() -> None:
    save(inverter((1, 3, "h", "w")), "open.onnx")
    pixels = np.random.default_rng(4).integers(0, 256, (30, 50, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("p.png")
    text = opalite("run", "open.onnx", "-i", "p.png", "-o", "out.png", "--iterations", "0")
    assert "picture  50x30, as it is; 0..1, RGB" in text
    assert np.abs(np.asarray(Image.open("out.png"), np.int32) - (255 - pixels)).max() <= 1


@pytest.mark.parametrize(("fit", "size"), [("stretch", (16, 8)), ("crop", (16, 16)), ("letterbox", (16, 16))])
def test_a_picture_comes_back_without_what_fitting_added(fit: str, size: tuple[int, int]) -> None:
    Image.new("RGB", (40, 20), (250, 250, 250)).save("p.png")
    text = opalite("run", "invert.onnx", "-i", "p.png", "-o", "out.png", "--fit", fit, "--iterations", "0")
    assert "40x20 to 8x8" in text
    back = np.asarray(Image.open("out.png"), np.int32)
    assert back.shape == ((8, 8, 3) if fit != "letterbox" else (4, 8, 3))
    assert np.abs(back - 5).max() <= 1


def test_a_row_of_scores_is_no_picture() -> None:
    said = opalite("run", "add.onnx", "-o", "y.png", "--iterations", "0", code=1)
    assert "an output of shape (2, 3) is not a picture; write it to .npy or .npz" in said


def test_sounds_are_cut_resampled_and_written() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    save(make_model([node], [port("x", [1, 4000])], [port("y", [1, 4000])]), "neg.onnx")
    tone = np.sin(np.arange(16000) / 20)
    write_sound(Path("a.wav"), tone * 0.5, 16000)
    text = opalite("run", "neg.onnx", "-i", "a.wav", "--rate", "8000", "-o", "b.wav", "--iterations", "0")
    assert "sound    1.00 s at 16000 Hz, resampled to 8000, cut to 4000 samples" in text
    back, rate = read_sound(Path("b.wav"))
    assert (rate, len(back)) == (8000, 4000)
    np.testing.assert_allclose(back[50:-50], -0.5 * tone[::2][50:3950], atol=0.02)
    assert "is no sound" in opalite("run", "add.onnx", "-o", "y.wav", "--iterations", "0", code=1)


def test_inputs_are_told_by_what_they_hold() -> None:
    save(inverter((1, 3, "h", "w")), "open.onnx")
    Image.new("RGB", (50, 30)).save("p.png")
    Path("photo").write_bytes(Path("p.png").read_bytes())
    assert "picture  50x30" in opalite("run", "open.onnx", "-i", "photo", "--iterations", "0")
    Path("x.md").write_text("# no picture")
    piped = Path("p.png").read_bytes()
    assert "picture  50x30" in opalite("run", "open.onnx", "-i", "-", "--iterations", "0", stdin=piped)
    for name, said in (
        ("https://a.b/c.png", "fetch it first"),
        ("x.md", "unknown kind of input"),
        (".", "is a folder"),
    ):
        assert said in opalite("run", "open.onnx", "-i", name, code=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--mean", "nan"), "must be finite"),
        (("--std", "inf"), "must be finite"),
        (("--scale", "0"), "--scale must not be 0"),
        (("--mean", ""), "--mean '' is not a number"),
        (("--mean", "1,2"), "--mean has 2 numbers"),
    ],
)
def test_conversions_that_make_no_sense(options: tuple[str, str], said: str) -> None:
    Image.new("RGB", (8, 8)).save("p.png")
    assert said in opalite("run", "invert.onnx", "-i", "p.png", *options, code=1)


def test_a_conversion_needs_a_picture() -> None:
    said = opalite("run", "invert.onnx", "--preprocess", "imagenet", "--fit", "crop", code=1)
    assert "--preprocess, --fit: only pictures are converted so, and none is given" in said


def test_unknown_outputs_of_a_picture_are_said() -> None:
    node = helper.make_node("GlobalMaxPool", ["x"], ["y"])
    save(make_model([node], [port("x", [1, 1, 9, 9])], [port("y", [1, 1, 1, 1])]), "top.onnx")
    Image.new("RGB", (9, 9)).save("p.png")
    assert "result   not recognised" in opalite("run", "top.onnx", "-i", "p.png", "--iterations", "0")
    assert "(1, 1, 1, 1) is not a picture" in opalite("run", "top.onnx", "-i", "p.png", "-o", "y.png", code=1)


def test_films_are_run_frame_by_frame() -> None:
    pytest.importorskip("av", reason="needs the package av")
    film = FilmWriter(Path("in.mp4"))
    for shade in (0, 100, 200):
        film.write(Image.new("RGB", (64, 48), (shade, shade, shade)))
    film.close()
    save(inverter((1, 3, "h", "w")), "open.onnx")
    text = opalite("run", "open.onnx", "-i", "in.mp4", "-o", "out.mp4")
    assert "frames a second" in text
    made = [np.asarray(f) for f in frames("out.mp4")]
    assert [round(float(f.mean())) for f in made] == pytest.approx([255, 155, 55], abs=6)
    assert len(list(frames("out.mp4", 2))) == 2
    found = json.loads(CliRunner().invoke(main, ["run", "open.onnx", "-i", "in.mp4", "--json"]).stdout)
    assert (found["frames"], found["result"]["kind"]) == (3, "Drawing")
    Path("bad.mp4").write_bytes(b"abc" * 100)
    for name, said in (("bad.mp4", "bad.mp4 could not be read"), ("none.mp4", "none.mp4 does not exist")):
        assert said in opalite("run", "open.onnx", "-i", name, code=1)
    assert "camera 99: there is no /dev/video99" in opalite("run", "open.onnx", "-i", "99", code=1)
    assert "frames are written to a film" in opalite("run", "open.onnx", "-i", "in.mp4", "-o", "x.png", code=1)
