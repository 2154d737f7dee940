"""Corner cases of windows against onnxruntime: larger than the padded input, smaller than the stride, partial."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError

from ..oracles import Values, assert_same, by_onnx, by_ort, imported

V = Values(11)
SIZES, KERNELS, STRIDES = (1, 2, 3, 5, 8), (1, 2, 3, 5), (1, 2, 3, 4)
PADS: tuple[Any, ...] = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), "SAME_UPPER", "SAME_LOWER", "VALID")


def _attributes(kernel: int, stride: int, pads: Any, dilation: int, ceil: int) -> dict[str, Any]:
    attrs: dict[str, Any] = {"kernel_shape": [kernel], "strides": [stride]}
    attrs |= {"auto_pad": pads} if isinstance(pads, str) else {"pads": pads}
    return attrs | ({"dilations": [dilation]} if dilation > 1 else {}) | ({"ceil_mode": 1} if ceil else {})


def _check(op: str, opset: int, size: int, **attrs: Any) -> bool:
    """Compare one node with onnxruntime; False if onnxruntime rejects it."""
    x = V.f(1, 2, size)
    try:
        want = by_ort(op, [x], opset=opset, **attrs)
    except Exception:  # such as pads that are larger than the window
        return False
    # The maximum of a window inside the padding is -inf; onnxruntime gives the lowest finite number.
    got = [np.maximum(y, np.finfo(np.float32).min) for y in imported(op, [x], opset=opset, **attrs)]
    assert_same(got, want)
    return True


@pytest.mark.parametrize("opset", [11, 22])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pooling_at_the_corners(op: str, opset: int) -> None:
    checked = 0
    for size, kernel, stride, pads in itertools.product(SIZES, KERNELS, STRIDES, PADS):
        attrs = _attributes(kernel, stride, pads, 1, (size + kernel + stride) % 2)
        if op == "AveragePool":
            attrs["count_include_pad"] = (size + stride) % 2
        if opset < 18 and op == "LpPool":
            attrs.pop("ceil_mode", None)
        checked += _check(op, opset, size, **attrs)
    assert checked > 300


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pooling_with_dilation_at_the_corners(op: str) -> None:
    explicit = [p for p in PADS if "SAME" not in p]
    checked = 0
    for size, kernel, stride, pads in itertools.product(SIZES, (2, 3), STRIDES, explicit):
        checked += _check(op, 22, size, **_attributes(kernel, stride, pads, 2 + size % 2, stride % 2))
    assert checked > 80


def test_same_padding_of_a_dilated_window_follows_the_standard() -> None:
    # onnxruntime leaves the dilation out of the padding, so that its outputs are smaller than ceil(size / stride).
    x, attrs = V.f(1, 2, 8), {"kernel_shape": [3], "dilations": [2]}
    got = imported("MaxPool", [x], opset=22, auto_pad="SAME_UPPER", **attrs)
    assert_same(got, by_ort("MaxPool", [x], opset=22, pads=[2, 2], **attrs))


def test_a_window_that_has_no_place_is_refused() -> None:
    with pytest.raises(ShapeError, match="smaller than the window"):
        imported("MaxPool", [V.f(1, 1, 2)], opset=22, kernel_shape=[9], strides=[2])


@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [3], "output_shape": [10]},  # beyond the reach of the filters: zeros at the end
        {"strides": [3], "output_shape": [9], "pads": [1, 1]},
        {"strides": [2], "output_shape": [4]},
        {"strides": [2], "output_shape": [5], "auto_pad": "SAME_UPPER"},
    ],
)
def test_transposed_convolution_to_a_given_size(attrs: dict[str, Any]) -> None:
    inputs = [V.f(1, 2, 3), V.f(2, 2, 2)]
    assert_same(imported("ConvTranspose", inputs, **attrs), by_ort("ConvTranspose", inputs, **attrs))


def test_transposed_convolution_with_same_padding_follows_the_standard() -> None:
    # Its output is size * stride; onnxruntime's is smaller where the filter is smaller than the stride.
    inputs = [V.f(1, 2, 3), V.f(2, 2, 2)]
    attrs = {"strides": [4], "auto_pad": "SAME_UPPER"}
    got = imported("ConvTranspose", inputs, **attrs)
    assert got[0].shape == (1, 2, 12)
    assert_same(got, by_onnx("ConvTranspose", inputs, **attrs))


def test_transposed_convolution_of_nothing_is_the_bias() -> None:
    inputs = [V.f(1, 2, 0), V.f(2, 2, 3), V.f(2)]
    attrs = {"strides": [1], "output_padding": [2]}
    (got,) = imported("ConvTranspose", inputs, **attrs)
    np.testing.assert_array_equal(got, np.broadcast_to(inputs[2][None, :, None], (1, 2, 4)))
