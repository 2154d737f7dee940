"""Convolution and pooling of images against their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node

from ....helpers.pairs import pairwise
from ..conv.test_direct_packed import CASES, make_case
from ..conv.test_transposed_packed import CASES as TRANSPOSED
from ..conv.test_transposed_packed import make_case as make_transposed
from ..conv_checks import find_kernel
from ..pool.test_pool_direct import WINDOWS, make_attrs
from .image_checks import check_image

FLAT_CASES = [name for name, case in CASES.items() if len(case[3]) == 2 and name != "merged groups"]
DEPTHWISE = {  # spatial, kernel, strides, pads, dilations
    "3x3": ((11, 13), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "stride": ((11, 29), (5, 3), (2, 2), (2, 0, 1, 1), (1, 1)),
    "dilated": ((13, 31), (3, 3), (1, 1), (2, 3, 2, 3), (2, 3)),
    "far dilated": ((5, 67), (1, 3), (1, 2), (0, 20, 0, 20), (1, 23)),
    "one column": ((29, 1), (3, 1), (2, 1), (1, 0, 1, 0), (1, 1)),
    "whole": ((7, 5), (7, 5), (1, 1), (0, 0, 0, 0), (1, 1)),
}


@pytest.mark.parametrize("name", FLAT_CASES)
def test_conv(rt: Runtime, name: str) -> None:
    attrs, arrays = make_case(name)
    check_image(rt, "Conv", "ImageConv", attrs, arrays, const=(1, 2))


@pytest.mark.parametrize("tile", [(1, 1), (2, 4), (8, 2)])
@pytest.mark.parametrize("name", ["blocks", "whole groups"])
def test_register_tiles(rt: Runtime, name: str, tile: tuple[int, int]) -> None:
    attrs, arrays = make_case(name)
    check_image(rt, "Conv", "ImageConv", attrs, arrays, const=(1, 2), TW=tile[0], TB=tile[1])


def test_conv_without_bias(rt: Runtime) -> None:
    attrs, arrays = make_case("3x3")
    check_image(rt, "Conv", "ImageConv", attrs, arrays[:2], const=(1,))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_taps_across_the_filter_image(rt: Runtime, op: str) -> None:
    """Blocks times taps are more rows than an image may have."""
    attrs: dict[str, Any] = {"strides": (1, 1), "pads": (0, 3, 0, 2), "dilations": (1, 1), "group": 1}
    rng, channels, taps = np.random.default_rng(5), 72, 2003
    shape = (channels, 3, 1, taps) if op == "Conv" else (3, channels, 1, taps)
    attrs |= {} if op == "Conv" else {"output_padding": (0, 0), "pads": (0, 900, 0, 1000)}
    arrays = [rng.uniform(-1, 1, size).astype(np.float32) for size in ((1, 3, 2, taps if op == "Conv" else 3), shape)]
    node = make_node(op, attrs, arrays, const=(1,))
    kernel = find_kernel(op, f"Image{op}")
    problem = kernel.problem(node, rt.info)
    (launch,) = kernel.launch(problem, kernel.defaults(problem))
    assert launch.defines["ACROSS"]
    check_image(rt, op, f"Image{op}", attrs, arrays, const=(1,))


FEW = {  # C, M, spatial, kernel, strides, pads, dilations
    "first layer": (3, 16, (23, 29), (3, 3), (2, 2), (1, 0, 0, 1), (1, 1)),
    "last layer": (29, 2, (7, 11), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    "dilated": (5, 7, (13, 17), (3, 2), (1, 1), (2, 3, 1, 0), (2, 3)),
    "groups": (6, 6, (5, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
}


def few_filters(name: str) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, arrays) of a row of FEW."""
    c, m, spatial, kernel, strides, pads, dilations = FEW[name]
    group = 3 if name == "groups" else 1
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, c, *spatial), (m, c // group, *kernel), (m,))]
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": group}, arrays


@pytest.mark.parametrize("precision", [None, DType.FLOAT16])
@pytest.mark.parametrize("name", FEW)
def test_filters_in_constant_memory(rt: Runtime, name: str, precision: DType | None) -> None:
    attrs, arrays = few_filters(name)
    check_image(rt, "Conv", "ImageConvConstant", attrs, arrays, const=(1, 2), precision=precision)


@pytest.mark.parametrize("tw", [2, 4])
def test_filters_in_constant_memory_by_columns_and_with_an_epilogue(rt: Runtime, tw: int) -> None:
    attrs, arrays = few_filters("first layer")
    residual = np.random.default_rng(3).standard_normal(make_node("Conv", attrs, arrays).y.shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0.0:f32)", [DType.FLOAT32] * 2)
    given = [*arrays[:2], None, residual]
    check_image(rt, "Conv", "ImageConvConstant", {**attrs, "epilogue": expr}, given, const=(1,), TW=tw)


@pytest.mark.parametrize(
    "channels, filters, group, says",
    [(16, 16, 1, "take 9216 bytes"), (1, 36, 1, "9 blocks of channels"), (8, 8, 2, "filters of their own")],
)
def test_filters_that_constant_memory_does_not_take(
    rt: Runtime, channels: int, filters: int, group: int, says: str
) -> None:
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": group}
    arrays = [np.zeros(s, np.float32) for s in ((1, channels, 5, 5), (filters, channels // group, 3, 3))]
    kernel = find_kernel("Conv", "ImageConvConstant")
    if not rt.info.image_support:
        pytest.skip("the device has no images")
    assert says in str(kernel.refuse(kernel.problem(make_node("Conv", attrs, arrays, const=(1,)), rt.info)))


def test_half_images(rt: Runtime) -> None:
    attrs, arrays = make_case("blocks")
    check_image(rt, "Conv", "ImageConv", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)


def test_conv_epilogue_adds_a_residual_and_gates_channels(rt: Runtime) -> None:
    attrs, arrays = make_case("blocks")
    rng = np.random.default_rng(5)
    y = make_node("Conv", attrs, arrays).y.shape
    operands = [rng.standard_normal(s).astype(np.float32) for s in (y, (2, 53, 1, 1), (1, 53, 1, 1), (2, 1, 7, 1))]
    expr = parse_expr("add($0, $1); mul(%0, $2); add(%1, $3); mul(%2, $4); exp(%3)", [DType.FLOAT32] * 5)
    operands[1] *= 0.1
    given = [np.asarray(a * 0.1, np.float32) for a in arrays]
    check_image(rt, "Conv", "ImageConv", {**attrs, "epilogue": expr}, [*given, *operands], const=(1, 2, 5))


@pytest.mark.parametrize("precision", [None, DType.FLOAT16])
@pytest.mark.parametrize("name", [name for name, case in TRANSPOSED.items() if len(case[3]) == 2])
def test_conv_transpose(rt: Runtime, name: str, precision: DType | None) -> None:
    attrs, arrays = make_transposed(name)
    check_image(rt, "ConvTranspose", "ImageConvTranspose", attrs, arrays, const=(1, 2), precision=precision)


@pytest.mark.parametrize("tile", [(1, 1), (2, 4), (8, 2)])
@pytest.mark.parametrize("name", ["4x4", "sparse", "whole groups"])
def test_conv_transpose_tiles(rt: Runtime, name: str, tile: tuple[int, int]) -> None:
    attrs, arrays = make_transposed(name)
    check_image(rt, "ConvTranspose", "ImageConvTranspose", attrs, arrays, const=(1, 2), TW=tile[0], TB=tile[1])


def test_conv_transpose_without_bias_and_with_a_residual(rt: Runtime) -> None:
    attrs, arrays = make_transposed("4x4")
    y = make_node("ConvTranspose", attrs, arrays).y.shape
    residual = np.random.default_rng(5).standard_normal(y).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0.0:f32)", [DType.FLOAT32] * 2)
    given = [*arrays[:2], None, residual]
    check_image(rt, "ConvTranspose", "ImageConvTranspose", {**attrs, "epilogue": expr}, given, const=(1,))


@pytest.mark.parametrize("precision", [None, DType.FLOAT16])
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise(rt: Runtime, name: str, precision: DType | None) -> None:
    spatial, kernel, strides, pads, dilations = DEPTHWISE[name]
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, 19, *spatial), (19, 1, *kernel), (19,))]
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": 19}
    check_image(rt, "Conv", "ImageDepthwise", attrs, arrays, const=(1, 2), precision=precision)


@pytest.mark.parametrize(
    "window, kind, ceil",
    pairwise([w for w in WINDOWS if len(w[0]) == 2], ["max", "average", "average+pad", "lp", "lp3"], [False, True]),
)
def test_pool(rt: Runtime, window: Any, kind: str, ceil: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 19, *window[0])).astype(np.float32)
    check_image(rt, "Pool", "ImagePool", make_attrs(window, kind, ceil=ceil), [x])


def test_other_ranks_and_types_are_refused(rt: Runtime) -> None:
    attrs, arrays = make_case("rank 1")
    kernel = find_kernel("Conv", "ImageConv")
    assert kernel.refuse(kernel.problem(make_node("Conv", attrs, arrays, const=(1, 2)), rt.info))
    x = np.ones((1, 4, 3, 3), np.int32)
    pool = make_node("Pool", make_attrs(((3, 3), (2, 2), (1, 1), (0, 0, 0, 0), (1, 1)), "max"), [x])
    kernel = find_kernel("Pool", "ImagePool")
    assert kernel.refuse(kernel.problem(pool, rt.info))
