"""Halves that begin at any element: compilers must not take a vector of them for aligned."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels import kernels_for


@pytest.mark.parametrize("shape", [(11, 11), (9, 67), (24, 13)])
def test_rows_of_odd_length(rt: Runtime, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16).astype(np.float32)
    node = make_node("Reduce", {"kind": "max", "axes": (0,), "keepdims": False}, [x], precision=DType.FLOAT16)
    wanted = node.op.reference([x])[0]
    ran = 0
    for kernel in kernels_for("Reduce"):
        if kernel.refuse(kernel.problem(node, rt.info)) is None:
            np.testing.assert_allclose(run_node(rt, kernel, node, [x])[0], wanted, rtol=1e-3, err_msg=kernel.name)
            ran += 1
    assert ran
