"""Convolutions whose sums are shared out over work-items, as on a GPU, against their reference."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node

from ..conv_checks import as_gpu
from .test_direct_packed import CASES, check, make_case

TILES = [(32, 1, 4, 4, 4), (16, 8, 1, 2, 1), (64, 2, 2, 1, 2)]
"""LX, SPLIT, TP, TB, UNROLL."""


@pytest.mark.parametrize("name", CASES)
def test_defaults(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), "ConvSplitK", *make_case(name), 4)


@pytest.mark.parametrize("name", ["3x3", "stride", "whole groups", "rank 3"])
@pytest.mark.parametrize("tile", TILES)
def test_tiles(rt: Runtime, name: str, tile: tuple[int, ...]) -> None:
    params = dict(zip(("LX", "SPLIT", "TP", "TB", "UNROLL"), tile, strict=True))
    check(as_gpu(rt), "ConvSplitK", *make_case(name), 4, **params)


@pytest.mark.parametrize("name", ["3x3", "pointwise"])
def test_half_storage(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), "ConvSplitK", *make_case(name), 4, DType.FLOAT16)


def test_epilogue_without_bias(rt: Runtime) -> None:
    attrs, (x, w, _) = make_case("3x3")
    shape = make_node("Conv", attrs, [x, w, None]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    check(as_gpu(rt), "ConvSplitK", {**attrs, "epilogue": expr}, [x, w, None, residual], 4)
