"""Meanings of outputs: each family of detectors by boxes that are known, and the other kinds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

from opalite.media.detections import find_boxes, overlap
from opalite.media.drawing import color_map, draw
from opalite.media.picture_input import open_size, picture_shape
from opalite.media.placement import Placement
from opalite.media.preprocess import PRESETS, Preprocess
from opalite.media.recognition import picture_of, recognize
from opalite.media.results import Boxes, Classes, ClassMap, Drawing, HeatMap, Mask, Points, Result, Text

Array = np.ndarray[Any, Any]
SIZE = (320, 256)
BOX = np.array([64.0, 40.0, 144.0, 136.0])
"""Left, top, right and bottom of the one thing to find, whose centre is that of a cell of stride 16."""
F = np.float32


def centre_form(box: Array) -> Array:
    return np.concatenate([(box[:2] + box[2:]) / 2, box[2:] - box[:2]])


def cells(*strides: int) -> int:
    return sum(math.ceil(SIZE[0] / s) * math.ceil(SIZE[1] / s) for s in strides)


def selected_tflite() -> list[Array]:
    boxes = np.zeros((1, 10, 4), F)
    boxes[0, 0] = BOX[[1, 0, 3, 2]] / np.array([256, 320, 256, 320])
    classes, scores = np.zeros((1, 10), F), np.full((1, 10), 0.01, F)
    classes[0, 0], scores[0, 0] = 3, 0.9
    return [boxes, classes, scores, np.array([4], F)]


def selected_pixels() -> list[Array]:
    boxes = np.stack([BOX, [0, 0, 9, 9.5]]).astype(F)
    return [boxes, np.array([3, 1]), np.array([0.9, 0.1], F)]


def selected_rows() -> list[Array]:
    rows = np.zeros((1, 300, 6), F)
    rows[0, 5] = [*BOX, 0.9, 3]
    return [rows]


def rows_with_picture() -> list[Array]:
    return [np.array([[0, *BOX, 3, 0.9], [0, 5.5, 5, 9, 9, 1, 0.4]], F)[:, [0, 1, 2, 3, 4, 5, 6]]]


def columns() -> list[Array]:
    a = np.full((1, 4 + 6, cells(8, 16, 32)), 0.01, F)
    a[0, :4] = 20
    a[0, :4, 77], a[0, 4 + 3, 77] = centre_form(BOX), 0.9
    return [a]


def rows_with_object_score() -> list[Array]:
    a = np.full((1, cells(8, 16, 32) * 3, 5 + 6), 0.1, F)
    a[0, :, :4] = 20
    a[0, 90, :4], a[0, 90, 4], a[0, 90, 5 + 3] = centre_form(BOX), 0.95, 0.95
    return [a]


def relative_to_cells() -> list[Array]:
    a = np.full((1, cells(8, 16, 32), 5 + 6), 0.1, F)
    a[0, :, 2:4] = -1
    x, y, w, h = centre_form(BOX)
    column, row = 6, 5
    at = cells(8) + row * math.ceil(SIZE[0] / 16) + column
    a[0, at, :4] = [x / 16 - column, y / 16 - row, np.log(w / 16), np.log(h / 16)]
    a[0, at, 4], a[0, at, 5 + 3] = 0.95, 0.95
    return [a]


def pair_with_background() -> list[Array]:
    boxes, scores = np.zeros((1, 500, 4), F), np.full((1, 500, 5), 0.01, F)
    boxes[..., 2:] = 0.1
    scores[..., 0] = 0.96
    boxes[0, 44] = BOX / np.array([*SIZE, *SIZE])
    scores[0, 44] = [0.06, 0.01, 0.01, 0.01, 0.91]
    return [scores, boxes]


def pair_of_queries() -> list[Array]:
    rng = np.random.default_rng(0)
    boxes, logits = rng.uniform(0.2, 0.4, (1, 100, 4)).astype(F), np.full((1, 100, 6), -6, F)
    boxes[..., 2:] = 0.1
    boxes[0, 44] = centre_form(BOX) / np.array([*SIZE, *SIZE])
    logits[0, 44, 3] = 3
    return [logits, boxes]


def pair_with_nothing_last() -> list[Array]:
    logits, boxes = pair_of_queries()
    logits = np.concatenate([logits, np.full((1, 100, 1), 8, F)], 2)
    logits[0, 44] = [0, 0, 0, 8, 0, 0, 0]
    return [logits, boxes]


def of_each_stride() -> list[Array]:
    found: list[Array] = []
    for kind, width in (("class", 1), ("object", 1), ("box", 4), ("points", 10)):
        for stride in (8, 16, 32):
            a = np.full((1, cells(stride), width), 0.01, F)
            if stride == 16:
                x, y, w, h = centre_form(BOX)
                at = 5 * math.ceil(SIZE[0] / 16) + 6
                values = {"box": [x / 16 - 6, y / 16 - 5, np.log(w / 16), np.log(h / 16)], "points": [0.5] * 10}
                a[0, at] = values.get(kind, 0.9)
            found.append(a)
    return found


FAMILIES = {
    "selected, TensorFlow Lite": (selected_tflite, 3),
    "selected, pixels": (selected_pixels, 3),
    "selected rows": (selected_rows, 3),
    "rows with the picture's number": (rows_with_picture, 3),
    "columns": (columns, 3),
    "rows with an object's score": (rows_with_object_score, 3),
    "relative to cells": (relative_to_cells, 3),
    "pair with background": (pair_with_background, 3),
    "pair of queries": (pair_of_queries, 3),
    "pair with 'nothing'": (pair_with_nothing_last, 3),
    "each stride": (of_each_stride, 0),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_detectors(family: str) -> None:
    make, number = FAMILIES[family]
    found = find_boxes(make(), SIZE, 0.5)
    assert found is not None
    np.testing.assert_allclose(found.boxes, [BOX], atol=0.5)
    assert found.classes.tolist() == [number]
    assert found.scores[0] == pytest.approx(0.9, abs=0.11)


def test_anchors_with_points() -> None:
    """The detector of a face in 128 x 128 pixels: 512 and 384 anchors, six points each."""
    boxes, scores = np.zeros((1, 896, 16), F), np.full((1, 896, 1), -9, F)
    at = 2 * (5 * 16 + 7)  # an anchor of the first grid, whose cell is 8 pixels wide
    boxes[0, at, :4], boxes[0, at, 4:6], scores[0, at] = [1, 2, 20, 30], [3, 4], 4
    for outputs in ([boxes, scores], [scores[:, :512], scores[:, 512:], boxes[:, :512], boxes[:, 512:]]):
        found = find_boxes(outputs, (128, 128), 0.5)
        assert found is not None
        assert found.points is not None
        np.testing.assert_allclose(found.boxes, [[60 + 1 - 10, 44 + 2 - 15, 60 + 1 + 10, 44 + 2 + 15]])
        np.testing.assert_allclose(found.points[0, 0], [63, 48])


def test_overlapping_boxes_are_dropped() -> None:
    a = columns()[0]
    a[0, :, 78] = a[0, :, 77]
    a[0, :2, 78] += 3
    a[0, 4 + 3, 78] = 0.8
    found = find_boxes([a], SIZE, 0.5)
    assert found is not None
    assert len(found.boxes) == 1
    a[0, 4 + 3, 78], a[0, 4 + 2, 78] = 0.01, 0.8  # of another class
    found = find_boxes([a], SIZE, 0.5)
    assert found is not None
    assert found.classes.tolist() == [3, 2]
    assert overlap(BOX, BOX + 1000) == 0


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
