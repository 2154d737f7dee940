"""Products of few rows with weights in the order of kernels for matrix units."""

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
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.matmul import skinny_mma

from ....helpers.pairs import pairwise_points
from ..conv_checks import check_kernel, find_kernel

KERNEL = find_kernel("MatMul", "MatmulSkinnyMma")


def with_units(rt: Runtime) -> Runtime:
    """The runtime with a device that has matrix units, whose kernels are asked for the order, and not run."""
    other = copy.copy(rt)
    quirks = dict.fromkeys((*rt.info.quirks, PTX_MMA, PTX_WGMMA))
    other.info = dataclasses.replace(rt.info, quirks=tuple(quirks), local_mem=max(rt.info.local_mem, 49152))
    return other


def product(m: int, n: int, k: int, trans_b: bool) -> tuple[Node, list[Any]]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    expr = parse_expr("add($0, $1); add(%0, $2)", [DType.FLOAT32] * 3)
    attrs: dict[str, Any] = {"trans_a": False, "trans_b": trans_b, "epilogue": expr}
    arrays = [a, np.ascontiguousarray(b.T) if trans_b else b, bias, residual]
    return make_node("MatMul", attrs, arrays, const=(1, 2), precision=DType.FLOAT16), arrays


@pytest.mark.parametrize(
    "m, n, k, trans_b",
    [(1, 132, 2088, True), (1, 4500, 72, True), (3, 36, 200, False), (8, 52, 1064, True), (16, 20, 40, False)],
)
@pytest.mark.parametrize("form", sorted(skinny_mma.FORMS))
def test_product(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch, form: int, m: int, n: int, k: int, trans_b: bool
) -> None:
    """Columns are no whole number of tiles, nor terms one of steps, slabs or chunks."""
    node, arrays = product(m, n, k, trans_b)
    monkeypatch.setattr(skinny_mma, "FORMS", {form: skinny_mma.FORMS[form]})
    other = with_units(rt)
    assert skinny_mma.SkinnyProblem(node, other.info).packed.form == form
    check_kernel(other, KERNEL, node, arrays)


@pytest.mark.parametrize("m", [1, 5])
def test_every_parameter(rt: Runtime, m: int) -> None:
    node, arrays = product(m, 37, 1548, True)
    rt = with_units(rt)
    points = list(KERNEL.points(KERNEL.problem(node, rt.info)))
    assert len(points) >= 6
    for params in pairwise_points(points):
        check_kernel(rt, KERNEL, node, arrays, params)
