"""Products with matrices of a few bits that are widened for kernels on floats; processors stand in for matrix units."""

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

from ..conv_checks import as_gpu, check_kernel, find_kernel
from .test_quantized import levels

TILES: dict[str, dict[str, int]] = {
    "DequantizeThenMmaStaged": {"WM": 1, "WN": 2, "PW": 1, "NW": 1, "SPLIT": 4, "SL": 4, "STAGES": 2},
    "DequantizeThenWgmma": {"BN": 64, "PW": 1, "STAGES": 4, "SEATS": 4},
    "DequantizeThenLocalTile": {},
    "DequantizeThenRegisterTile": {},
}


@pytest.fixture(params=["panels of a CPU", "panels of a GPU"])
def units(rt: Runtime, request: pytest.FixtureRequest) -> Runtime:
    """The runtime with a device that has matrix units or whose processors can stand in for them."""
    if PTX_MMA in rt.info.quirks:
        return rt
    if rt.info.family != "pocl":
        pytest.skip("the device builds no inline PTX")
    other = as_gpu(rt) if request.param == "panels of a GPU" else copy.copy(rt)
    quirks = (*rt.info.quirks, PTX_MMA, *((PTX_WGMMA,) if rt.info.local_mem >= 1 << 17 else ()))
    other.info = dataclasses.replace(other.info, quirks=quirks, local_mem=max(rt.info.local_mem, 49152))
    return other


@pytest.mark.parametrize(
    "bits, block, zeros, trans_b, half",
    [
        (4, 32, "bytes", True, False),
        (8, 16, "none", False, True),
        (2, 1 << 12, "one", True, False),
        (4, 24, "floats", True, True),
        (4, 32, "table", True, False),
    ],
)
@pytest.mark.parametrize("name", TILES)
def test_product(units: Runtime, name: str, bits: int, block: int, zeros: str, trans_b: bool, half: bool) -> None:
    """K is no whole number of panels' words, stages or chunks, nor is N one of panels or tiles."""
    kernel = find_kernel("QuantizedMatMul", name)
    m, n, k = 37, 68, 200
    q, scale, zero = levels(n, k, bits, block, "none" if zeros == "table" else zeros, zeros == "one", half)
    rng = np.random.default_rng(4)
    a, bias = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    residual = rng.standard_normal((m, n)).astype(np.float32)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "bits": bits, "block": block}
    if zeros == "table":
        attrs["table"] = tuple(float(v) for v in np.linspace(-1, 0.9, 16, dtype=np.float32) ** 3)
    attrs["epilogue"] = parse_expr("add($0, $1); add(%0, $2)", [DType.FLOAT32] * 3)
    arrays = [a, q if trans_b else np.ascontiguousarray(q.T), scale, zero, bias, residual]
    node = make_node("QuantizedMatMul", attrs, arrays, const=(1, 2, 3, 4), precision=DType.FLOAT16)
    if name == "DequantizeThenWgmma" and PTX_WGMMA not in units.info.quirks:
        pytest.skip("the device has no warpgroups, nor memory for stand-ins")
    check_kernel(units, kernel, node, arrays, TILES[name])


@pytest.mark.parametrize("values", [(1, 1, 1, 1, 4, 4), (2, 4, 2, 2, 1, 2)])
def test_operands_straight_into_registers(rt: Runtime, values: tuple[int, ...]) -> None:
    if PTX_MMA not in rt.info.quirks:
        pytest.skip("the device builds no inline PTX")
    q, scale, zero = levels(132, 516, 4, 32, "bytes")
    a = np.random.default_rng(4).standard_normal((37, 516)).astype(np.float32)
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32}
    node = make_node("QuantizedMatMul", attrs, [a, q, scale, zero], const=(1, 2, 3), precision=DType.FLOAT16)
    params = dict(zip(("WM", "WN", "PW", "NW", "SPLIT", "STAGES"), values, strict=True))
    check_kernel(rt, find_kernel("QuantizedMatMul", "DequantizeThenMma"), node, [a, q, scale, zero], params)
