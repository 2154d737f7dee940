"""Convolutions of .tflite files, compared with LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.errors import ShapeError

from ....helpers.tflite_files import one_op
from ..oracles import Values
from .oracles import check_op, ran


@pytest.mark.parametrize("padding", [0, 1])
def test_conv_with_strides_dilations_groups_and_an_activation(padding: int) -> None:
    rng = Values(1)
    x, w, b = rng.f(2, 9, 8, 6), rng.f(4, 3, 2, 6), rng.f(4)
    fields = {"padding": padding, "strideH": 2, "strideW": 3, "fusedActivationFunction": 3}
    out = (np.float32, (2, 5, 3, 4) if padding == 0 else (2, 4, 3, 4))
    check_op("CONV_2D", [x, w, b], [out], "Conv2DOptions", (1, 2), **fields)
    dilated = {"padding": padding, "strideH": 1, "strideW": 1, "dilationHFactor": 2, "dilationWFactor": 3}
    out = (np.float32, (2, 9, 8, 4) if padding == 0 else (2, 5, 5, 4))
    check_op("CONV_2D", [x, w, b], [out], "Conv2DOptions", (1, 2), **dilated)


def test_depthwise_conv_with_a_multiplier() -> None:
    rng = Values(2)
    x, w, b = rng.f(1, 7, 8, 3), rng.f(1, 3, 3, 6), rng.f(6)
    fields = {"padding": 0, "strideH": 2, "strideW": 2, "depthMultiplier": 2}
    check_op("DEPTHWISE_CONV_2D", [x, w, b], [(np.float32, (1, 4, 4, 6))], "DepthwiseConv2DOptions", (1, 2), **fields)


def test_channels_that_the_filters_do_not_divide() -> None:
    x, w = np.zeros((1, 3, 3, 5), np.float32), np.zeros((4, 1, 1, 2), np.float32)
    fields = {"padding": 0, "strideH": 1, "strideW": 1}
    with pytest.raises(ShapeError, match=r"CONV_2D node.*filters f32\[4,1,1,2\].*channels must be a multiple"):
        ran(*one_op("CONV_2D", [x, w, None], [(np.float32, (1, 3, 3, 4))], "Conv2DOptions", (1,), **fields))


@pytest.mark.parametrize("name", ["strideH", "dilationWFactor"])
def test_steps_of_zero(name: str) -> None:
    x, w = np.zeros((1, 3, 3, 2), np.float32), np.zeros((4, 1, 1, 2), np.float32)
    fields = {"padding": 0, "strideH": 1, "strideW": 1, "dilationWFactor": 1} | {name: 0}
    with pytest.raises(ShapeError, match=r"CONV_2D node.*numbers from 1 on are expected"):
        ran(*one_op("CONV_2D", [x, w, None], [(np.float32, (1, 3, 3, 4))], "Conv2DOptions", (1,), **fields))
