"""Rotate: rows of any length turned by tables that broadcast, read where they lie."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernels.registry import kernels_for
from opalite.run.execute.node import make_node, run_node

CASES = [
    ((0, 1, 2, 3), (2, 3, 5), (1, 1, 5)),
    ((0, 1, 2, 3), (2, 3, 5), (5,)),
    ((0, 2, 1, 3), (2, 5, 3), (2, 1, 5)),
    ((2, 1, 0, 3), (3, 7, 2), (2, 7, 1)),
    ((0, 1, 2, 3), (1, 1, 1), (1, 1, 1)),
    ((0, 1, 2, 3), (1, 4, 0), (1, 1, 0)),
]


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("half", [1, 19, 32])
@pytest.mark.parametrize("perm, outer, table", CASES)
def test_rotate(
    rt: Runtime, perm: tuple[int, ...], outer: tuple[int, ...], table: tuple[int, ...], half: int, columns: int
) -> None:
    rng = np.random.default_rng(half)
    x = rng.standard_normal((*outer, 2 * half)).astype(np.float32)
    tables = [rng.uniform(-1, 1, (*table, columns * half)).astype(np.float32) for _ in range(2)]
    node = make_node("Rotate", {"perm": perm}, [x, *tables])
    (wanted,) = node.op.reference([x, *tables])
    (kernel,) = kernels_for("Rotate")
    for params in kernel.points(kernel.problem(node, rt.info)):
        np.testing.assert_allclose(run_node(rt, kernel, node, [x, *tables], params)[0], wanted, atol=1e-6)


def test_halves(rt: Runtime) -> None:
    rng = np.random.default_rng(0)
    x, cos, sin = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((2, 3, 5, 38), (5, 19), (5, 19)))
    node = make_node("Rotate", {}, [x, cos, sin], precision=DType.FLOAT16)
    (wanted,) = node.op.reference([x, cos, sin])
    (kernel,) = kernels_for("Rotate")
    np.testing.assert_allclose(run_node(rt, kernel, node, [x, cos, sin])[0], wanted, atol=4e-3)
