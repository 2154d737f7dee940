"""Products of rows that are rounded to bytes: within what rounding allows, for each element of the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.trace_function import Sym, trace
from opalite.ir.device.device_family import BYTE_FOURS
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.kernels.quantized.dynamic_quantized_matmul import DynamicQuantizedMatmul
from opalite.kernels.quantized.quantized_matmul_cpu import scale_group
from opalite.ops.quantized_matmul import dequantize_blocks

from .test_quantized import Array, levels

rng = np.random.default_rng(23)
KERNELS = [pytest.param(k, id=k.name) for k in kernels_for("QuantizedMatMul") if isinstance(k, DynamicQuantizedMatmul)]


def allowed(a: Array, q: Array, scale: Array, zero: Array | None, block: int) -> Array:
    """What rounding a to 8 bits may change: half a step of its group times the weight, summed; and sums' own."""
    k, size = a.shape[-1], scale_group(block, q.shape[1])
    weights = np.abs(dequantize_blocks(q, scale, zero, block))
    most = np.stack([np.abs(a[:, i : i + size]).max(-1) for i in range(0, k, size)], -1)
    steps = np.repeat(most / 254, size, -1)[:, :k]
    bound: Array = (steps * 1.0001 + 3e-6 * np.abs(a)) @ weights.T
    return bound


def check(
    rt: Runtime,
    kernel: Kernel,
    m: int,
    n: int,
    k: int,
    bits: int = 4,
    block: int = 32,
    zeros: str = "none",
    *,
    signed: bool = False,
    half: bool = False,
    trans_b: bool = True,
    precision: DType | None = None,
    every: bool = False,
) -> None:
    """Each element lies within `allowed` of the float64 product."""
    q, scale, zero = levels(n, k, bits, block, zeros, signed, half)
    a = rng.standard_normal((m, k)).astype(np.float32)
    attrs = {"trans_a": False, "trans_b": trans_b, "bits": bits, "block": block, "rounds": True}
    arrays = [a, q if trans_b else np.ascontiguousarray(q.T), scale, zero]
    node = make_node("QuantizedMatMul", attrs, arrays, const=(1, 2, 3), precision=precision)
    problem = kernel.problem(node, rt.info)
    if why := kernel.refuse(problem):
        pytest.skip(why)
    (want,) = node.op.reference([a.astype(np.float64), *arrays[1:]])
    bound = allowed(a, q, scale, zero, block)
    if precision is DType.FLOAT16:
        bound = bound + 2e-3 * np.abs(want).max()
    for params in kernel.points(problem) if every else [None]:
        (got,) = run_node(rt, kernel, node, arrays, params)
        assert (np.abs(got - want) <= bound).all(), params
        # What is rounded differs: floats would not have been as far off.
        assert not every or np.abs(got - want).max() > 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("m, n, k", [(1, 131, 101), (2, 64, 64), (5, 67, 96), (37, 53, 160), (1, 1, 1), (150, 70, 129)])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kernel", KERNELS)
def test_sizes(rt: Runtime, kernel: Kernel, m: int, n: int, k: int, bits: int) -> None:
    check(rt, kernel, m, n, k, bits, 32)


@pytest.mark.parametrize("zeros", ["none", "one", "bytes", "floats"])
@pytest.mark.parametrize("signed, trans_b", [(False, True), (True, False)])
@pytest.mark.parametrize("bits, block", [(4, 16), (4, 256), (8, 1000), (2, 64)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_zero_points(
    rt: Runtime, kernel: Kernel, bits: int, block: int, zeros: str, signed: bool, trans_b: bool
) -> None:
    check(rt, kernel, 3, 75, 603, bits, block, zeros, signed=signed, trans_b=trans_b)


@pytest.mark.parametrize("kernel", KERNELS)
def test_half_storage_and_scales(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, 7, 67, 200, half=True)
    check(rt, kernel, 7, 67, 200, half=True, precision=DType.FLOAT16)


@pytest.mark.parametrize("m", [1, 9])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_parameter(rt: Runtime, kernel: Kernel, m: int) -> None:
    check(rt, kernel, m, 83, 136, 4, 32, "bytes", every=True)


@pytest.mark.parametrize("kernel", KERNELS)
def test_pairs_in_16_bits(rt: Runtime, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors with AVX2 or AVX-512 and no VNNI; sums of the largest products do not overflow."""
    if not rt.info.byte_dots:
        pytest.skip("no sums of products of bytes")
    info = replace(rt.info, quirks=tuple(q for q in rt.info.quirks if q != BYTE_FOURS))
    monkeypatch.setattr(rt, "info", info)
    k = 160
    q, scale = np.full((70, k), 15, np.uint8), np.ones((70, k // 32), np.float32)
    a = np.stack([np.ones(k), -np.ones(k), rng.standard_normal(k)]).astype(np.float32)
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32, "rounds": True}
    node = make_node("QuantizedMatMul", attrs, [a, q, scale, None], const=(1, 2))
    problem = kernel.problem(node, info)
    if why := kernel.refuse(problem):
        pytest.skip(why)
    (want,) = node.op.reference([a.astype(np.float64), q, scale, None])
    assert kernel.launch(problem, kernel.defaults(problem))[-1].defines["DOTS"] == 1
    (got,) = run_node(rt, kernel, node, [a, q, scale, None])
    assert (np.abs(got - want) <= allowed(a, q, scale, None, 32)).all()
    assert np.array_equal(got[:2], want[:2].astype(np.float32))


@pytest.mark.parametrize("what", [np.nan, np.inf, 1e-42, 0.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers_at_the_edges(rt: Runtime, kernel: Kernel, what: float) -> None:
    """A row with NaN or infinity stays without a number, others are what they are; zeros and denormals give no NaN."""
    q, scale, _ = levels(66, 96, 4, 32, "none")
    a = np.zeros((3, 96), np.float32)
    a[0, :32], a[2] = what, 1
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32, "rounds": True}
    node = make_node("QuantizedMatMul", attrs, [a, q, scale, None], const=(1, 2))
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, [a, q, scale, None])
    (want,) = node.op.reference([a.astype(np.float64), q, scale, None])
    assert not np.isfinite(got[0]).any() if not np.isfinite(what) else np.abs(got[0]).max() < 1e-38
    np.testing.assert_allclose(got[1:], want[1:], rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 11, 64), (1, 96)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_epilogue(rt: Runtime, kernel: Kernel, shape: tuple[int, ...]) -> None:
    def chain(x: Sym, bias: Sym, residual: Sym) -> Sym:
        return (x + bias).call("max", 0.0) * residual

    q, scale, _ = levels(37, shape[-1], 4, 32, "none")
    a = rng.standard_normal(shape).astype(np.float32)
    bias, residual = (rng.standard_normal(s).astype(np.float32) for s in ((37,), (*shape[:-1], 37)))
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32, "rounds": True}
    attrs["epilogue"] = trace(chain, *[DType.FLOAT32] * 3)
    arrays: list[Any] = [a, q, scale, None, bias, residual]
    node = make_node("QuantizedMatMul", attrs, arrays, const=(1, 2, 4))
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays)
    (product,) = node.op.reference([a.astype(np.float64), q, scale, None])
    bound = allowed(a.reshape(-1, shape[-1]), q, scale, None, 32).reshape(product.shape)
    want = np.maximum(product + bias, 0) * residual
    assert (np.abs(got - want) <= bound * np.abs(residual) + 1e-5).all()
