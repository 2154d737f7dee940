"""Products with the matrices of picked experts against the reference: sizes, bits, zero points, epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.expression import evaluate
from opalite.expr.trace_function import Sym, trace
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for

from ....helpers.pairs import pairwise, pairwise_points
from ..conv_checks import as_gpu

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(23)
KERNELS = [pytest.param(k, id=k.name) for k in kernels_for("ExpertMatMul")]


def arrays_of(
    tokens: int,
    slots: int,
    experts: int,
    n: int,
    k: int,
    bits: int,
    block: int,
    zeros: str = "bytes",
    shared: bool = True,
) -> list[Array | None]:
    """x, picks (some counted from the end, some beyond it), w, bias, scale, zero."""
    x = rng.standard_normal((tokens, k) if shared else (tokens, slots, k)).astype(np.float32)
    picks = rng.integers(-experts - 1, experts + 1, (tokens, slots))
    bias = rng.standard_normal(experts * n).astype(np.float32)
    if not bits:
        return [x, picks, rng.standard_normal((experts * n, k)).astype(np.float32), bias, None, None]
    shape = (experts * n, -(-k // block))
    w, given = (rng.integers(0, 1 << bits, s).astype(np.uint8) for s in ((experts * n, k), shape))
    scale = (rng.random(shape) + 0.5).astype(np.float32)
    zero = {"none": None, "one": given[:1, :1], "bytes": given, "floats": given.astype(np.float32) + 0.25}[zeros]
    return [x, picks, w, bias, scale, zero]


def check(
    rt: Runtime,
    kernel: Kernel,
    arrays: list[Array | None],
    attrs: dict[str, Any],
    all_points: bool = False,
    **more: Any,
) -> None:
    const = [i for i in (2, 3, 4, 5) if arrays[i] is not None]
    node = make_node("ExpertMatMul", attrs, arrays, const=const, precision=more.get("precision"))
    problem = kernel.problem(node, rt.info)
    if why := kernel.refuse(problem):
        pytest.skip(why)
    x = arrays[0]
    assert x is not None
    (want,) = node.op.reference([x.astype(np.float64), *arrays[1 : node.op.arity]])
    if node.epilogue is not None:
        operands = [a for a in arrays[node.op.arity :] if a is not None]
        want = evaluate(node.epilogue, [want.astype(np.float32), *operands], want.shape)
    # What a result of one term that cancels is measured by: its bias, and a term of the largest integer.
    largest = [np.abs(v).max(initial=0) for v in (want, arrays[3], x) if v is not None]
    if arrays[4] is not None:
        largest[-1] *= float(arrays[4].max()) * (1 << attrs["bits"])
    most = max(largest)
    for params in pairwise_points(kernel.points(problem)) if all_points else [kernel.defaults(problem)]:
        (got,) = run_node(rt, kernel, node, arrays, params)
        assert np.abs(got - want).max() <= more.get("tolerance", 3e-6) * most, params


@pytest.mark.parametrize(
    "sizes, bits, zeros",
    pairwise(
        [(1, 2, 4, 64, 64), (1, 1, 1, 1, 1), (7, 3, 5, 67, 101), (40, 2, 3, 33, 300), (3, 4, 9, 131, 77)],
        [0, 2, 4, 8],
        ["none", "one", "bytes", "floats"],
    ),
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_sizes(rt: Runtime, kernel: Kernel, sizes: tuple[int, ...], bits: int, zeros: str) -> None:
    tokens, slots, experts, n, k = sizes
    arrays = arrays_of(tokens, slots, experts, n, k, bits, 32, zeros, shared=n % 2 == 1)
    check(rt, kernel, arrays, {"experts": experts, "bits": bits, "block": 32 if bits else 0})


@pytest.mark.parametrize("bits", [0, 4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_parameter(rt: Runtime, kernel: Kernel, bits: int) -> None:
    """Experts that many rows pick, and ones that none does."""
    arrays = arrays_of(13, 2, 4, 75, 136, bits, 64)
    arrays[1] = np.where(arrays[1] % 4 == 2, 1, arrays[1])  # type: ignore[operator]
    check(rt, kernel, arrays, {"experts": 4, "bits": bits, "block": 64 if bits else 0}, all_points=True)


@pytest.mark.parametrize("bits", [0, 4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_bias_and_small_indices(rt: Runtime, kernel: Kernel, bits: int) -> None:
    arrays = arrays_of(5, 2, 4, 40, 64, bits, 16, "none")
    arrays[1] = arrays[1].astype(np.int32)  # type: ignore[union-attr]
    arrays[3] = None
    check(rt, kernel, arrays, {"experts": 4, "bits": bits, "block": 16 if bits else 0})


@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.parametrize("kernel", KERNELS)
def test_epilogue(rt: Runtime, kernel: Kernel, tokens: int) -> None:
    """Operands by element and by slot."""

    def chain(y: Sym, gate: Sym, weight: Sym) -> Sym:
        return (y + 1.0) * gate.call("sigmoid") * weight

    arrays = arrays_of(tokens, 2, 4, 67, 96, 4, 32)
    arrays += [rng.standard_normal((tokens, 2, s)).astype(np.float32) for s in (67, 1)]
    attrs = {"experts": 4, "bits": 4, "block": 32, "epilogue": trace(chain, *[DType.FLOAT32] * 3)}
    check(rt, kernel, arrays, attrs)


@pytest.mark.parametrize("bits", [0, 8])
@pytest.mark.parametrize("kernel", KERNELS)
def test_half_storage(rt: Runtime, kernel: Kernel, bits: int) -> None:
    arrays = arrays_of(6, 2, 3, 70, 96, bits, 32)
    if bits:
        arrays[4] = arrays[4].astype(np.float16)  # type: ignore[union-attr]
    attrs = {"experts": 3, "bits": bits, "block": 32 if bits else 0}
    check(rt, kernel, arrays, attrs, precision=DType.FLOAT16, tolerance=3e-3)


@pytest.mark.parametrize("tokens", [1, 11])
@pytest.mark.parametrize("bits", [0, 4, 8])
def test_as_on_a_gpu(rt: Runtime, bits: int, tokens: int) -> None:
    for kernel in kernels_for("ExpertMatMul"):
        if kernel.name == "ExpertGemvGpu":
            arrays = arrays_of(tokens, 2, 4, 69, 141, bits, 32)
            check(as_gpu(rt), kernel, arrays, {"experts": 4, "bits": bits, "block": 32 if bits else 0})


@pytest.mark.parametrize("kernel", KERNELS)
def test_sums_stay_accurate(rt: Runtime, kernel: Kernel) -> None:
    """Thousands of terms of one sign, in floats and with one scale for all of them."""
    for bits in (0, 8):
        arrays = arrays_of(3, 2, 2, 33, 8192, bits, 8192, "none")
        arrays[0] = np.abs(arrays[0])  # type: ignore[arg-type]
        arrays[2] = np.abs(arrays[2])  # type: ignore[arg-type]
        check(rt, kernel, arrays, {"experts": 2, "bits": bits, "block": 8192 if bits else 0}, tolerance=2e-6)
