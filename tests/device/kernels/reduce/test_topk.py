"""TopK kernels against the reference: values and indices agree exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for

from ....helpers.pairs import pairwise

rng = np.random.default_rng(41)


def named(value: Any) -> str:
    return str(getattr(value, "name", value))


each_kernel = pytest.mark.parametrize("kernel", kernels_for("TopK"), ids=named)


def check(
    rt: Runtime,
    kernel: Kernel,
    x: np.ndarray[Any, Any],
    k: int,
    axis: int,
    largest: bool = True,
    params: dict[str, int] | None = None,
    half: bool = False,
) -> None:
    attrs = {"k": k, "axis": axis, "largest": largest, "sorted": True}
    node = make_node("TopK", attrs, [x], precision=DType.FLOAT16 if half else None)
    why = kernel.refuse(kernel.problem(node, rt.info))
    if why is not None:
        assert kernel.tier == "generic", why
        pytest.skip(why)
    got = run_node(rt, kernel, node, [x], params)
    want = node.op.reference([x])
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


@each_kernel
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [1, 2, 7, 61, 127])
def test_lines(rt: Runtime, kernel: Kernel, k: int, largest: bool) -> None:
    check(rt, kernel, rng.standard_normal((3, 127)).astype(np.float32), k, 1, largest)


@each_kernel
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("k", [1, 4, 5])
def test_axes_with_ties(rt: Runtime, kernel: Kernel, axis: int, k: int) -> None:
    check(rt, kernel, rng.integers(-2, 2, (5, 7, 11)).astype(np.float32), k, axis)


TYPES = ["int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64", "float16", "float64"]


@pytest.mark.parametrize("kernel, dtype, largest", pairwise(kernels_for("TopK"), TYPES, [False, True]), ids=named)
def test_types(rt: Runtime, kernel: Kernel, dtype: str, largest: bool) -> None:
    if dtype == "float64" and not rt.info.fp64:
        pytest.skip("the device has no double precision")
    if dtype[0] == "f":
        x = rng.standard_normal((2, 101)).astype(dtype)
    else:
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, (2, 101), dtype=dtype, endpoint=True)
        x[:, :2] = info.min, info.max
    check(rt, kernel, x, 11, 1, largest)


@each_kernel
@pytest.mark.parametrize("largest", [False, True])
def test_special_values(rt: Runtime, kernel: Kernel, largest: bool) -> None:
    x = np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, np.nan, -0.0, 0.0, 1e-40, -1e-40]], np.float32)
    check(rt, kernel, x, 11, 1, largest)


@each_kernel
@pytest.mark.parametrize("k", [1, 100, 1000])
def test_long_lines_of_few_values(rt: Runtime, kernel: Kernel, k: int) -> None:
    check(rt, kernel, rng.integers(0, 9, (2, 70001)).astype(np.float32), k, 1)


@each_kernel
def test_half_storage(rt: Runtime, kernel: Kernel) -> None:
    x = rng.standard_normal((3, 53)).astype(np.float16).astype(np.float32)
    check(rt, kernel, x, 5, 1, half=True)


@each_kernel
def test_all_and_none(rt: Runtime, kernel: Kernel) -> None:
    x = rng.standard_normal(257).astype(np.float32)
    check(rt, kernel, x, 257, 0)
    check(rt, kernel, x, 0, 0)
