"""Convolutions and matrix products by Hopper's warpgroups; processors stand in for the units."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.device.device_family import PTX_MMA, PTX_WGMMA
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node
from opalite.run.execute.single_node_executable import SingleNodeExecutable

from ....helpers.plain_builds import built_plain
from ..conv.test_direct_packed import CASES, check
from ..conv_checks import check_kernel, find_kernel

TILES = [
    (256, 2, 6, 4, 1),
    (256, 3, 6, 4, 3),
    (192, 3, 4, 4, 1),
    (128, 2, 4, 4, 4),
    (128, 1, 10, 8, 1),
    (64, 1, 4, 4, 2),
    (64, 3, 2, 2, 1),
    (224, 3, 6, 4, 1),
]
"""BN, PW, STAGES, SEATS, PARTS."""

FEW_TILES = [(64, 1, 4, 4, 1), (128, 2, 2, 3, 3), (64, 3, 3, 2, 1)]
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
    return dict(zip(("BN", "PW", "STAGES", "SEATS", "PARTS"), values, strict=True))


def make_case(name: str) -> tuple[dict[str, Any], list[Any]]:
    """A row of CASES with as many input channels as make whole chunks."""
    c, m, group, spatial, kernel, strides, pads, dilations = CASES[name]
    c += -c % 32
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, c, *spatial), (m, c, *kernel), (m,))]
    return {"strides": strides, "pads": pads, "dilations": dilations, "group": group}, arrays


@pytest.mark.parametrize("name", ["3x3", "stride", "far dilated", "cropping", "rank 3"])
def test_convolution(units: Runtime, name: str) -> None:
    check(units, "ConvGemmWgmma", *make_case(name), 4, DType.FLOAT16, **tile(FEW_TILES[0]))


@pytest.mark.parametrize("values", FEW_TILES)
def test_convolution_by_tiles(units: Runtime, values: tuple[int, ...]) -> None:
    check(units, "ConvGemmWgmma", *make_case("blocks"), 4, DType.FLOAT16, **tile(values))


@pytest.mark.parametrize(
    "case, values",
    [("columns", FEW_TILES[0]), ("rows", (64, 1, 2, 2, 4)), ("outside", FEW_TILES[0]), ("many taps", (64, 1, 2, 2, 4))],
)
def test_taps_outside_of_the_picture(units: Runtime, case: str, values: tuple[int, ...]) -> None:
    """Chunks of taps that no position of a group has inside x are left out."""
    shape, kernel, dilation, pads = {
        "columns": ((5, 41), (1, 3), (1, 30), (0, 30, 0, 30)),
        "rows": ((41, 9), (3, 3), (24, 2), (24, 2, 24, 2)),
        "outside": ((6, 11), (3, 1), (9, 2), (9, 0, 9, 0)),
        "many taps": ((23, 9), (9, 4), (5, 1), (20, 1, 20, 2)),
    }[case]
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((2, 64, *shape), (24, 64, *kernel), (24,))]
    attrs = {"strides": (1, 1), "pads": pads, "dilations": dilation, "group": 1}
    check(units, "ConvGemmWgmma", attrs, arrays, 4, DType.FLOAT16, **tile(values))


@pytest.mark.parametrize("values", [FEW_TILES[0], (64, 2, 2, 2, 6)])
def test_convolution_epilogue(units: Runtime, values: tuple[int, ...]) -> None:
    attrs, (x, w, _) = make_case("blocks")
    shape = make_node("Conv", attrs, [x, w, None]).y.shape
    residual = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expr = parse_expr("add($0, $1); max(%0, 0)", [DType.FLOAT32] * 2)
    arrays = [x, w, None, residual]
    check(units, "ConvGemmWgmma", {**attrs, "epilogue": expr}, arrays, 4, DType.FLOAT16, **tile(values))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] == 1 and name != "one pixel"])
@pytest.mark.parametrize("values", TILES)
def test_convolution_on_a_gpu(gpu: Runtime, name: str, values: tuple[int, ...]) -> None:
    attrs, arrays = make_case(name)
    check(gpu, "ConvGemmWgmma", attrs, arrays, 4, DType.FLOAT16, **tile(values))


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
    check_kernel(units, find_kernel("MatMul", "MatmulWgmma"), node, arrays, tile(values))


def test_optimised(optimised: Runtime) -> None:
    node, arrays = product(70, 136, 264, False)
    check_kernel(optimised, find_kernel("MatMul", "MatmulWgmma"), node, arrays, tile(FEW_TILES[0]))
    check(optimised, "ConvGemmWgmma", *make_case("3x3"), 4, DType.FLOAT16, **tile(FEW_TILES[0]))


@pytest.mark.parametrize("values, fn", [(FEW_TILES[0], "erf"), (FEW_TILES[0], "cos"), (FEW_TILES[1], "cos")])
def test_product_with_a_long_epilogue(units: Runtime, values: tuple[int, ...], fn: str) -> None:
    """Of which results are finished one by one, unless its functions are short or parts are added up first."""
    node, arrays = product(70, 136, 264, False)
    chain = f"add($0, $1); mul(%0, 0.70710678:f32); {fn}(%1); add(%2, 1.0:f32); mul(%0, %3); mul(%4, 0.5:f32)"
    node.epilogue = parse_expr(chain, [DType.FLOAT32] * 2)
    kernel = find_kernel("MatMul", "MatmulWgmma")
    (first, *_) = kernel.launch(kernel.problem(node, units.info), tile(values))
    assert first.defines["TOGETHER"] == (1 if values[-1] == 1 and fn == "cos" else 8)
    check_kernel(units, kernel, node, arrays, tile(values))


@pytest.mark.parametrize("sizes", [(197, 768, 200), (37, 52, 8), (300, 132, 520), (1100, 260, 1096)])
@pytest.mark.parametrize("values", [None, *TILES])
def test_product_on_a_gpu(gpu: Runtime, sizes: tuple[int, int, int], values: tuple[int, ...] | None) -> None:
    node, arrays = product(*sizes, False)
    check_kernel(gpu, find_kernel("MatMul", "MatmulWgmma"), node, arrays, None if values is None else tile(values))


def test_runs_give_the_same_bits(gpu: Runtime) -> None:
    node, arrays = product(700, 520, 2056, False)
    prepared = SingleNodeExecutable(gpu, node, arrays).prepare(find_kernel("MatMul", "MatmulWgmma"), tile(TILES[0]))
    first = prepared.run()[0].tobytes()
    assert all(prepared.run()[0].tobytes() == first for _ in range(20))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that other matrix units are thought to be faster with are taken, too."""
    monkeypatch.setattr("opalite.kernels.matmul.norm_matmul_mma.warpgroup_share", lambda *_, **__: 0.0)


def normalized(m: int, n: int, k: int) -> tuple[Any, list[Any]]:
    node, (a, b, bias) = product(m, n, k, False)
    a *= np.linspace(0.1, 3, m, dtype=np.float32)[:, None]
    a += np.linspace(-2, 2, m, dtype=np.float32)[:, None]
    attrs = {"trans_a": False, "trans_b": False, "epsilon": 1e-5, "epilogue": node.epilogue}
    arrays = [a, b / np.float32(k**0.5), bias]
    return make_node("NormalizedMatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16), arrays


@pytest.mark.parametrize("sizes", [(17, 4, 8), (70, 136, 264)])
@pytest.mark.parametrize("values", [(64, 1, 4, 4, 1), (128, 2, 2, 3, 1)])
def test_product_of_normalised_rows(
    always: None, units: Runtime, sizes: tuple[int, int, int], values: tuple[int, ...]
) -> None:
    node, arrays = normalized(*sizes)
    check_kernel(units, find_kernel("NormalizedMatMul", "NormMatmulWgmma"), node, arrays, tile(values))


@pytest.mark.parametrize("fn", ["erf", "cos"])
def test_long_code_is_a_loops(units: Runtime, fn: str) -> None:
    """Of wide tiles, whose epilogue would be written out for each vector."""
    node, arrays = product(70, 136, 264, False)
    chain = f"add($0, $1); mul(%0, 0.70710678:f32); {fn}(%1); add(%2, 1.0:f32); mul(%0, %3); mul(%4, 0.5:f32)"
    node.epilogue = parse_expr(chain, [DType.FLOAT32] * 2)
    kernel, values = find_kernel("MatMul", "MatmulWgmma"), tile((128, 1, 2, 2, 1))
    (launch,) = kernel.launch(kernel.problem(node, units.info), values)
    assert launch.defines["TURN"] == 8
    check_kernel(units, kernel, node, arrays, values)


def test_parts_do_not_know_a_rows_statistics(units: Runtime) -> None:
    node, _ = normalized(600, 136, 264)
    kernel = find_kernel("NormalizedMatMul", "NormMatmulWgmma")
    problem = kernel.problem(node, units.info)
    assert "statistics" in (kernel.illegal(problem, tile((64, 1, 4, 4, 2))) or "")
    assert kernel.defaults(problem)["PARTS"] == 1


@pytest.mark.parametrize("sizes", [(197, 768, 200), (1576, 2304, 768)])
@pytest.mark.parametrize("values", [None, (256, 2, 6, 4, 1), (224, 3, 6, 4, 1), (128, 1, 10, 8, 1)])
def test_product_of_normalised_rows_on_a_gpu(
    always: None, gpu: Runtime, sizes: tuple[int, int, int], values: tuple[int, ...] | None
) -> None:
    node, arrays = normalized(*sizes)
    kernel = find_kernel("NormalizedMatMul", "NormMatmulWgmma")
    check_kernel(gpu, kernel, node, arrays, None if values is None else tile(values))
