"""Products of few rows of halves with matrices of a few bits, on matrix units that work-items stand in for."""

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
from ..matmul.test_skinny_mma import with_units
from .test_quantized import levels

KERNEL = find_kernel("QuantizedMatMul", "QuantizedSkinnyMma")


def product(
    m: int,
    n: int,
    k: int,
    bits: int = 4,
    block: int = 32,
    zeros: str = "none",
    *,
    trans_b: bool = True,
    signed: bool = False,
    half: bool = False,
) -> tuple[Node, list[Any]]:
    """With a bias and a residual; rows are halves, so that they are stored as they are."""
    rng = np.random.default_rng(3)
    q, scale, zero = levels(n, k, bits, block, zeros, signed, half)
    a = rng.standard_normal((m, k)).astype(np.float16).astype(np.float32)
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    expr = parse_expr("add($0, $1); add(%0, $2)", [DType.FLOAT32] * 3)
    attrs = {"trans_a": False, "trans_b": trans_b, "bits": bits, "block": block, "epilogue": expr}
    arrays = [a, q if trans_b else np.ascontiguousarray(q.T), scale, zero, bias, residual]
    const = [i for i in range(1, 5) if arrays[i] is not None]
    return make_node("QuantizedMatMul", attrs, arrays, const=const, precision=DType.FLOAT16), arrays


def check(rt: Runtime, node: Node, arrays: list[Any], params: dict[str, Any] | None = None) -> None:
    """The result is the float64 one, but for what its storage rounds."""
    problem = KERNEL.problem(node, rt.info)
    assert KERNEL.refuse(problem) is None
    assert params is None or KERNEL.illegal(problem, params) is None
    (got,) = run_node(rt, KERNEL, node, arrays, params or KERNEL.defaults(problem))
    (want,) = node.op.reference([arrays[0].astype(np.float64), *arrays[1:4]])
    want = want + arrays[4] + arrays[5]
    assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()


@pytest.mark.parametrize(
    "bits, block, zeros, trans_b, half",
    [
        (4, 32, "none", True, False),
        (4, 32, "bytes", True, True),
        (4, 16, "bytes", False, False),
        (4, 24, "one", True, True),
        (4, 128, "bytes", True, True),
        (4, 1 << 12, "one", True, False),
        (8, 32, "bytes", True, True),
        (8, 16, "none", False, False),
        (8, 8, "one", True, False),
        (8, 1 << 12, "bytes", True, True),
        (2, 32, "bytes", True, False),
        (2, 16, "none", True, True),
        (2, 64, "one", False, False),
    ],
)
@pytest.mark.parametrize("m, n, k", [(1, 52, 1064), (3, 37, 203)])
def test_product(
    rt: Runtime, m: int, n: int, k: int, bits: int, block: int, zeros: str, trans_b: bool, half: bool
) -> None:
    """Columns are no whole number of panels or sixteens, nor terms one of quads, blocks or fours."""
    check(with_units(rt), *product(m, n, k, bits, block, zeros, trans_b=trans_b, signed=zeros == "one", half=half))


@pytest.mark.parametrize(
    "m, n, k", [(1, 4500, 72), (2, 33, 2048), (5, 67, 96), (8, 20, 640), (16, 52, 1064), (1, 1, 1)]
)
def test_sizes(rt: Runtime, m: int, n: int, k: int) -> None:
    check(with_units(rt), *product(m, n, k, zeros="bytes"))


@pytest.mark.parametrize("m, n, k", [(1, 400, 3072), (2, 400, 200), (5, 83, 1544)])
def test_every_parameter(rt: Runtime, m: int, n: int, k: int) -> None:
    """With groups of several times 16 columns, whose quads are on their way together where they are few."""
    node, arrays = product(m, n, k, zeros="bytes", half=True)
    rt = with_units(rt)
    rt.info = dataclasses.replace(rt.info, compute_units=5)
    points = list(KERNEL.points(KERNEL.problem(node, rt.info)))
    assert len(points) >= 3
    for params in pairwise_points(points):
        check(rt, node, arrays, params)


def test_rows_that_do_not_fit_the_local_memory(rt: Runtime) -> None:
    """They come by parts, for each of a group's columns anew."""
    node, arrays = product(16, 52, 1800, zeros="bytes", block=128)
    rt = with_units(rt)
    rt.info = dataclasses.replace(rt.info, compute_units=2, local_mem=49152)
    problem = KERNEL.problem(node, rt.info)
    (launch,) = KERNEL.launch(problem, KERNEL.defaults(problem))
    assert launch.defines["ROUNDS"] * launch.defines["UNROLL"] * launch.defines["PARTS"] * 64 < 1800
    assert launch.args["sixteens"] == 2
    check(rt, node, arrays)
