"""Products of few rows that normalise what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.matmul import skinny_mma

from ....helpers.pairs import pairwise_points
from ..conv_checks import check_kernel, find_kernel
from .test_skinny_mma import with_units

KERNEL = find_kernel("RowNormMatMul", "NormMatmulSkinnyMma")
SILU = "sigmoid($0); mul($0, %0); mul(%1, $1)"
RESIDUAL = "add($0, $1)"


def product(
    m: int, n: int, k: int, kind: str, parameters: str = "sb", text: str = RESIDUAL, offset: float = 0.5
) -> tuple[Node, list[Any]]:
    """parameters: "s" for a scale, "b" for a bias. offset: mean of the rows."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(offset, 2, (m, k)).astype(np.float32), rng.standard_normal((n, k), np.float32) * k**-0.5
    scale = rng.uniform(0.5, 1.5, k).astype(np.float32) if "s" in parameters else None
    bias = rng.standard_normal(k, np.float32) if "b" in parameters else None
    expr = parse_expr(text, [DType.FLOAT32] * 2)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": True, "kind": kind, "epsilon": 1e-3, "epilogue": expr}
    arrays = [a, b, scale, bias, rng.standard_normal((m, n), np.float32)]
    const = [i for i in (1, 2, 3) if arrays[i] is not None]
    return make_node("RowNormMatMul", attrs, arrays, const=const, precision=DType.FLOAT16), arrays


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize(
    "m, n, k",
    [(1, 132, 2048), (1, 20, 4096), (1, 4500, 64), (2, 36, 1032), (5, 52, 1024), (5, 20, 260), (16, 52, 512)],
)
@pytest.mark.parametrize("form", sorted(skinny_mma.FORMS))
def test_product(rt: Runtime, monkeypatch: pytest.MonkeyPatch, form: int, m: int, n: int, k: int, kind: str) -> None:
    """Columns are no whole number of tiles, nor terms one of vectors, steps, slabs or chunks."""
    node, arrays = product(m, n, k, kind, text=SILU if m == 1 else RESIDUAL)
    monkeypatch.setattr(skinny_mma, "FORMS", {form: skinny_mma.FORMS[form]})
    check_kernel(with_units(rt), KERNEL, node, arrays)


@pytest.mark.parametrize("kind", ["layer", "rms"])
@pytest.mark.parametrize("parameters", ["", "s", "b"])
def test_scale_and_bias_may_be_missing(rt: Runtime, kind: str, parameters: str) -> None:
    check_kernel(with_units(rt), KERNEL, *product(2, 20, 72, kind, parameters))


@pytest.mark.parametrize("m", [1, 3])
def test_every_parameter(rt: Runtime, m: int) -> None:
    node, arrays = product(m, 37, 708, "layer")
    rt = with_units(rt)
    points = list(KERNEL.points(KERNEL.problem(node, rt.info)))
    assert len(points) >= 3
    for params in pairwise_points(points):
        check_kernel(rt, KERNEL, node, arrays, params)


def test_one_scale_for_all_terms(rt: Runtime) -> None:
    node, arrays = product(2, 20, 72, "rms", "")
    arrays[2] = np.asarray([1.5], np.float32)
    attrs = {"trans_a": False, "trans_b": True, "kind": "rms", "epsilon": 1e-3, "epilogue": node.epilogue}
    node = make_node("RowNormMatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    check_kernel(with_units(rt), KERNEL, node, arrays)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_rows_are_those_that_a_normalisation_stores(rt: Runtime, kind: str) -> None:
    """The product with an identity gives halves that differ from its result by their last digit at most, and seldom."""
    node, arrays = product(2, 64, 64, kind, text="mul($0, $1)", offset=3.0)
    arrays[1], arrays[4] = np.eye(64, dtype=np.float32), np.ones((2, 64), np.float32)
    attrs = {"trans_a": False, "trans_b": True, "kind": kind, "epsilon": 1e-3, "epilogue": node.epilogue}
    node = make_node("RowNormMatMul", attrs, arrays, const=(1, 2, 3), precision=DType.FLOAT16)
    rt = with_units(rt)
    (got,) = run_node(rt, KERNEL, node, arrays, KERNEL.defaults(KERNEL.problem(node, rt.info)))
    assert_same_halves(got, apart(rt, kind, arrays[0], arrays[2:4]))


def apart(rt: Runtime, kind: str, a: Any, parameters: Sequence[Any]) -> Any:
    """What the kernel of a normalisation gives."""
    kernel, arrays = find_kernel("Normalize", "NormalizeRows"), [a, *parameters]
    attrs = {"kind": kind, "axis": 1, "epsilon": 1e-3}
    node = make_node("Normalize", attrs, arrays, const=(1, 2), precision=DType.FLOAT16)
    (y,) = run_node(rt, kernel, node, arrays, kernel.defaults(kernel.problem(node, rt.info)))
    return y


def assert_same_halves(a: Any, b: Any) -> None:
    a, b = (v.astype(np.float16) for v in (a, b))
    assert (a != b).mean() < 0.05
    np.testing.assert_array_max_ulp(a, b, 1)
