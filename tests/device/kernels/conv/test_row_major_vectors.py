"""Row-major convolution with vectors along the rows, against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node

from ..conv_checks import as_gpu, check_kernel, find_kernel
from .test_direct_row_major import CASES as SMALL
from .test_direct_row_major import make_case

CASES = {  # as in test_direct_row_major, without output_padding
    **{f"small {i}": case for i, case in enumerate(SMALL) if case[0] == "Conv"},
    "wide": ("Conv", 3, 7, 1, (5, 67), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), ()),
    "stride 2": ("Conv", 3, 5, 1, (7, 83), (3, 5), (2, 2), (1, 2, 0, 1), (1, 1), ()),
    "stride 3": ("Conv", 4, 6, 2, (5, 131), (1, 4), (1, 3), (0, 2, 0, 3), (1, 2), ()),
    "dilated": ("Conv", 2, 3, 1, (1, 71), (1, 3), (1, 1), (0, 4, 0, 4), (1, 4), ()),
    "far dilated": ("Conv", 2, 3, 1, (3, 1201), (1, 2), (1, 1), (0, 3, 0, 2), (1, 1031), ()),
    "pointwise": ("Conv", 5, 7, 1, (5, 7), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), ()),
    "narrow": ("Conv", 6, 6, 6, (5, 28), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), ()),
    "narrower": ("Conv", 3, 4, 1, (9, 5), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), ()),
    "audio": ("Conv", 1, 5, 1, (2003,), (401,), (160,), (200, 200), (1,), ()),
}


@pytest.fixture
def cpu(rt: Runtime) -> Runtime:
    if not rt.info.is_cpu:
        pytest.skip("the kernel is for CPUs")
    return rt


def check(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], precision: Any = None, **params: Any) -> None:
    """ConvRowMajorVectors agrees with the reference."""
    node = make_node("Conv", attrs, arrays, precision=precision)
    check_kernel(rt, find_kernel("Conv", "ConvRowMajorVectors"), node, arrays, params)


@pytest.mark.parametrize("name, bias", [(name, i % 3 > 0) for i, name in enumerate(CASES)])
def test_float32(cpu: Runtime, name: str, bias: bool) -> None:
    _, attrs, arrays = make_case(CASES[name], bias)
    check(cpu, attrs, arrays)


@pytest.mark.parametrize(("tv", "tm"), [(1, 1), (4, 3), (1, 8), (3, 4)])
def test_tiles(cpu: Runtime, tv: int, tm: int) -> None:
    _, attrs, arrays = make_case(CASES["wide"], True)
    check(cpu, attrs, arrays, TV=tv, TM=tm)


@pytest.mark.parametrize(
    "name, dtype",
    [
        *(("stride 2", DType.FLOAT16), ("stride 3", DType.FLOAT64), ("stride 2", DType.BFLOAT16)),
        *(("stride 3", DType.INT32), ("stride 2", DType.INT64), ("stride 3", DType.UINT8)),
        *(("wide", DType.FLOAT16), ("narrow", DType.FLOAT64), ("narrow", DType.BFLOAT16), ("wide", DType.INT32)),
        *(("narrow", DType.INT64), ("wide", DType.UINT8), ("narrow", DType.UINT32), ("wide", DType.UINT64)),
    ],
)
def test_other_types(cpu: Runtime, name: str, dtype: DType) -> None:
    _, attrs, arrays = make_case(CASES[name], True, np.float32 if dtype.is_float else np.int32)
    check(cpu, attrs, [a.astype(dtype.np) for a in arrays])


def test_half_storage(cpu: Runtime) -> None:
    _, attrs, arrays = make_case(CASES["stride 2"], True)
    check(cpu, attrs, arrays, DType.FLOAT16)


@pytest.mark.parametrize("name", ["wide", "pointwise"])
def test_epilogue(cpu: Runtime, name: str) -> None:
    _, attrs, (x, w, b) = make_case(CASES[name], True)
    shape = make_node("Conv", attrs, [x, w, b]).y.shape
    rng = np.random.default_rng(1)
    residual, scale = (rng.standard_normal(s).astype(np.float32) for s in (shape, (1, shape[1], 1, 1)))
    expr = parse_expr("mul($0, $2); add(%0, $1); max(%1, 0.0:f32)", [DType.FLOAT32] * 3)
    check(cpu, {**attrs, "epilogue": expr}, [x, w, b, residual, scale])


def test_refused_on_a_gpu(rt: Runtime) -> None:
    _, attrs, arrays = make_case(CASES["wide"], False)
    node = make_node("Conv", attrs, arrays)
    kernel = find_kernel("Conv", "ConvRowMajorVectors")
    assert kernel.refuse(kernel.problem(node, as_gpu(rt).info)) is not None


@pytest.mark.filterwarnings("ignore:One of rtol or atol is not valid")
def test_infinite_neighbours(cpu: Runtime) -> None:
    """Padding is zero, although the memory before and after a row holds other rows. Sums are exact."""
    _, attrs, arrays = make_case(CASES["narrow"], False)
    x, w = arrays[:2]
    x[..., 0::2, :] = np.inf
    x[..., 1::2, 2:-2] = 1
    x[..., 1::2, :2] = x[..., 1::2, -2:] = np.nan
    check(cpu, attrs | {"pads": (0, 1, 0, 1)}, [x, np.full_like(w[:, :, :1], 0.5)])
