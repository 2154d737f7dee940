"""The convolutions that serve every valid node, against their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node

from ..conv_checks import check_kernel, find_kernel

CASES = [  # op, C, M, group, spatial, kernel, strides, pads, dilations, output_padding
    ("Conv", 5, 7, 1, (13,), (3,), (2,), (1, 2), (1,), ()),
    ("Conv", 6, 9, 3, (11, 7), (3, 2), (1, 3), (2, 0, 1, 3), (2, 1), ()),
    ("Conv", 7, 7, 7, (11, 13), (5, 3), (2, 1), (2, 1, 2, 1), (1, 1), ()),
    ("Conv", 3, 11, 1, (9, 8), (3, 3), (1, 1), (-1, 2, 0, -2), (1, 1), ()),
    ("Conv", 3, 5, 1, (5, 7, 11), (2, 3, 3), (1, 2, 1), (0, 1, 1, 1, 0, 1), (1, 1, 2), ()),
    ("ConvTranspose", 5, 7, 1, (13,), (3,), (2,), (1, 2), (1,), (1,)),
    ("ConvTranspose", 6, 9, 3, (5, 7), (3, 2), (1, 3), (0, 0, 1, 1), (2, 1), (0, 2)),
    ("ConvTranspose", 3, 3, 1, (9, 8), (3, 3), (1, 1), (-1, 0, 0, -2), (1, 1), (0, 0)),
    ("ConvTranspose", 3, 5, 1, (3, 5, 2), (2, 3, 3), (1, 2, 2), (0, 1, 1, 1, 0, 1), (1, 1, 2), (0, 0, 1)),
]


def make_case(case: Any, bias: bool, dtype: Any = np.float32) -> tuple[str, dict[str, Any], list[Any]]:
    """(operator, attributes, arrays) of a row of CASES."""
    op, c, m, group, spatial, kernel, strides, pads, dilations, extra = case
    rng = np.random.default_rng(0)
    filters = (m, c // group) if op == "Conv" else (c, m // group)
    shapes = ((2, c, *spatial), (*filters, *kernel), (m,))
    arrays = [(rng.standard_normal(s) * 4).astype(dtype) for s in shapes]
    attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    if op == "ConvTranspose":
        attrs["output_padding"] = extra
    return op, attrs, arrays if bias else [*arrays[:2], None]


def check(
    rt: Runtime, op: str, attrs: dict[str, Any], arrays: list[Any], precision: DType | None, **params: Any
) -> None:
    """The direct kernel agrees with the reference."""
    node = make_node(op, attrs, arrays, precision=precision)
    check_kernel(rt, find_kernel(op, f"{op}Direct"), node, arrays, params)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("bias", [False, True])
def test_float32(rt: Runtime, case: Any, bias: bool) -> None:
    op, attrs, arrays = make_case(case, bias)
    check(rt, op, attrs, arrays, None)


@pytest.mark.parametrize("case", [CASES[1], CASES[6]])
@pytest.mark.parametrize("tm", [1, 2, 8])
def test_channel_tiles(rt: Runtime, case: Any, tm: int) -> None:
    op, attrs, arrays = make_case(case, True)
    check(rt, op, attrs, arrays, None, TM=tm)


@pytest.mark.parametrize("case", [CASES[1], CASES[6]])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16, DType.INT32, DType.INT64, DType.UINT8])
def test_other_types(rt: Runtime, case: Any, dtype: DType) -> None:
    if dtype is DType.FLOAT64 and not rt.info.fp64:
        pytest.skip("the device has no double precision")
    op, attrs, arrays = make_case(case, True, np.float32 if dtype.is_float else np.int32)
    check(rt, op, attrs, [a.astype(dtype.np) for a in arrays], None)


@pytest.mark.parametrize("case", [CASES[1], CASES[6]])
def test_half_storage_of_float32(rt: Runtime, case: Any) -> None:
    op, attrs, arrays = make_case(case, True)
    check(rt, op, attrs, arrays, DType.FLOAT16)


@pytest.mark.parametrize("case", [CASES[1], CASES[6]])
def test_epilogue(rt: Runtime, case: Any) -> None:
    op, attrs, (x, w, b) = make_case(case, True)
    plain = make_node(op, attrs, [x, w, b])
    shape = plain.y.shape
    rng = np.random.default_rng(1)
    residual = rng.standard_normal(shape).astype(np.float32)
    scale = rng.standard_normal((1, shape[1], *(1,) * (len(shape) - 2))).astype(np.float32)
    expr = parse_expr("mul($0, $2); add(%0, $1); max(%1, 0.0:f32)", [DType.FLOAT32] * 3)
    check(rt, op, {**attrs, "epilogue": expr}, [x, w, b, residual, scale], None)
