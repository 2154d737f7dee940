"""What the convolution and pooling tests share: a kernel's output against the reference, epilogue included."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.expression import evaluate
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import run_node
from opalite.kernels.kernel import Kernel, kernels_for

from ...helpers.plain_builds import built_plain

Array = np.ndarray[Any, Any]

TOLERANCE = {DType.FLOAT16: 1e-2, DType.BFLOAT16: 3e-2, DType.FLOAT32: 1e-4, DType.FLOAT64: 1e-12}
"""Largest error as a share of the largest expected magnitude, by the narrowest type on the way."""


def find_kernel(op: str, name: str) -> Kernel:
    """The kernel of `op` called `name`."""
    return next(k for k in kernels_for(op) if k.name == name)


def as_gpu(rt: Runtime) -> Runtime:
    """`rt` with its device described as a GPU, so that kernels choose as they would on one.

    What they choose is nothing that PoCL is given, whose optimiser takes most of such a test's time: it is left out.
    """
    other = copy.copy(built_plain(rt))
    other.info = dataclasses.replace(rt.info, kind="gpu", wave_size=32, local_mem_dedicated=True)
    return other


def as_adreno(rt: Runtime) -> Runtime:
    """`rt` described as a GPU that reads constants as texels of their buffers."""
    if not rt.info.image_support or not rt.info.image_buffer_max:
        pytest.skip("the device has no images over buffers")
    other = as_gpu(rt)
    other.info = dataclasses.replace(other.info, family="adreno")
    return other


def check_kernel(
    rt: Runtime, kernel: Kernel, node: Node, arrays: Sequence[Array | None], params: Mapping[str, Any] | None = None
) -> None:
    """`kernel` accepts `node` and computes what the reference and then the epilogue give; integers exactly."""
    assert kernel.refuse(kernel.problem(node, rt.info)) is None
    point = {**kernel.defaults(kernel.problem(node, rt.info)), **(params or {})}
    got = run_node(rt, kernel, node, arrays, point)
    want = node.op.reference(arrays)
    if node.epilogue is not None:
        operands = [a for a in arrays[node.op.arity :] if a is not None]
        want[0] = evaluate(node.epilogue, [want[0], *operands], want[0].shape)
    assert len(got) == len(want)
    for g, w, v in zip(got, want, node.outputs, strict=True):
        if w.dtype.kind in "iu":
            np.testing.assert_array_equal(g, w)
            continue
        a, b = g.astype(np.float64), w.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE[v.type.storage] * np.abs(b).max())
