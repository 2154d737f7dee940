"""Linear attention's kernel against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node

from ..conv_checks import as_gpu, check_kernel, find_kernel

rng = np.random.default_rng(8)


def arrays(queries: int, heads: int, steps: int, dk: int, dv: int, decay: int, beta: int) -> list[Any]:
    """decay, beta: their widths; 0 for none."""
    q, k, v = ((2, steps, n) for n in (queries * dk, heads * dk, heads * dv))
    given = [rng.standard_normal(s).astype(np.float32) / dk**0.5 for s in (q, k, v, (2, heads, dk, dv))]
    given.append(-rng.random((2, steps, decay)).astype(np.float32) if decay else None)
    return [*given, rng.random((2, steps, beta)).astype(np.float32) if beta else None]


def check(rt: Runtime, queries: int, heads: int, given: list[Any], **more: Any) -> None:
    node = make_node("LinearAttention", {"queries": queries, "heads": heads, "scale": 0.3}, given, **more)
    kernel = find_kernel("LinearAttention", "LinearAttentionSequential")
    for params in kernel.points(kernel.problem(node, rt.info)):
        check_kernel(rt, kernel, node, given, params)


@pytest.mark.parametrize("decay", ["none", "heads", "rows"])
@pytest.mark.parametrize("beta", ["none", "one", "heads"])
def test_rules(rt: Runtime, decay: str, beta: str) -> None:
    widths = {"none": 0, "one": 1, "heads": 3, "rows": 3 * 7}
    check(rt, 3, 3, arrays(3, 3, 5, 7, 37, widths[decay], widths[beta]))


@pytest.mark.parametrize("queries, heads", [(6, 2), (2, 6), (1, 1)])
@pytest.mark.parametrize("steps", [1, 19])
def test_heads(rt: Runtime, queries: int, heads: int, steps: int) -> None:
    check(rt, queries, heads, arrays(queries, heads, steps, 8, 5, heads, heads))


def test_half_storage(rt: Runtime) -> None:
    check(rt, 2, 2, arrays(2, 2, 4, 8, 16, 2, 2), precision=DType.FLOAT16)


def test_as_on_a_gpu(rt: Runtime) -> None:
    check(as_gpu(rt), 4, 2, arrays(4, 2, 3, 8, 33, 16, 1))
