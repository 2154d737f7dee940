"""Matrix products by Hopper's warpgroups; processors stand in for the units."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.text import parse_expr
from opalite.ir.device_family import PTX_MMA, PTX_WGMMA
from opalite.ir.dtype import DType
from opalite.run.execute.node import make_node
from opalite.run.execute.one_node import OneNode

from ....helpers.plain_builds import built_plain
from ..conv_checks import check_kernel, find_kernel

TILES = [(256, 2, 6, 4), (256, 3, 6, 4), (192, 3, 4, 4), (128, 2, 4, 4), (128, 1, 8, 3), (64, 1, 4, 4), (64, 3, 2, 2)]
"""BN, PW, STAGES, SEATS."""

FEW_TILES = [(64, 1, 4, 4), (128, 2, 2, 3), (64, 3, 3, 2)]
"""For processors."""


@pytest.fixture
def optimised(rt: Runtime) -> Runtime:
    """The runtime with a device that has warpgroups or whose processors can stand in for them."""
    if PTX_WGMMA in rt.info.quirks:
        return rt
    if rt.info.family != "pocl" or rt.info.local_mem < 1 << 17:
        pytest.skip("the driver takes no PTX with wgmma for its GPU")
    other = copy.copy(rt)
    other.info = dataclasses.replace(rt.info, quirks=(*rt.info.quirks, PTX_MMA, PTX_WGMMA))
    return other


@pytest.fixture
def units(optimised: Runtime) -> Runtime:
    """The same; stand-ins are not optimised."""
    return built_plain(optimised)


@pytest.fixture
def gpu(rt: Runtime) -> Runtime:
    if PTX_WGMMA not in rt.info.quirks:
        pytest.skip("the driver takes no PTX with wgmma for its GPU")
    return rt


def tile(values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(("BN", "PW", "STAGES", "SEATS"), values, strict=True))


def product(m: int, n: int, k: int, trans_b: bool) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    bias = rng.standard_normal(n, np.float32)
    expr = parse_expr("add($0, $1)", [DType.FLOAT32] * 2)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "epilogue": expr}
    arrays = [a, np.ascontiguousarray(b.T) if trans_b else b, bias]
    return make_node("MatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16), arrays


@pytest.mark.parametrize("sizes", [(17, 4, 8), (70, 136, 264), (200, 68, 40)])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("values", FEW_TILES)
def test_product(units: Runtime, sizes: tuple[int, int, int], trans_b: bool, values: tuple[int, ...]) -> None:
    node, arrays = product(*sizes, trans_b)
    check_kernel(units, find_kernel("MatMul", "MatmulWarpgroup"), node, arrays, tile(values))


def test_optimised(optimised: Runtime) -> None:
    node, arrays = product(70, 136, 264, False)
    check_kernel(optimised, find_kernel("MatMul", "MatmulWarpgroup"), node, arrays, tile(FEW_TILES[0]))


@pytest.mark.parametrize("sizes", [(197, 768, 200), (37, 52, 8), (300, 132, 520), (1100, 260, 1096)])
@pytest.mark.parametrize("values", [None, *TILES])
def test_product_on_a_gpu(gpu: Runtime, sizes: tuple[int, int, int], values: tuple[int, ...] | None) -> None:
    node, arrays = product(*sizes, False)
    check_kernel(gpu, find_kernel("MatMul", "MatmulWarpgroup"), node, arrays, None if values is None else tile(values))


def test_runs_give_the_same_bits(gpu: Runtime) -> None:
    node, arrays = product(700, 520, 2056, False)
    prepared = OneNode(gpu, node, arrays).prepare(find_kernel("MatMul", "MatmulWarpgroup"), tile(TILES[0]))
    first = prepared.run()[0].tobytes()
    assert all(prepared.run()[0].tobytes() == first for _ in range(20))
