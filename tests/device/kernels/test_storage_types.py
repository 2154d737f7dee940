"""Kernels that change the storage type themselves: they read floats where halves are computed, and store them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.parse import parse_expr
from opalite.ir import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

F32, F16 = DType.FLOAT32, DType.FLOAT16
CASES: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("Transpose", {"perm": (0, 3, 1, 2)}, (2, 5, 37, 3)),
    ("Transpose", {"perm": (0, 2, 3, 1)}, (2, 3, 5, 37)),
    ("Transpose", {"perm": (0, 2, 3, 1)}, (1, 35, 5, 7)),
    ("Slice", {"starts": (0, 4, 1, 0), "steps": (1, 1, 1, 2), "sizes": (2, 7, 3, 4)}, (2, 19, 5, 7)),
    ("Pad", {"pads": (0, 0, 2, 1, 0, 0, 1, 3), "mode": "symmetric", "value": 0}, (2, 3, 5, 7)),
    ("Elementwise", {"expr": parse_expr("mul($0, 2.0:f32)", [F32])}, (2, 3, 5, 7)),
]


@pytest.mark.parametrize("read, stored", [(F32, F16), (F16, F32)], ids=["reads floats", "stores floats"])
@pytest.mark.parametrize("op, attrs, shape", CASES, ids=str)
def test_other_storage(
    rt: Runtime, op: str, attrs: dict[str, Any], shape: tuple[int, ...], read: DType, stored: DType
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    plain = make_node(op, attrs, [x])
    (expected,) = plain.op.reference([x])
    tried = 0
    for kernel in kernels_for(op):
        problem = kernel.problem(plain, rt.info)
        changes = kernel.takes(0, F32, F16) if read is F32 else kernel.gives(F32, F16)
        if not changes or kernel.refuse(problem) is not None:
            continue
        for binding in kernel.bindings(problem):
            node = make_node(op, attrs, [x], binding=binding)
            for v, dtype in ((node.x, read), (node.y, stored)):
                v.type = v.type.with_place(v.type.place.with_precision(dtype))
            (got,) = run_node(rt, kernel, node, [x])
            np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3, err_msg=kernel.name)
            tried += 1
    assert tried, f"a kernel of {op} changes the storage type"
