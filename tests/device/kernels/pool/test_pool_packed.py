"""Pooling on channel-packed tensors against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.place import packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding

from ....helpers.pairs import pairwise
from ..conv_checks import as_gpu, check_kernel, find_kernel
from .test_pool_direct import WINDOWS, make_attrs

WHOLE = ((23, 19), (23, 19), (1, 1), (0, 0, 0, 0), (1, 1))
KINDS = ["max", "average", "average+pad", "lp", "lp3"]


def check(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], pack: int, precision: Any = None) -> None:
    """PoolPacked on blocks of `pack` agrees with the reference."""
    layout = packed(pack)
    binding = Binding((layout,) * len(arrays), (layout,))
    node = make_node("Pool", attrs, arrays, binding=binding, precision=precision)
    check_kernel(rt, find_kernel("Pool", "PoolPacked"), node, arrays)


@pytest.mark.parametrize("window, kind, ceil", pairwise([*WINDOWS, WHOLE], KINDS, [False, True]))
def test_float32(rt: Runtime, window: Any, kind: str, ceil: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 19, *window[0])).astype(np.float32)
    check(rt, make_attrs(window, kind, ceil=ceil), [x], 16)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_as_on_a_gpu(rt: Runtime, window: Any, kind: str) -> None:
    x = np.random.default_rng(1).standard_normal((2, 7, *window[0])).astype(np.float32)
    check(as_gpu(rt), make_attrs(window, kind), [x], 4)


@pytest.mark.parametrize("dtype", [DType.INT32, DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.UINT8])
def test_max_of_other_types(rt: Runtime, dtype: DType) -> None:
    x = np.random.default_rng(2).integers(-100, 0, (2, 19, *WINDOWS[1][0])).astype(dtype.np)
    check(rt, make_attrs(WINDOWS[1], "max"), [x], rt.info.pack)


def test_epilogue(rt: Runtime) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 19, *WINDOWS[1][0])).astype(np.float32)
    attrs = make_attrs(WINDOWS[1], "average")
    residual = rng.standard_normal(make_node("Pool", attrs, [x]).y.shape).astype(np.float32)
    expr = parse_expr("add($0, $1); exp(%0)", [DType.FLOAT32] * 2)
    check(rt, {**attrs, "epilogue": expr}, [x, residual], 16)


def test_half_storage(rt: Runtime) -> None:
    x = np.random.default_rng(4).standard_normal((1, 19, *WINDOWS[1][0])).astype(np.float32)
    check(rt, make_attrs(WINDOWS[1], "average"), [x], rt.info.pack, DType.FLOAT16)
