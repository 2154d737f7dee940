"""Meanings of outputs, and their look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from opalite.media.drawing import color_map, draw
from opalite.media.picture_input import open_size, picture_shape
from opalite.media.placement import Placement
from opalite.media.preprocess import PRESETS, Preprocess
from opalite.media.recognition import picture_of, recognize
from opalite.media.results import Boxes, Classes, ClassMap, Drawing, Embedding, HeatMap, Mask, Points, Result, Text

Array = np.ndarray[Any, Any]
SIZE = (320, 256)
BOX = np.array([64.0, 40.0, 144.0, 136.0])
F = np.float32


def result_of(
    a: Array, labels: tuple[str, ...] = (), channels: int = 3, p: Preprocess = PRESETS["0..1"]
) -> Result | None:
    return recognize({"y": a}, SIZE, p, labels, channels)


def test_classes() -> None:
    logits = np.zeros((1, 7, 1, 1), F)
    logits[0, 4] = 9
    found = result_of(logits, ("a", "b", "c", "d", "e", "f", "g"))
    assert isinstance(found, Classes)
    assert found.best[0] == (4, pytest.approx(0.999, abs=1e-3))
    assert "e" in found.lines()[0]
    with_background = result_of(logits, ("a", "b", "c", "d", "e", "f"))
    assert isinstance(with_background, Classes)
    assert with_background.lines()[0].endswith("4  d")


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 3, 256, 320), Drawing),
        ((1, 512, 640, 3), Drawing),
        ((1, 1, 256, 320), Mask),
        ((1, 128, 160, 1), Mask),
        ((128, 160), Mask),
        ((1, 21, 64, 80), ClassMap),
    ],
)
def test_maps(shape: tuple[int, ...], kind: type[Result]) -> None:
    assert type(result_of(np.random.default_rng(0).random(shape).astype(F))) is kind


def test_maps_of_other_numbers() -> None:
    rng = np.random.default_rng(0)
    assert isinstance(result_of(rng.normal(0, 9, (1, 1, 256, 320)).astype(F)), HeatMap)
    assert isinstance(result_of(rng.integers(0, 5, (1, 256, 320))), ClassMap)
    two = rng.random((1, 2, 256, 320)).astype(F)
    shares = result_of(two / two.sum(1, keepdims=True))
    assert isinstance(shares, Mask)
    assert isinstance(result_of(rng.random((1, 1, 512, 640)).astype(F), channels=1), Drawing)


def test_features_are_no_maps_of_classes() -> None:
    rng = np.random.default_rng(0)
    assert result_of(rng.normal(size=(1, 64, 16, 20)).astype(F)) is None
    heads = {str(s): rng.normal(size=(1, 18, 256 // s, 320 // s)).astype(F) for s in (8, 16, 32)}
    assert recognize(heads, SIZE, PRESETS["0..1"]) is None
    assert recognize({"out": heads["8"], "aux": heads["8"]}, SIZE, PRESETS["0..1"]) is not None


def test_six_scores_are_classes() -> None:
    assert isinstance(result_of(np.eye(6, dtype=F)[4:5]), Classes)


def test_embeddings_are_no_classes() -> None:
    row = np.random.default_rng(0).normal(size=(1, 512)).astype(F)
    assert isinstance(result_of(row), Embedding)
    assert isinstance(result_of(row[:, :100] / np.linalg.norm(row[:, :100])), Embedding)
    assert isinstance(result_of(row, tuple(map(str, range(512)))), Classes)
    shares = np.exp(row) / np.exp(row).sum()
    assert isinstance(result_of(shares), Classes)


def test_an_output_that_says_what_it_is_comes_first() -> None:
    """A detector's corrections of a box stand before the two shares of a face."""
    shares = np.array([[0.2, 0.8]], F)
    found = recognize({"box": np.zeros((1, 4), F), "face": shares}, SIZE, PRESETS["0..1"])
    assert isinstance(found, Classes)
    assert found.best[0][0] == 1
    planes = np.random.default_rng(0).normal(size=(1, 4, 64, 80)).astype(F)
    two = np.stack([np.full((64, 80), 0.3, F), np.full((64, 80), 0.7, F)])[None]
    assert isinstance(recognize({"box": planes, "face": two}, SIZE, PRESETS["0..1"]), Mask)


JOINTS = np.array([[40.5, 60.5], [120.5, 200.5], [300.5, 16.5], [220.5, 100.5]])


def joints_by_axis() -> dict[str, Array]:
    x, y = np.zeros((1, 4, 640), F), np.zeros((1, 4, 512), F)
    for i, (a, b) in enumerate(JOINTS):
        x[0, i, int(2 * a)], y[0, i, int(2 * b)] = 1, 1
    return {"x": x, "y": y}


def peaks() -> dict[str, Array]:
    planes = np.random.default_rng(0).normal(0, 0.01, (1, 4, 256, 320)).astype(F)
    for i, (a, b) in enumerate(JOINTS):
        planes[0, i, int(b), int(a)] = 0.8
    return {"y": planes}


def joints_with_scores() -> dict[str, Array]:
    rows = np.concatenate([JOINTS[:, ::-1] / SIZE[::-1], np.full((4, 1), 0.9)], 1)
    return {"y": rows.astype(F)[None, None]}


@pytest.mark.parametrize("make", [joints_by_axis, peaks, joints_with_scores])
def test_joints(make: Callable[[], dict[str, Array]]) -> None:
    found = recognize(make(), SIZE, PRESETS["0..1"])
    assert isinstance(found, Points)
    np.testing.assert_allclose(found.points, JOINTS, atol=0.1)


def test_points_of_five_numbers() -> None:
    """Position, depth, visibility and presence of each."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.uniform(20, 250, (39, 2)), rng.normal(0, 200, (39, 1)), rng.normal(0, 5, (39, 2))], 1)
    found = result_of(rows.astype(F).reshape(1, -1))
    assert isinstance(found, Points)
    np.testing.assert_allclose(found.points, rows[:, :2], rtol=1e-5)


def test_points() -> None:
    points = np.random.default_rng(0).uniform(20, 250, (68, 2)).astype(F)
    found = result_of(points.reshape(1, 1, 1, -1))
    assert isinstance(found, Points)
    np.testing.assert_allclose(found.points, points)


def test_text() -> None:
    """Characters repeat and are separated by the one that means none."""
    path = [0, 1, 1, 0, 2, 0, 2, 2, 3]
    shares = np.full((1, len(path), 12), 0.001, F)
    shares[0, range(len(path)), path] = 0.989
    found = result_of(shares, tuple("abcdefghijk"))
    assert isinstance(found, Text)
    assert found.texts[0][0] == "abbc"
    first = result_of(shares.transpose(1, 0, 2), tuple("abcdefghijk"))
    assert isinstance(first, Text)
    assert first.texts == found.texts


@pytest.mark.parametrize("a", [np.zeros((2, 3, 4, 5, 6), F), np.zeros((1, 7, 13), F), np.zeros((), F), np.array(["a"])])
def test_outputs_of_no_known_meaning(a: Array) -> None:
    assert result_of(a) is None


@pytest.mark.parametrize("name", ["imagenet", "-1..1", "0..1", "raw"])
def test_pictures_come_back_in_the_range_they_went_in(name: str) -> None:
    p, pixels = PRESETS[name], np.random.default_rng(0).integers(0, 256, (256, 320, 3))
    numbers = ((pixels * p.scale - np.array(p.mean)) / np.array(p.std)).astype(F)
    found = result_of(numbers.transpose(2, 0, 1)[None], p=p)
    assert isinstance(found, Drawing)
    assert np.abs(found.pixels.astype(int) - pixels).max() <= 1


RESULTS: dict[str, Result] = {
    "boxes": Boxes("", BOX[None], np.array([0.9]), np.array([2]), np.array([[[80.0, 60.0]]]), ("a", "b", "c")),
    "points": Points("", np.array([[80.0, 60.0]])),
    "class map": ClassMap("", np.eye(64, 80, dtype=int)),
    "mask": Mask("", np.ones((64, 80))),
    "classes": Classes("", [(0, 0.9)], ("hen",)),
    "text": Text("", [("hen", 0.9)]),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_results_are_drawn_on_the_picture(kind: str) -> None:
    picture = Image.new("RGB", (640, 512), (40, 40, 40))
    shown = draw(RESULTS[kind], picture, Placement((640, 512), SIZE, 0.5, 0.5))
    assert shown.size == picture.size
    changed = np.argwhere(np.asarray(shown)[..., 1] != 40)
    assert len(changed)
    if kind == "boxes":
        np.testing.assert_allclose(changed.max(0)[::-1], BOX[2:] * 2, atol=3)
    assert RESULTS[kind].lines()


def test_brightness_gets_the_colours_of_the_picture() -> None:
    picture = Image.new("RGB", SIZE, (200, 40, 40))
    brightness = Drawing("", np.asarray(picture.resize((640, 512)).convert("L")))
    shown = draw(brightness, picture, Placement(SIZE, SIZE))
    assert shown.size == (640, 512)
    np.testing.assert_allclose(np.asarray(shown)[100, 100], (200, 40, 40), atol=4)


def test_color_maps_get_brighter() -> None:
    row = np.asarray(color_map(np.linspace(-3, 9, 50).reshape(1, 50)).convert("L"), int)[0]
    assert (np.diff(row) >= -1).all()
    assert np.asarray(color_map(np.zeros((3, 3)))).shape == (3, 3, 3)


def test_arrays_that_are_no_pictures() -> None:
    assert picture_of(np.zeros((1, 1000), F), Preprocess()) is None
    assert picture_of(np.zeros((1, 7, 8, 8), F), Preprocess()) is None


def test_open_sizes_follow_the_picture() -> None:
    assert open_size(picture_shape("x", (1, 3, None, None)), (640, 480)) == (640, 480)
    assert open_size(picture_shape("x", (1, 3, 48, None)), (640, 480)) == (64, 48)
    assert open_size(picture_shape("x", (1, 3, 224, 224)), (640, 480)) == (224, 224)
