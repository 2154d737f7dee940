"""Cumulative kernels against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for

rng = np.random.default_rng(31)


def check(
    rt: Runtime,
    kernel: Kernel,
    shape: tuple[int, ...],
    axis: int,
    dtype: str = "float32",
    kind: str = "sum",
    exclusive: bool = False,
    reverse: bool = False,
    half: bool = False,
) -> None:
    if dtype[0] == "f":
        x = (1 + 0.1 * rng.standard_normal(shape) if kind == "prod" else rng.standard_normal(shape)).astype(dtype)
    else:
        x = rng.integers(0, 9, shape).astype(dtype)
    attrs = {"kind": kind, "axis": axis, "exclusive": exclusive, "reverse": reverse}
    node = make_node("Cumulative", attrs, [x], precision=DType.FLOAT16 if half else None)
    (got,) = run_node(rt, kernel, node, [x])
    (want,) = node.op.reference([x])
    if dtype[0] != "f":
        np.testing.assert_array_equal(got, want)
    else:
        tolerance = 1e-2 if half or dtype == "float16" else 1e-5
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max().astype(np.float64))


@pytest.mark.parametrize("kernel", kernels_for("Cumulative"), ids=lambda k: k.name)
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_kinds(rt: Runtime, kernel: Kernel, kind: str, exclusive: bool, reverse: bool) -> None:
    check(rt, kernel, (3, 7, 37), 1, kind=kind, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("kernel", kernels_for("Cumulative"), ids=lambda k: k.name)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint32", "uint64", "float16"])
def test_types(rt: Runtime, kernel: Kernel, dtype: str) -> None:
    check(rt, kernel, (5, 11, 17), 1, dtype)


@pytest.mark.parametrize("kernel", kernels_for("Cumulative"), ids=lambda k: k.name)
@pytest.mark.parametrize("shape, axis", [((1009,), 0), ((1, 7), 0), ((13, 3), 0), ((5, 601), 1), ((2, 3, 5, 7), 2)])
def test_shapes(rt: Runtime, kernel: Kernel, shape: tuple[int, ...], axis: int) -> None:
    check(rt, kernel, shape, axis)


@pytest.mark.parametrize("kernel", kernels_for("Cumulative"), ids=lambda k: k.name)
def test_half_storage(rt: Runtime, kernel: Kernel) -> None:
    check(rt, kernel, (3, 31, 5), 1, half=True)
