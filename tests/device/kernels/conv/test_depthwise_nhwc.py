"""Depthwise convolution with channels last against its reference, and that against Conv's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.errors import ShapeError
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.ops.conv import Conv

from ..conv_checks import as_gpu, check_kernel, find_kernel

CASES = {  # C, spatial, kernel, strides, pads, dilations
    "3x3": (37, (11, 29), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    "7x7": (48, (7, 13), (7, 7), (1, 1), (3, 3, 3, 3), (1, 1)),
    "stride": (20, (11, 13), (5, 5), (2, 2), (2, 1, 2, 3), (1, 1)),
    "dilated": (16, (13, 31), (3, 3), (1, 2), (4, 2, 4, 2), (4, 2)),
    "one column": (18, (29, 1), (3, 1), (1, 1), (1, 0, 1, 0), (1, 1)),
    "pads beyond the picture": (8, (2, 3), (3, 5), (1, 1), (4, 6, 3, 5), (1, 1)),
}


def make_case(name: str) -> tuple[dict[str, Any], list[Any]]:
    """(attributes, arrays) of a row of CASES."""
    c, spatial, kernel, strides, pads, dilations = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, *spatial, c), (c, 1, *kernel), (c,))]
    return {"strides": strides, "pads": pads, "dilations": dilations}, arrays


def check(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], precision: Any = None, **params: Any) -> None:
    """The kernel agrees with the reference."""
    node = make_node("DepthwiseNhwc", attrs, arrays, const=(1, 2), precision=precision)
    check_kernel(rt, find_kernel("DepthwiseNhwc", "DepthwiseRowsTile"), node, arrays, params)


@pytest.mark.parametrize("name", CASES)
def test_float32(rt: Runtime, name: str) -> None:
    check(rt, *make_case(name))


@pytest.mark.parametrize("name", CASES)
def test_as_on_a_gpu(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), *make_case(name))


@pytest.mark.parametrize("tw", [1, 4, 8])
@pytest.mark.parametrize("pack", [1, 4, 16])
def test_tiles_without_bias(rt: Runtime, tw: int, pack: int) -> None:
    attrs, (x, w, _) = make_case("7x7")
    check(rt, attrs, [x, w, None], TW=tw, PACK=pack)


@pytest.mark.parametrize("name", ["3x3", "7x7"])
def test_epilogue(rt: Runtime, name: str) -> None:
    attrs, arrays = make_case(name)
    rng = np.random.default_rng(1)
    residual, scale = (rng.standard_normal(s).astype(np.float32) for s in (arrays[0].shape, arrays[0].shape[-1:]))
    expr = parse_expr("mul($0, $2); add(%0, $1); tanh(%1)", [DType.FLOAT32] * 3)
    check(rt, {**attrs, "epilogue": expr}, [*arrays, residual, scale])


@pytest.mark.parametrize("name", ["3x3", "stride"])
def test_half_storage(rt: Runtime, name: str) -> None:
    check(rt, *make_case(name), DType.FLOAT16)


@pytest.mark.parametrize("name", CASES)
def test_the_reference_is_that_of_conv(name: str) -> None:
    attrs, (x, w, b) = make_case(name)
    rows = make_node("DepthwiseNhwc", attrs, [x, w, b]).op.reference([x, w, b])[0]
    conv = Conv(attrs["strides"], attrs["pads"], attrs["dilations"], len(w)).reference([x.transpose(0, 3, 1, 2), w, b])
    np.testing.assert_allclose(rows.transpose(0, 3, 1, 2), conv[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "changed, reason",
    [
        ({"pads": (0, -1, 0, 0)}, "must not be negative"),
        ({"pads": (0, 0, 0, 0), "dilations": (9, 1)}, "smaller than the filter"),
    ],
)
def test_bad_attributes(changed: dict[str, Any], reason: str) -> None:
    attrs, arrays = make_case("3x3")
    with pytest.raises(ShapeError, match=reason):
        make_node("DepthwiseNhwc", {**attrs, **changed}, arrays)
