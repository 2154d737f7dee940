"""Convolutions by tiles in local memory, as on a GPU, against their reference."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.fma.tile_parameters import SPACE

from ..conv_checks import as_gpu
from .test_direct_packed import CASES, check, make_case

TILES = [
    (8, 8, 8, 8, 8, 1, 2, 1, 16),
    (16, 8, 8, 4, 16, 2, 1, 2, 4),  # shares, one buffer, parts
    (8, 4, 4, 4, 8, 8, 2, 8, 8),  # eight shares, more parts than slabs
    (16, 4, 8, 4, 16, 1, 2, 1, 16),  # more positions than work-items
    (4, 16, 4, 8, 4, 2, 1, 1, 16),  # a quad is fetched by some of the work-items
]
"""RY, CX, TM, TN, BK, SPLIT, BUFFERS, PARTS, UNROLL."""


@pytest.mark.parametrize("name", CASES)
def test_defaults(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), "ConvGemmLocal", *make_case(name), 4)


TILED = ["3x3", "stride", "whole groups", "rank 3", "pointwise", "chunks"]


@pytest.mark.parametrize("name, tile", [(TILED[(i + j) % 6], tile) for i, tile in enumerate(TILES) for j in (0, 2, 3)])
def test_tiles(rt: Runtime, name: str, tile: tuple[int, ...]) -> None:
    check(as_gpu(rt), "ConvGemmLocal", *make_case(name), 4, **dict(zip(SPACE, tile, strict=True)))


@pytest.mark.parametrize("name", ["3x3", "pointwise"])
def test_half_storage(rt: Runtime, name: str) -> None:
    check(as_gpu(rt), "ConvGemmLocal", *make_case(name), 4, DType.FLOAT16)


def test_epilogue_without_bias(rt: Runtime) -> None:
    attrs, (x, w, _) = make_case("3x3")
    shape = make_node("Conv", attrs, [x, w, None]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    check(as_gpu(rt), "ConvGemmLocal", {**attrs, "epilogue": expr}, [x, w, None, residual], 4)
