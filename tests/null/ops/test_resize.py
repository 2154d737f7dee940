"""Resize's reference against onnxruntime, and where that lacks a case, against onnx's own reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.operator import make_op
from opalite.ops.resize_weights import COORDINATES, NEAREST_MODES

from .oracles import by_onnx, by_ort, ours

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(13)
PLAIN = [c for c in COORDINATES if c != "tf_crop_and_resize"]


def attrs_of(
    x: Array, sizes: tuple[int, ...], scales: tuple[float, ...] | None = None, **changed: Any
) -> dict[str, Any]:
    """Canonical attributes; scales follow from sizes unless given."""
    found: dict[str, Any] = {
        "sizes": tuple(sizes),
        "scales": scales or tuple(o / i for o, i in zip(sizes, x.shape, strict=True)),
        "mode": "nearest",
        "coordinate": "half_pixel",
        "nearest_mode": "round_prefer_floor",
        "cubic_a": -0.75,
        "exclude_outside": False,
        "extrapolation": 0.0,
        "roi": None,
        "antialias": False,
    }
    return found | changed


def onnx_inputs(x: Array, attrs: dict[str, Any], by_scales: bool) -> tuple[list[Array | None], dict[str, Any]]:
    """Inputs and attributes of the ONNX node."""
    roi = None if attrs["roi"] is None else np.array(attrs["roi"], np.float32)
    scales = np.array(attrs["scales"], np.float32) if by_scales else None
    sizes = None if by_scales else np.array(attrs["sizes"], np.int64)
    node: dict[str, Any] = {
        "mode": attrs["mode"],
        "coordinate_transformation_mode": attrs["coordinate"],
        "cubic_coeff_a": attrs["cubic_a"],
        "exclude_outside": int(attrs["exclude_outside"]),
        "extrapolation_value": attrs["extrapolation"],
        "antialias": int(attrs["antialias"]),
    }
    if attrs["mode"] == "nearest":
        node["nearest_mode"] = attrs["nearest_mode"]
    return [x, roi, scales] if by_scales else [x, roi, None, sizes], node


def check(
    x: Array, attrs: dict[str, Any], by_scales: bool = False, tolerance: float = 1e-5, oracle: Any = by_ort
) -> None:
    inputs, node = onnx_inputs(x, attrs, by_scales)
    (want,) = oracle("Resize", inputs, opset=18 if attrs["coordinate"] != "half_pixel_symmetric" else 19, **node)
    (got,) = ours("Resize", [x], **attrs)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


def by_scale(x: Array, scale: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """(sizes, scales) for the last two axes scaled by `scale`."""
    scales = (1.0, 1.0, scale, scale)
    return tuple(int(np.floor(np.float32(d) * np.float32(s))) for d, s in zip(x.shape, scales, strict=True)), scales


@pytest.mark.parametrize("scale", [2.0, 3.0, 4.0, 0.5, 0.25, 1.5, 2.5, 1.25, 0.75, 0.6, 1.1, 1 / 3, 2 / 3, 8 / 7])
@pytest.mark.parametrize("nearest_mode", NEAREST_MODES)
@pytest.mark.parametrize("coordinate", PLAIN)
def test_nearest_ties_as_onnxruntime(coordinate: str, nearest_mode: str, scale: float) -> None:
    x = np.arange(13 * 28, dtype=np.float32).reshape(1, 1, 13, 28)
    sizes, scales = by_scale(x, scale)
    check(x, attrs_of(x, sizes, scales, coordinate=coordinate, nearest_mode=nearest_mode), by_scales=True, tolerance=0)


@pytest.mark.parametrize("sizes", [(13, 5), (6, 22), (1, 1), (7, 29), (14, 1), (3, 4), (8, 12)])
@pytest.mark.parametrize("nearest_mode", NEAREST_MODES)
@pytest.mark.parametrize("coordinate", PLAIN)
def test_nearest_to_sizes(coordinate: str, nearest_mode: str, sizes: tuple[int, int]) -> None:
    x = np.arange(7 * 11, dtype=np.float32).reshape(1, 1, 7, 11)
    check(x, attrs_of(x, (1, 1, *sizes), coordinate=coordinate, nearest_mode=nearest_mode), tolerance=0)


@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5, 0.6, 3.0, 2 / 3])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinate", PLAIN)
def test_interpolation_by_scales(coordinate: str, mode: str, scale: float) -> None:
    x = rng.standard_normal((2, 3, 7, 11)).astype(np.float32)
    sizes, scales = by_scale(x, scale)
    check(x, attrs_of(x, sizes, scales, coordinate=coordinate, mode=mode), by_scales=True)


def test_corners_are_aligned_where_a_scale_leaves_a_fraction() -> None:
    """The standard divides by the length of the output less one; onnx's test vectors keep the fraction in it."""
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 1, 7)
    (got,) = ours("Resize", [x], **attrs_of(x, (1, 1, 1, 3), (1, 1, 1, 0.5), coordinate="align_corners", mode="linear"))
    np.testing.assert_array_equal(got.ravel(), [0, 3, 6])


@pytest.mark.parametrize("sizes", [(13, 5), (1, 1), (7, 29), (3, 4)])
@pytest.mark.parametrize("coordinate", PLAIN)
@pytest.mark.parametrize(
    "changed",
    [
        {"mode": "linear"},
        {"mode": "cubic"},
        {"mode": "cubic", "cubic_a": -0.5},
        {"mode": "cubic", "exclude_outside": True},
        {"mode": "linear", "antialias": True},
        {"mode": "linear", "antialias": True, "exclude_outside": True},
        {"mode": "cubic", "antialias": True},
        {"mode": "cubic", "antialias": True, "exclude_outside": True},
    ],
    ids=str,
)
def test_interpolation_to_sizes(coordinate: str, sizes: tuple[int, int], changed: dict[str, Any]) -> None:
    x = rng.standard_normal((1, 2, 7, 11)).astype(np.float32)
    check(x, attrs_of(x, (1, 2, *sizes), coordinate=coordinate, **changed))


@pytest.mark.parametrize("changed", [{"mode": "nearest"}, {"mode": "linear"}, {"mode": "cubic"}], ids=str)
@pytest.mark.parametrize("sizes", [(5, 13), (1, 1), (9, 6)])
def test_crop_and_resize(sizes: tuple[int, int], changed: dict[str, Any]) -> None:
    x = rng.standard_normal((1, 2, 7, 11)).astype(np.float32)
    roi = (0, 0, 0.4, -0.2, 1, 1, 1.3, 0.7)
    attrs = attrs_of(x, (1, 2, *sizes), coordinate="tf_crop_and_resize", roi=roi, extrapolation=7.0, **changed)
    check(x, attrs)


def test_crop_of_the_same_size_still_crops() -> None:
    x = np.arange(5, dtype=np.float32)
    attrs = attrs_of(x, (5,), coordinate="tf_crop_and_resize", roi=(0.5, 1.0), mode="linear")
    np.testing.assert_allclose(ours("Resize", [x], **attrs)[0], [2, 2.5, 3, 3.5, 4])


@pytest.mark.parametrize(
    "shape, sizes",
    [((7,), (13,)), ((5, 7), (3, 9)), ((3, 5, 7), (3, 7, 5)), ((2, 3, 5, 7, 3), (2, 3, 3, 9, 5))],
)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_other_ranks(shape: tuple[int, ...], sizes: tuple[int, ...], mode: str) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    oracle = by_onnx if len(shape) == 1 else by_ort
    check(x, attrs_of(x, sizes, mode=mode, coordinate="asymmetric"), oracle=oracle)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(3, 3, 7, 5), (2, 5, 3, 4)])
def test_outer_axes(mode: str, sizes: tuple[int, ...]) -> None:
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    check(x, attrs_of(x, sizes, mode=mode), oracle=by_onnx)


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"mode": "area"}, "mode must be"),
        ({"coordinate": "half"}, "coordinate must be"),
        ({"sizes": (5,)}, "sizes must hold 2"),
        ({"scales": (1.0, 0.0)}, "positive"),
        ({"scales": (1.0, 1.0)}, "scale 1 but size"),
        ({"antialias": True}, "antialias needs"),
        ({"coordinate": "tf_crop_and_resize"}, "roi"),
        ({"mode": "linear"}, "cast x"),
    ],
    ids=str,
)
def test_refusals(changed: dict[str, Any], words: str) -> None:
    x = np.zeros((5, 7), np.int32)
    with pytest.raises(ShapeError, match=words):
        make_op("Resize", attrs_of(x, (5, 9)) | changed).check_shape([TensorType(DType.INT32, x.shape)])
