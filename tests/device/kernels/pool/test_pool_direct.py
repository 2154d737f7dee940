"""The pooling that serves every valid node, against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node

from ..conv_checks import check_kernel, find_kernel

WINDOWS = [  # spatial, kernel, strides, pads, dilations
    ((13,), (3,), (2,), (1, 0), (1,)),
    ((11, 7), (3, 2), (2, 3), (1, 0, 1, 1), (1, 2)),
    ((8, 9), (2, 2), (3, 3), (1, 1, 1, 1), (1, 1)),
    ((2, 8), (3, 1), (2, 4), (0, -1, 0, -2), (1, 1)),  # larger than x, and smaller than the stride
    ((5, 7, 6), (2, 3, 2), (2, 2, 1), (1, 1, 0, 0, 1, 1), (1, 1, 1)),
]


def make_attrs(window: Any, kind: str, *, ceil: bool = False, indices: bool = False, order: int = 0) -> dict[str, Any]:
    """Attributes of a Pool; `kind` may be 'average+pad'."""
    _, kernel, strides, pads, dilations = window
    attrs = {"kind": kind.split("+")[0], "kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    attrs |= {"ceil_mode": ceil, "count_include_pad": "+" in kind, "p": 3 if "3" in kind else 2}
    return attrs | {"kind": attrs["kind"].rstrip("3"), "with_indices": indices, "storage_order": order}


def check(rt: Runtime, attrs: dict[str, Any], x: Any) -> None:
    """PoolDirect agrees with the reference."""
    check_kernel(rt, find_kernel("Pool", "PoolDirect"), make_node("Pool", attrs, [x]), [x])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["max", "average", "average+pad", "lp", "lp3"])
@pytest.mark.parametrize("ceil", [False, True])
def test_float32(rt: Runtime, window: Any, kind: str, ceil: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, *window[0])).astype(np.float32)
    check(rt, make_attrs(window, kind, ceil=ceil), x)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("order", [0, 1])
def test_indices(rt: Runtime, window: Any, order: int) -> None:
    x = np.random.default_rng(1).integers(-3, 3, (2, 5, *window[0])).astype(np.float32)
    check(rt, make_attrs(window, "max", indices=True, order=order), x)


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64])
def test_max_of_other_types(rt: Runtime, dtype: DType) -> None:
    if dtype is DType.FLOAT64 and not rt.info.fp64:
        pytest.skip("the device has no double precision")
    x = np.random.default_rng(2).integers(-100, 0, (2, 5, *WINDOWS[1][0])).astype(dtype.np)
    check(rt, make_attrs(WINDOWS[1], "max"), x)


def test_average_of_integers_is_refused(rt: Runtime) -> None:
    node = make_node("Pool", make_attrs(WINDOWS[0], "average"), [np.zeros((1, 2, 13), np.int32)])
    kernel = find_kernel("Pool", "PoolDirect")
    assert kernel.refuse(kernel.problem(node, rt.info)) == "average pooling of i32"
