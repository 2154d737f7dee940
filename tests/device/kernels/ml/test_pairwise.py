"""PairwiseDistance and PairwiseCoupling against their references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

rng = np.random.default_rng(5)


def check(rt: Runtime, op: str, arrays: list[Any], params: Any = None, half: bool = False, **attrs: Any) -> None:
    node = make_node(op, attrs, arrays, precision=DType.FLOAT16 if half else None)
    got = run_node(rt, kernels_for(op)[0], node, arrays, params)[0]
    tolerance = 2e-3 if half else 1e-5
    np.testing.assert_allclose(got, node.op.reference(arrays)[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("rows", "features", "columns"), [(1, 1, 1), (7, 3, 5), (37, 19, 101), (5, 2, 64)])
def test_distances(rt: Runtime, rows: int, features: int, columns: int, power: int) -> None:
    x, c = (rng.standard_normal(s).astype(np.float32) for s in ((rows, features), (features, columns)))
    check(rt, "PairwiseDistance", [x, c], power=power)
    for pack in (1, 4, 16):
        check(rt, "PairwiseDistance", [x, c], {"PACK": pack, "ROWS": 4}, power=power)
    if rt.info.fp64:
        check(rt, "PairwiseDistance", [x.astype(np.float64), c.astype(np.float64)], power=power)


def test_distances_stored_as_halves(rt: Runtime) -> None:
    x, c = (rng.integers(-4, 5, s).astype(np.float32) for s in ((5, 7), (7, 33)))
    check(rt, "PairwiseDistance", [x, c], half=True, power=2)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_coupled_probabilities(rt: Runtime, classes: int) -> None:
    pairs = rng.random((41, classes * (classes - 1) // 2)).astype(np.float32) * 0.98 + 0.01
    check(rt, "PairwiseCoupling", [pairs])
    check(rt, "PairwiseCoupling", [np.full_like(pairs, np.nan)])
