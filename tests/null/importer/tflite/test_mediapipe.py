"""MediaPipe's custom operators, which LiteRT's package lacks, compared with plain loops in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from opalite.errors import ModelFormatError, UnsupportedOpError

from ....helpers.tflite_files import one_op
from ..oracles import Values
from .oracles import ran

F = np.float32
RNG = Values(9)
Array = np.ndarray[Any, Any]


def custom(name: str, inputs: list[Array], outputs: int, raw: bytes, version: int = 1, const: Any = ()) -> list[Array]:
    model, fed = one_op(name, inputs, [(F, ())] * outputs, const=const, custom=raw, version=version)
    return ran(model, fed)


def packed(*numbers: int) -> bytes:
    return np.array(numbers, np.int32).tobytes()


@pytest.mark.parametrize("padding", [1, 2])
def test_transposed_convolution_with_a_bias(padding: int) -> None:
    x, w, b, (sh, sw) = RNG.f(1, 3, 4, 2), RNG.f(3, 3, 2, 2), RNG.f(3), (2, 3)
    cut = [max(0, 3 - 2 % sh - 1), max(0, 2 - 3 % sw - 1)] if padding == 1 else [0, 0]
    height, width = sh * 2 + 3 - cut[0], sw * 3 + 2 - cut[1]
    want = np.tile(b, (1, height, width, 1))
    for y, z, i, j in np.ndindex(3, 4, 3, 2):
        row, column = y * sh - cut[0] // 2 + i, z * sw - cut[1] // 2 + j
        if 0 <= row < height and 0 <= column < width:
            want[0, row, column] += w[:, i, j] @ x[0, y, z]
    (found,) = custom("Convolution2DTransposeBias", [x, w, b], 1, packed(padding, sw, sh), const=(1, 2))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_pooling_with_places_and_its_inverse() -> None:
    x = RNG.f(2, 5, 7, 3)  # padded: 6 by 8 windows of 2 by 2
    raw = packed(1, 2, 2, 2, 2, 0)
    values, places = custom("MaxPoolingWithArgmax2D", [x], 2, raw)
    want, at = np.zeros((2, 3, 4, 3), F), np.zeros((2, 3, 4, 3))
    for n, y, z, c in np.ndindex(*want.shape):
        window = x[n, 2 * y : 2 * y + 2, 2 * z : 2 * z + 2, c]
        want[n, y, z, c], k = window.max(), int(window.argmax())
        at[n, y, z, c] = k // window.shape[1] * 2 + k % window.shape[1]
    np.testing.assert_array_equal(values, want)
    np.testing.assert_allclose(places, at + 0.1)
    (back,) = custom("MaxUnpooling2D", [values, places], 1, raw)
    full = np.zeros((2, 6, 8, 3), F)
    for n, y, z, c in np.ndindex(*want.shape):
        full[n, 2 * y + int(at[n, y, z, c]) // 2, 2 * z + int(at[n, y, z, c]) % 2, c] = want[n, y, z, c]
    np.testing.assert_array_equal(back, full)


def turned(angle: float, x: float, y: float) -> tuple[float, float]:
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


MATRIX = np.array([[0.6, -0.3, 0, 1.2], [0.2, 0.7, 0, 0.4], [0, 0, 1, 0], [0, 0, 0, 1]], F).reshape(1, 4, 4)


def test_landmarks_by_a_matrix() -> None:
    points = RNG.f(1, 5, 3)
    raw = bytes(flexbuffers.Dumps({"dimensions": 3}))
    (found,) = custom("TransformLandmarks", [points, MATRIX], 1, raw, 2)
    want = points.copy()
    want[..., :2] = points[..., :2] @ MATRIX[0, :2, :2].T + MATRIX[0, :2, 3]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    raw = bytes(flexbuffers.Dumps({"dimensions": 2, "scale": 10.0}))
    flat = RNG.f(1, 1, 1, 6)
    (found,) = custom("TransformLandmarks", [flat, MATRIX], 1, raw)
    pairs = flat.reshape(3, 2) @ MATRIX[0, :2, :2].T + MATRIX[0, :2, 3] * 10
    np.testing.assert_allclose(found, pairs.reshape(flat.shape), rtol=1e-5, atol=1e-5)


def test_an_image_read_by_a_matrix() -> None:
    image = RNG.f(1, 5, 6, 2)
    raw = bytes(flexbuffers.Dumps({"output_height": 4, "output_width": 7}))
    (found,) = custom("TransformTensorBilinear", [image, MATRIX], 1, raw, 2)
    want = np.zeros((1, 4, 7, 2), F)
    for row, column in np.ndindex(4, 7):
        x, y = MATRIX[0, :2, :2] @ [column + 0.5, row + 0.5] + MATRIX[0, :2, 3] - 0.5
        if 0 <= x <= 5 and 0 <= y <= 4:
            i, j = math.floor(y), math.floor(x)
            for di, dj in np.ndindex(2, 2):
                weight = (1 - abs(y - i - di)) * (1 - abs(x - j - dj))
                if weight > 0:
                    want[0, row, column] += weight * image[0, i + di, j + dj]
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_the_matrix_of_a_crop() -> None:
    points = np.abs(RNG.f(1, 6, 3)) * 50
    options = {
        "subset_idxs": [0, 2, 3, 5],
        "left_rotation_idx": 1,
        "right_rotation_idx": 4,
        "target_rotation_radians": 0.3,
        "output_height": 8,
        "output_width": 16,
        "scale_x": 1.5,
        "scale_y": 1.25,
    }
    raw = bytes(flexbuffers.Dumps(options))
    (found,) = custom("Landmarks2TransformMatrix", [points], 1, raw, 2)
    p = points[0].astype(float)
    angle = 0.3 - math.atan2(p[4, 1] - p[1, 1], p[4, 0] - p[1, 0])
    inside = np.array([turned(angle, *p[i, :2]) for i in (0, 2, 3, 5)])
    size, middle = np.ptp(inside, 0), (inside.max(0) + inside.min(0)) / 2
    for corner in ((0, 0), (16, 0), (3, 8)):
        step = (np.array(corner) - [8, 4]) * [1.5 * size[0] / 16, 1.25 * size[1] / 8]
        want = np.add(turned(-angle, *step), turned(-angle, *middle))
        np.testing.assert_allclose((found[0] @ [*corner, 0, 1])[:2], want, rtol=1e-4)
    with pytest.raises(UnsupportedOpError, match=r"Landmarks2TransformMatrix.*version 1"):
        custom("Landmarks2TransformMatrix", [points], 1, raw, 1)


def test_options_that_are_cut_off() -> None:
    with pytest.raises(ModelFormatError, match=r"MaxPoolingWithArgmax2D.*has 4 bytes of options, not 24"):
        custom("MaxPoolingWithArgmax2D", [RNG.f(1, 2, 2, 1)], 2, packed(1))
