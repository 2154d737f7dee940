"""Convolutions and matrix products on NVIDIA's matrix units, on devices that build them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.device.device_family import PTX_MMA
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.mma.mma_tile import find_tile

from ..conv.test_direct_packed import CASES, check, make_case
from ..conv_checks import check_kernel, find_kernel

TILES = [(1, 1, 1, 1, 4, 4), (2, 4, 2, 2, 1, 2), (4, 2, 1, 2, 2, 2), (2, 2, 1, 1, 8, 4)]
"""WM, WN, PW, NW, SPLIT, STAGES."""


@pytest.fixture(autouse=True)
def matrix_units(rt: Runtime) -> None:
    if PTX_MMA not in rt.info.quirks:
        pytest.skip("the device builds no inline PTX")


def tile(values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(("WM", "WN", "PW", "NW", "SPLIT", "STAGES"), values, strict=True))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] == 1])
def test_convolution(rt: Runtime, name: str) -> None:
    check(rt, "ConvGemmMma", *make_case(name), 4, DType.FLOAT16)


@pytest.mark.parametrize("name", ["3x3", "blocks", "stride", "pointwise"])
@pytest.mark.parametrize("values", TILES)
def test_convolution_tiles(rt: Runtime, name: str, values: tuple[int, ...]) -> None:
    check(rt, "ConvGemmMma", *make_case(name), 4, DType.FLOAT16, **tile(values))


def test_convolution_epilogue(rt: Runtime) -> None:
    attrs, (x, w, _) = make_case("blocks")
    shape = make_node("Conv", attrs, [x, w, None]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    check(rt, "ConvGemmMma", {**attrs, "epilogue": expr}, [x, w, None, residual], 4, DType.FLOAT16)


@pytest.mark.parametrize("sizes", [(1, 1000, 1280), (197, 768, 204), (37, 52, 8), (300, 132, 516)])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("values", [None, *TILES])
def test_product(rt: Runtime, sizes: tuple[int, int, int], trans_b: bool, values: tuple[int, ...] | None) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    bias = rng.standard_normal(n, np.float32)
    expr = parse_expr("add($0, $1)", [DType.FLOAT32] * 2)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "epilogue": expr}
    arrays = [a, np.ascontiguousarray(b.T) if trans_b else b, bias]
    node = make_node("MatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    check_kernel(rt, find_kernel("MatMul", "MatmulMma"), node, arrays, None if values is None else tile(values))


def test_every_size_has_a_tile(rt: Runtime) -> None:
    for positions in (1, 49, 3136, 100352):
        for channels in (1, 24, 1280):
            for steps in (1, 4, 288):
                assert find_tile(positions, channels, steps, rt.info)
