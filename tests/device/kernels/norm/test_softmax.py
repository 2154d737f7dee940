"""Softmax kernels against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.ir.graph import Node
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.ops.softmax import Softmax

rng = np.random.default_rng(37)
TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "float64": 1e-12}


def run_bound(rt: Runtime, kernel: Kernel, node: Node, x: Any) -> list[Any]:
    """The node's outputs, its tensors in layouts that the kernel binds."""
    place = node.x.type.place
    binding = kernel.bindings(kernel.problem(node, rt.info))[0]
    attrs = {"axis": node.as_(Softmax).axis, "log": node.as_(Softmax).log}
    bound = make_node("Softmax", attrs, [x], binding=binding, precision=place.precision)
    return run_node(rt, kernel, bound, [x])


def check(
    rt: Runtime,
    kernel: Kernel,
    shape: tuple[int, ...],
    axis: int,
    log: bool = False,
    dtype: str = "float32",
    half: bool = False,
    spread: float = 5.0,
) -> None:
    x = (spread * rng.standard_normal(shape)).astype(dtype)
    attrs = {"axis": axis, "log": log}
    node = make_node("Softmax", attrs, [x], precision=DType.FLOAT16 if half else None)
    if kernel.refuse(kernel.problem(node, rt.info)) is not None:
        pytest.skip("refused")
    (got,) = run_bound(rt, kernel, node, x)
    (want,) = node.op.reference([x])
    tolerance = TOLERANCES["float16" if half else dtype]
    np.testing.assert_allclose(
        got.astype("float64"), want.astype("float64"), rtol=0, atol=tolerance * np.abs(want).max().astype("float64")
    )


every_kernel = pytest.mark.parametrize("kernel", kernels_for("Softmax"), ids=lambda k: k.name)


@every_kernel
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "shape, axis", [((7, 1009), 1), ((131, 3), 1), ((1, 1), 1), ((53,), 0), ((3, 37, 53), 1), ((2, 3, 5, 7), 0)]
)
def test_shapes(rt: Runtime, kernel: Kernel, shape: tuple[int, ...], axis: int, log: bool) -> None:
    check(rt, kernel, shape, axis, log)


@every_kernel
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype, half", [("float16", False), ("float32", True), ("float64", False)])
@pytest.mark.parametrize("shape, axis", [((5, 67), 1), ((3, 11, 19), 1)])
def test_types(
    rt: Runtime, kernel: Kernel, shape: tuple[int, ...], axis: int, dtype: str, half: bool, log: bool
) -> None:
    if dtype == "float64" and not rt.info.fp64:
        pytest.skip("no double precision")
    check(rt, kernel, shape, axis, log, dtype, half)


@every_kernel
def test_large_values_do_not_overflow(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, (3, 41), 1, spread=1e4)


@every_kernel
def test_masked_and_empty_lines(rt: Runtime, kernel: Kernel) -> None:
    x = rng.standard_normal((4, 23)).astype(np.float32)
    x[0, 5:] = x[1] = -np.inf
    x[2, 3] = np.nan
    node = make_node("Softmax", {"axis": 1, "log": False}, [x])
    if kernel.refuse(kernel.problem(node, rt.info)) is not None:
        pytest.skip("refused")
    np.testing.assert_allclose(run_bound(rt, kernel, node, x)[0], node.op.reference([x])[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("wg, rows", [(1, 4), (4, 2), (32, 1)])
def test_work_groups_that_share_rows(rt: Runtime, wg: int, rows: int) -> None:
    x = rng.standard_normal((7, 101)).astype(np.float32)
    node = make_node("Softmax", {"axis": 1, "log": False}, [x])
    kernel = next(k for k in kernels_for("Softmax") if k.name == "SoftmaxRows")
    got = run_node(rt, kernel, node, [x], {"PACK": 4, "WG": wg, "ROWS": rows})[0]
    np.testing.assert_allclose(got, node.op.reference([x])[0], rtol=1e-5, atol=1e-7)
