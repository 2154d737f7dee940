"""Products of few rows with matrices of a few bits that normalise what they read, on matrix units."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node, run_node

from ....helpers.pairs import pairwise_points
from ..conv_checks import find_kernel
from ..matmul.test_norm_skinny_mma import apart, assert_same_halves
from ..matmul.test_skinny_mma import with_units
from .test_quantized import levels

KERNEL = find_kernel("RowNormQuantizedMatMul", "QuantizedNormSkinnyMma")


def product(
    m: int,
    n: int,
    k: int,
    kind: str,
    parameters: str = "sb",
    bits: int = 4,
    block: int = 32,
    zeros: str = "bytes",
    *,
    trans_b: bool = True,
    half: bool = True,
) -> tuple[Node, list[Any]]:
    """With a bias and a residual. parameters: "s" for a scale of the rows, "b" for a bias."""
    rng = np.random.default_rng(5)
    q, scale, zero = levels(n, k, bits, block, zeros, False, half)
    a = rng.normal(0.5, 2, (m, k)).astype(np.float16).astype(np.float32)
    row_scale = rng.uniform(0.5, 1.5, k).astype(np.float16).astype(np.float32) if "s" in parameters else None
    row_bias = rng.standard_normal(k).astype(np.float16).astype(np.float32) if "b" in parameters else None
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    attrs = {"trans_a": False, "trans_b": trans_b, "bits": bits, "block": block, "kind": kind, "epsilon": 1e-3}
    attrs["epilogue"] = parse_expr("add($0, $1); add(%0, $2)", [DType.FLOAT32] * 3)
    arrays = [a, q if trans_b else np.ascontiguousarray(q.T), scale, zero, row_scale, row_bias, bias, residual]
    return of_arrays(attrs, arrays), arrays


def of_arrays(attrs: dict[str, Any], arrays: list[Any]) -> Node:
    const = [i for i in range(1, 7) if arrays[i] is not None]
    return make_node("RowNormQuantizedMatMul", attrs, arrays, const=const, precision=DType.FLOAT16)


def check(rt: Runtime, node: Node, arrays: list[Any], params: dict[str, Any] | None = None) -> None:
    """The result is the float64 one, but for what its storage and that of the rows round."""
    problem = KERNEL.problem(node, rt.info)
    assert KERNEL.refuse(problem) is None
    assert params is None or KERNEL.illegal(problem, params) is None
    (got,) = run_node(rt, KERNEL, node, arrays, params or KERNEL.defaults(problem))
    (want,) = node.op.reference([arrays[0].astype(np.float64), *arrays[1:6]])
    want = want + arrays[6] + arrays[7]
    assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize(
    "m, n, k", [(1, 52, 1064), (1, 4500, 64), (2, 36, 2048), (5, 20, 200), (8, 52, 1024), (16, 37, 520)]
)
def test_product(rt: Runtime, m: int, n: int, k: int, kind: str) -> None:
    """Columns are no whole number of panels or sixteens, nor terms one of quads or blocks."""
    check(with_units(rt), *product(m, n, k, kind))


@pytest.mark.parametrize(
    "bits, block, zeros, trans_b, half",
    [
        (4, 16, "none", False, False),
        (4, 24, "one", True, True),
        (4, 128, "bytes", True, False),
        (4, 1 << 12, "bytes", True, True),
        (8, 32, "bytes", True, True),
        (8, 8, "one", False, False),
        (8, 1 << 12, "none", True, True),
    ],
)
@pytest.mark.parametrize("m, kind", [(1, "rms"), (3, "layer")])
def test_numbers(rt: Runtime, m: int, kind: str, bits: int, block: int, zeros: str, trans_b: bool, half: bool) -> None:
    check(with_units(rt), *product(m, 52, 328, kind, "sb", bits, block, zeros, trans_b=trans_b, half=half))


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("parameters", ["", "s", "b"])
def test_scale_and_bias_may_be_missing(rt: Runtime, kind: str, parameters: str) -> None:
    check(with_units(rt), *product(2, 20, 72, kind, parameters))


@pytest.mark.parametrize("m, n, k", [(1, 400, 3072), (3, 400, 200)])
def test_every_parameter(rt: Runtime, m: int, n: int, k: int) -> None:
    """With groups of several times 16 columns, whose quads are on their way together where they are few."""
    node, arrays = product(m, n, k, "rms")
    rt = with_units(rt)
    rt.info = dataclasses.replace(rt.info, compute_units=5)
    points = list(KERNEL.points(KERNEL.problem(node, rt.info)))
    assert len(points) >= 3
    for params in pairwise_points(points):
        check(rt, node, arrays, params)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_rows_are_those_that_a_normalisation_stores(rt: Runtime, kind: str, bits: int) -> None:
    """The product with an identity gives halves that differ from its result by their last digit at most, and seldom."""
    node, arrays = product(2, 64, 64, kind, bits=bits, zeros="none")
    ones = np.ones((64, 2), np.float32)
    arrays[1:3], arrays[6:] = (
        [np.eye(64, dtype=np.uint8), ones],
        [np.zeros(64, np.float32), np.zeros((2, 64), np.float32)],
    )
    attrs = {**node.op.attributes(), "epilogue": node.epilogue}
    node, rt = of_arrays(attrs, arrays), with_units(rt)
    (got,) = run_node(rt, KERNEL, node, arrays, KERNEL.defaults(KERNEL.problem(node, rt.info)))
    assert_same_halves(got, apart(rt, kind, arrays[0], arrays[4:6]))
