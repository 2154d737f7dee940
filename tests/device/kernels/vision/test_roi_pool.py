"""RoiPool kernels against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

rng = np.random.default_rng(31)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.37])
def test_bins(rt: Runtime, dtype: Any, half: bool, scale: float) -> None:
    x = rng.standard_normal((3, 5, 11, 13)).astype(np.float16).astype(dtype)
    corners = rng.uniform(-6, 30, (40, 4)).round(1)
    regions = np.concatenate([rng.integers(-1, 5, (40, 1)), corners], 1).astype(np.float32)
    regions[:3, 3] = 1e30, np.inf, np.nan
    attrs = {"rows": 5, "columns": 3, "scale": scale}
    node = make_node("RoiPool", attrs, [x, regions], precision=DType.FLOAT16 if half else None)
    taken = [k for k in kernels_for("RoiPool") if k.refuse(k.problem(node, rt.info)) is None]
    assert len(taken) == (1 if half or dtype != np.float32 else 2)
    for kernel in taken:
        (got,) = run_node(rt, kernel, node, [x, regions])
        np.testing.assert_array_equal(got, node.op.reference([x, regions])[0], kernel.name)
