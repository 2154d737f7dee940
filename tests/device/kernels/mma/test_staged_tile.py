"""Convolutions and matrix products on matrix units by way of local memory; processors stand in for the units."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.device.device_family import PTX_MMA, SHARED_VALUES
from opalite.ir.dtype import DType
from opalite.ir.place import packed
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Binding
from opalite.kernels.mma.staged_tile import SPACE, legal_tiles

from ....helpers.plain_builds import built_plain
from ..conv.test_direct_packed import check, make_case
from ..conv.test_transposed_packed import make_case as transposed_case
from ..conv_checks import check_kernel, find_kernel

TILES = [
    (4, 4, 2, 2, 1, 1, 3),
    (2, 1, 2, 2, 2, 2, 4),
    (1, 2, 1, 1, 4, 4, 2),
    (1, 1, 4, 1, 1, 1, 3),
    (4, 1, 1, 2, 1, 2, 2),
]

SIZED = [((65, 20, 520), values) for values in TILES]


@pytest.fixture
def optimised(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The runtime with a device that has matrix units or whose processors can stand in for them."""
    if PTX_MMA in rt.info.quirks:
        return rt
    if SHARED_VALUES in rt.info.quirks:
        pytest.skip("stand-ins use barriers, where this driver at times lets work-items share a value")
    if "Oclgrind" in rt.info.platform:
        monkeypatch.setenv("OCLGRIND_BUILD_OPTIONS", "-D__x86_64__")
    elif rt.info.family != "pocl":  # others compile for a machine of their own, which has no stand-ins
        pytest.skip("the device builds no inline PTX")
    other = copy.copy(rt)
    other.info = dataclasses.replace(
        rt.info, quirks=(*rt.info.quirks, PTX_MMA), local_mem=max(rt.info.local_mem, 49152)
    )
    return other


@pytest.fixture
def units(optimised: Runtime) -> Runtime:
    """The same; stand-ins are not optimised, which takes a second or more for each."""
    return built_plain(optimised)


def tile(values: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(SPACE, values, strict=True))


@pytest.mark.parametrize("name", ["3x3", "stride", "far dilated", "cropping", "rank 3"])
def test_convolution(units: Runtime, name: str) -> None:
    check(units, "ConvGemmMmaStaged", *make_case(name), 4, DType.FLOAT16, **tile((1, 2, 2, 1, 1, 1, 3)))


@pytest.mark.parametrize("values", TILES)
@pytest.mark.parametrize("name", ["blocks"])
def test_convolution_tiles(units: Runtime, name: str, values: tuple[int, ...]) -> None:
    check(units, "ConvGemmMmaStaged", *make_case(name), 4, DType.FLOAT16, **tile(values))


@pytest.mark.parametrize("values", [TILES[0], *TILES[2:]])
def test_neighbours_move_together(units: Runtime, values: tuple[int, ...]) -> None:
    """A pointwise convolution of images with an even number of positions, in several images."""
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((3, 70, 6, 7), (53, 70, 1, 1), (53,))]
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    check(units, "ConvGemmMmaStaged", attrs, arrays, 4, DType.FLOAT16, **tile(values))


@pytest.mark.parametrize("name", ["2x2", "4x4", "extending", "sparse", "rank 1"])
def test_transposed_convolution(units: Runtime, name: str) -> None:
    check_transposed(units, *transposed_case(name), **tile((1, 2, 2, 1, 1, 1, 3)))


def test_transposed_convolution_epilogue(units: Runtime) -> None:
    """Of as many positions as the input, so that neighbours move together."""
    attrs, (x, w, b) = transposed_case("2x2")
    x = x[:, :, :6]
    shape = make_node("ConvTranspose", attrs, [x, w, b]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    check_transposed(units, {**attrs, "epilogue": expr}, [x, w, b, residual], **tile(TILES[2]))


def test_transposed_convolutions_that_are_left_to_others(units: Runtime) -> None:
    kernel = find_kernel("ConvTranspose", "ConvTransposeGemmMmaStaged")
    for name, why in (("odd", "dilated"), ("whole groups", "groups")):
        attrs, arrays = transposed_case(name)
        node = make_node("ConvTranspose", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
        assert why in (kernel.refuse(kernel.problem(node, units.info)) or "")


def check_transposed(rt: Runtime, attrs: dict[str, Any], arrays: list[Any], **params: int) -> None:
    layout = packed(4)
    binding = Binding((layout, None, None, *(layout for _ in arrays[3:])), (layout,))
    node = make_node("ConvTranspose", attrs, arrays, const=(1, 2), binding=binding, precision=DType.FLOAT16)
    check_kernel(rt, find_kernel("ConvTranspose", "ConvTransposeGemmMmaStaged"), node, arrays, params)


def test_convolution_of_many_taps(units: Runtime) -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 17, 19), (24, 3, 7, 7), (24,))]
    attrs = {"strides": (2, 2), "pads": (3, 3, 3, 3), "dilations": (1, 1), "group": 1}
    check(units, "ConvGemmMmaStaged", attrs, arrays, 4, DType.FLOAT16, **tile((2, 1, 1, 2, 1, 2, 2)))


def test_convolution_epilogue(units: Runtime) -> None:
    attrs, (x, w, _) = make_case("blocks")
    shape = make_node("Conv", attrs, [x, w, None]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    check(
        units,
        "ConvGemmMmaStaged",
        {**attrs, "epilogue": expr},
        [x, w, None, residual],
        4,
        DType.FLOAT16,
        **tile(TILES[2]),
    )


@pytest.mark.parametrize(("sizes", "values"), [((197, 132, 200), None), ((37, 52, 8), TILES[3]), *SIZED])
@pytest.mark.parametrize("trans_b", [False, True])
def test_product(units: Runtime, sizes: tuple[int, int, int], trans_b: bool, values: tuple[int, ...] | None) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    expr = parse_expr("add($0, $1); add(%0, $2)", [DType.FLOAT32] * 3)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "epilogue": expr}
    arrays = [a, np.ascontiguousarray(b.T) if trans_b else b, bias, residual]
    node = make_node("MatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    check_kernel(
        units, find_kernel("MatMul", "MatmulMmaStaged"), node, arrays, None if values is None else tile(values)
    )


NORMAL_TILES = [None, (2, 1, 2, 2, 2, 2, 3), (1, 2, 1, 2, 2, 2, 3), (1, 1, 4, 1, 1, 1, 3), (1, 3, 2, 1, 4, 4, 2)]


@pytest.mark.parametrize("trans_b, values", [(True, None), *((i % 2 == 1, t) for i, t in enumerate(NORMAL_TILES))])
def test_product_of_normalised_rows(units: Runtime, trans_b: bool, values: tuple[int, ...] | None) -> None:
    """Rows of means and deviations of their own; one is constant."""
    rng = np.random.default_rng(0)
    m, n, k = 53, 68, 200
    a = rng.standard_normal((m, k), np.float32) * rng.uniform(0.1, 3, (m, 1)).astype(np.float32)
    a += rng.uniform(-4, 4, (m, 1)).astype(np.float32)
    a[7] = 0.5
    b = rng.standard_normal((k, n), np.float32) / k**0.5
    a, b = a.astype(np.float16).astype(np.float32), b.astype(np.float16).astype(np.float32)
    bias = rng.standard_normal(n, np.float32)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "epsilon": 1e-5}
    attrs["epilogue"] = parse_expr("add($0, $1)", [DType.FLOAT32] * 2)
    arrays = [a, np.ascontiguousarray(b.T) if trans_b else b, bias]
    node = make_node("NormalizedMatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    params = None if values is None else tile(values)
    check_kernel(units, find_kernel("NormalizedMatMul", "NormMatmulMmaStaged"), node, arrays, params)


def test_tiles_that_are_chosen_from(units: Runtime) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((70, 264), np.float32), rng.standard_normal((264, 36), np.float32)
    node = make_node("MatMul", {"trans_a": False, "trans_b": False}, [a, b], const=(1,), precision=DType.FLOAT16)
    tiles = list(legal_tiles(units.info))
    assert len(tiles) > 12
    for params in tiles[::8]:
        check_kernel(units, find_kernel("MatMul", "MatmulMmaStaged"), node, [a, b], params)


def test_optimised(optimised: Runtime) -> None:
    """A program of each kernel, of the tile that is compiled soonest."""
    test_product(optimised, (37, 52, 8), False, TILES[3])
    test_convolution_tiles(optimised, "blocks", TILES[3])
    test_product_of_normalised_rows(optimised, False, NORMAL_TILES[2])
