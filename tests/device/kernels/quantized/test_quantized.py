"""Products with, and rows of, matrices of a few bits against the reference: blocks, zero points, sizes, epilogues."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.trace_function import Sym, trace
from opalite.ir.device.device_family import BYTE_FOURS, BYTE_PAIRS
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.kernels.quantized.dequantize_then_matmul import DequantizeThenMatmul

from ....helpers.pairs import pairwise, pairwise_points
from ..conv_checks import as_gpu

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(17)
KERNELS = [pytest.param(k, id=k.name) for k in kernels_for("QuantizedMatMul")]
OWN = [
    p for p, k in zip(KERNELS, kernels_for("QuantizedMatMul"), strict=True) if not isinstance(k, DequantizeThenMatmul)
]
"""Without those whose parameters are a product's of floats."""

GATHERS = [pytest.param(k, id=k.name) for k in kernels_for("QuantizedGather")]


def levels(
    n: int, k: int, bits: int, block: int, zeros: str, signed: bool = False, half: bool = False
) -> tuple[Array, Array, Array | None]:
    """(integers [n, k], scales, zero points): `zeros` is none, one, bytes or floats."""
    low = -(1 << (bits - 1)) if signed else 0
    kind = np.int8 if signed else np.uint8
    q = rng.integers(low, low + (1 << bits), (n, k)).astype(kind)
    shape = (n, -(-k // block))
    scale = (rng.random(shape) + 0.5).astype(np.float16 if half else np.float32)
    given = rng.integers(low, low + (1 << bits), shape)
    zero = {"none": None, "one": np.array([[low + 3]], kind), "bytes": given.astype(kind)}.get(zeros)
    if zeros == "floats":
        zero = (given + 0.25).astype(np.float32)
    return q, scale, zero


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
    params: dict[str, Any] | None = None,
    precision: DType | None = None,
    tolerance: float = 3e-6,
) -> None:
    """The product is the float64 one within `tolerance` of what the sum's terms add up to."""
    q, scale, zero = levels(n, k, bits, block, zeros, signed, half)
    a = rng.standard_normal((m, k)).astype(np.float32)
    attrs = {"trans_a": False, "trans_b": trans_b, "bits": bits, "block": block}
    arrays = [a, q if trans_b else np.ascontiguousarray(q.T), scale, zero]
    node = make_node("QuantizedMatMul", attrs, arrays, const=(1, 2, 3), precision=precision)
    problem = kernel.problem(node, rt.info)
    why = kernel.refuse(problem) or (params and kernel.illegal(problem, params))
    if why:
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays, params)
    (want,) = node.op.reference([a.astype(np.float64), *arrays[1:]])
    assert np.abs(got - want).max(initial=0) <= tolerance * np.abs(want).max(initial=1e-30)


@pytest.mark.parametrize("m, n, k", [(1, 131, 101), (2, 64, 64), (5, 67, 96), (37, 53, 160), (1, 1, 1), (150, 70, 129)])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kernel", KERNELS)
def test_sizes(rt: Runtime, kernel: Kernel, m: int, n: int, k: int, bits: int) -> None:
    check(rt, kernel, m, n, k, bits, 32)


@pytest.mark.parametrize(
    "blocks, zeros, form",
    pairwise(
        [(4, 16), (4, 128), (8, 1000), (2, 64)], ["none", "one", "bytes", "floats"], [(False, True), (True, False)]
    ),
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_zero_points(rt: Runtime, kernel: Kernel, blocks: tuple[int, int], zeros: str, form: tuple[bool, bool]) -> None:
    (bits, block), (signed, trans_b) = blocks, form
    check(rt, kernel, 3, 75, 203, bits, block, zeros, signed=signed, trans_b=trans_b)


@pytest.mark.parametrize("kernel", KERNELS)
def test_half_storage_and_scales(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, 7, 67, 200, half=True)
    check(rt, kernel, 7, 67, 200, half=True, precision=DType.FLOAT16, tolerance=2e-3)


NF4 = tuple(float(v) for v in np.sort(rng.uniform(-1, 1, 16)).astype(np.float32))


@pytest.mark.parametrize(
    "m, n, k, lanes, permutes",
    [(1, 131, 104, 16, True), (9, 67, 96, 8, True), (1, 70, 64, 8, False), (37, 75, 203, 16, False)],
)
@pytest.mark.parametrize("kernel", OWN)
def test_values_of_a_table(rt: Runtime, kernel: Kernel, m: int, n: int, k: int, lanes: int, permutes: bool) -> None:
    """Picked by vpermps of a processor's registers, whole or in halves, and by an index."""
    q, scale, _ = levels(n, k, 4, 32, "none")
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32, "table": NF4}
    arrays: list[Array | None] = [rng.standard_normal((m, k)).astype(np.float32), q, scale, None]
    node = make_node("QuantizedMatMul", attrs, arrays, const=(1, 2))
    other = copy.copy(rt)
    quirks = tuple(x for x in rt.info.quirks if permutes or x not in (BYTE_FOURS, BYTE_PAIRS))
    other.info = dataclasses.replace(rt.info, quirks=quirks, native_float_width=min(lanes, rt.info.native_float_width))
    if why := kernel.refuse(kernel.problem(node, other.info)):
        pytest.skip(why)
    (got,) = run_node(other, kernel, node, arrays)
    want = arrays[0].astype(np.float64) @ (np.array(NF4)[q] * np.repeat(scale, 32, 1)[:, :k].astype(np.float64)).T
    assert np.abs(got - want).max() <= 3e-6 * np.abs(want).max()
    np.testing.assert_allclose(node.op.reference(arrays)[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("m", [1, 9])
@pytest.mark.parametrize("kernel", OWN)
def test_every_parameter(rt: Runtime, kernel: Kernel, m: int) -> None:
    q, scale, zero = levels(83, 136, 4, 32, "bytes")
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32}
    a = rng.standard_normal((m, 136)).astype(np.float32)
    node = make_node("QuantizedMatMul", attrs, [a, q, scale, zero], const=(1, 2, 3))
    problem = kernel.problem(node, rt.info)
    if why := kernel.refuse(problem):
        pytest.skip(why)
    (want,) = node.op.reference([a.astype(np.float64), q, scale, zero])
    for params in pairwise_points(kernel.points(problem)):
        (got,) = run_node(rt, kernel, node, [a, q, scale, zero], params)
        assert np.abs(got - want).max() <= 3e-6 * np.abs(want).max(), params


@pytest.mark.parametrize("shape", [(2, 11, 64), (1, 96)])
@pytest.mark.parametrize("kernel", KERNELS)
def test_epilogue(rt: Runtime, kernel: Kernel, shape: tuple[int, ...]) -> None:
    def chain(x: Sym, bias: Sym, residual: Sym) -> Sym:
        return (x + bias).call("max", 0.0) * residual

    q, scale, _ = levels(37, shape[-1], 4, 32, "none")
    a = rng.standard_normal(shape).astype(np.float32)
    bias, residual = (rng.standard_normal(s).astype(np.float32) for s in ((37,), (*shape[:-1], 37)))
    attrs = {"trans_a": False, "trans_b": True, "bits": 4, "block": 32, "epilogue": trace(chain, *[DType.FLOAT32] * 3)}
    arrays = [a, q, scale, None, bias, residual]
    node = make_node("QuantizedMatMul", attrs, arrays, const=(1, 2, 4))
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays)
    (product,) = node.op.reference([a.astype(np.float64), q, scale, None])
    np.testing.assert_allclose(got, np.maximum(product + bias, 0) * residual, atol=1e-4 * np.abs(product).max())


@pytest.mark.parametrize("kernel", KERNELS)
def test_sums_stay_accurate(rt: Runtime, kernel: Kernel) -> None:
    """16384 terms of one sign, one scale for all of them."""
    q, scale, zero = levels(33, 16384, 8, 16384, "one")
    a = rng.random((3, 16384), np.float32)
    attrs = {"trans_a": False, "trans_b": True, "bits": 8, "block": 16384}
    node = make_node("QuantizedMatMul", attrs, [a, q, scale, zero], const=(1, 2, 3))
    if why := kernel.refuse(kernel.problem(node, rt.info)):
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, [a, q, scale, zero])
    (want,) = node.op.reference([a.astype(np.float64), q, scale, zero])
    assert np.abs(got / want - 1).max() < 2e-5


@pytest.mark.parametrize(
    "rows, bits, block",
    [
        (1, 4, 24),
        (1, 2, 48),
        (2, 4, 16),
        (2, 8, 4),
        (3, 8, 12),
        (7, 2, 48),
        (7, 4, 96),
        (16, 8, 4),
        (16, 4, 24),
        (21, 4, 16),
    ],
)
def test_few_rows(rt: Runtime, rows: int, bits: int, block: int) -> None:
    """Blocks that end inside what a work-item reads at once, and a last one that is not whole."""
    kernel = next(k for k in kernels_for("QuantizedMatMul") if k.name == "QuantizedGemvGpu")
    check(rt, kernel, rows, 51, 409, bits, block, "bytes" if rows % 2 else "floats")


@pytest.mark.parametrize("zeros", ["none", "bytes"])
@pytest.mark.parametrize("bits, trans_b", [(4, True), (8, False), (2, True)])
def test_panels_of_a_gpu(rt: Runtime, bits: int, trans_b: bool, zeros: str) -> None:
    """The general kernels and those of rows, on the words that a GPU's products read."""
    q, scale, zero = levels(69, 141, bits, 32, zeros)
    indices, gpu = np.array([0, 68, -2, 33]), as_gpu(rt)
    for kernel in kernels_for("QuantizedMatMul"):
        if kernel.tier == "generic":
            check(gpu, kernel, 5, 69, 141, bits, 32, zeros, trans_b=trans_b)
    node = make_node("QuantizedGather", {"bits": bits, "block": 32}, [q, indices, scale, zero], const=(0, 2, 3))
    for kernel in kernels_for("QuantizedGather"):
        (got,) = run_node(gpu, kernel, node, [q, indices, scale, zero])
        np.testing.assert_allclose(got, node.op.reference([q, indices, scale, zero])[0], rtol=1e-6)


@pytest.mark.parametrize("index", [np.int64, np.int32])
@pytest.mark.parametrize("zeros", ["none", "one", "bytes", "floats"])
@pytest.mark.parametrize("bits, block, columns", [(4, 32, 100), (8, 16, 67), (2, 200, 77)])
@pytest.mark.parametrize("kernel", GATHERS)
def test_gather(rt: Runtime, kernel: Kernel, bits: int, block: int, columns: int, zeros: str, index: type) -> None:
    q, scale, zero = levels(150, columns, bits, block, zeros, signed=zeros == "bytes")
    indices = np.array([[0, 149, -1, 64], [63, -150, 999, 5]]).astype(index)
    node = make_node("QuantizedGather", {"bits": bits, "block": block}, [q, indices, scale, zero], const=(0, 2, 3))
    (got,) = run_node(rt, kernel, node, [q, indices, scale, zero])
    np.testing.assert_allclose(got, node.op.reference([q, indices, scale, zero])[0], rtol=1e-6)
