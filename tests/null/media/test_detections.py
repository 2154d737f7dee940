"""Boxes of each family of detectors, by one that is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opalite.media.detections import find_boxes, overlap

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


def scrfd() -> list[Array]:
    """Two boxes begin at each cell's upper left corner; distances are in cells."""
    found: list[Array] = []
    for kind, width in (("score", 1), ("sides", 4), ("points", 10)):
        for stride in (8, 16, 32):
            a = np.full((2 * cells(stride), width), 0.01, F)
            if stride == 16:
                x, y = 6 * 16, 5 * 16
                sides = [x - BOX[0], y - BOX[1], BOX[2] - x, BOX[3] - y]
                a[2 * (5 * math.ceil(SIZE[0] / 16) + 6) + 1] = {"score": 0.9, "points": 1}.get(
                    kind, np.array(sides) / 16
                )
            found.append(a)
    return found


def bins(stride: int, classes: int) -> tuple[Array, Array]:
    """Scores and bins of one stride; distances of 2.5 and 3 cells lie in two bins, or in one."""
    scores, sides = np.full((1, cells(stride), classes), 0.01, F), np.full((1, cells(stride), 32), -9, F)
    if stride == 16:
        at, column = 5 * math.ceil(SIZE[0] / 16) + 6, np.zeros((4, 8))
        column[:] = -40
        column[[0, 0, 2, 2], [2, 3, 2, 3]] = 5
        column[[1, 3], [3, 3]] = 5
        scores[0, at, 3], sides[0, at] = 0.9, column.reshape(-1)
    return scores, sides


def picodet() -> list[Array]:
    made = [bins(s, 10) for s in (8, 16, 32, 64)]
    return [m[0] for m in made] + [m[1] for m in made]


def nanodet() -> list[Array]:
    return [np.concatenate([np.concatenate(bins(s, 10), 2) for s in (8, 16, 32)], 1)]


def retinaface() -> list[Array]:
    n = 2 * cells(8, 16, 32)
    steps, shares, points = (
        np.zeros((1, n, 4), F),
        np.tile(np.array([0.99, 0.01], F), (1, n, 1)),
        np.zeros((1, n, 10), F),
    )
    at = 2 * cells(8) + 2 * (5 * math.ceil(SIZE[0] / 16) + 6) + 1  # a default box of 128 pixels
    x, y, w, h = centre_form(BOX)
    steps[0, at] = [(x - 104) / 12.8, (y - 88) / 12.8, np.log(w / 128) / 0.2, np.log(h / 128) / 0.2]
    shares[0, at] = [0.1, 0.9]
    return [steps, shares, points]


def columns_with_points() -> list[Array]:
    a = np.full((1, 4 + 1 + 51, cells(8, 16, 32)), 0.01, F)
    a[0, :4], a[0, 5::3], a[0, 6::3] = 20, 30, 40
    a[0, :4, 77], a[0, 4, 77] = centre_form(BOX), 0.9
    return [a]


def columns_with_masks() -> list[Array]:
    a = columns()[0]
    weights = np.random.default_rng(0).normal(0, 3, (1, 32, a.shape[2])).astype(F)
    return [np.concatenate([a, weights], 1), np.zeros((1, 32, 64, 80), F)]


def rows_with_masks() -> list[Array]:
    a = rows_with_object_score()[0]
    weights = np.random.default_rng(0).normal(0, 3, (1, a.shape[1], 32)).astype(F)
    return [np.concatenate([a, weights], 2), np.zeros((1, 32, 64, 80), F)]


FAMILIES = {
    "distances from corners": (scrfd, 0),
    "bins of each stride": (picodet, 3),
    "bins of all strides": (nanodet, 3),
    "steps from default boxes": (retinaface, 0),
    "columns with points": (columns_with_points, 0),
    "columns with masks": (columns_with_masks, 3),
    "rows with masks": (rows_with_masks, 3),
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
