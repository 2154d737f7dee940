"""Random's kernel against the reference: the same numbers for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

Array = np.ndarray[Any, Any]
(KERNEL,) = kernels_for("Random")


def both(rt: Runtime, attrs: dict[str, Any], *arrays: Array, half: bool = False) -> tuple[Array, Array]:
    """(the kernel's numbers, the reference's)."""
    found = {"low": 0.0, "high": 1.0, "mean": 0.0, "scale": 1.0, "seed": 11, "dtype": DType.FLOAT32} | attrs
    node = make_node("Random", found, arrays, precision=DType.FLOAT16 if half else None)
    return run_node(rt, KERNEL, node, arrays)[0], node.op.reference(arrays)[0]


def need_double(rt: Runtime, dtype: DType) -> None:
    if dtype is DType.FLOAT64 and not rt.info.fp64:
        pytest.skip("the device has no double precision")


@pytest.mark.parametrize("count", [1, 4, 997])
@pytest.mark.parametrize("seed", [0, 3, (5 << 32) + 1])
def test_uniform(rt: Runtime, count: int, seed: int) -> None:
    got, want = both(rt, {"kind": "uniform", "shape": (count,), "low": -1.5, "high": 2.25, "seed": seed})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16])
def test_uniform_of_other_types(rt: Runtime, dtype: DType) -> None:
    need_double(rt, dtype)
    got, want = both(rt, {"kind": "uniform", "shape": (7, 31), "dtype": dtype})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_normal(rt: Runtime, dtype: DType, mean: float) -> None:
    need_double(rt, dtype)
    got, want = both(rt, {"kind": "normal", "shape": (10007,), "mean": mean, "scale": 0.5, "dtype": dtype})
    np.testing.assert_allclose(got, want, rtol=1e-6 if dtype is DType.FLOAT32 else 1e-12, atol=1e-6 * mean)


@pytest.mark.parametrize(
    "dtype", [DType.FLOAT32, DType.BOOL, DType.INT64, DType.UINT8, DType.FLOAT16, DType.INT16, DType.FLOAT64]
)
def test_bernoulli(rt: Runtime, dtype: DType) -> None:
    need_double(rt, dtype)
    p = np.linspace(0, 1, 503, dtype=np.float32)
    got, want = both(rt, {"kind": "bernoulli", "shape": p.shape, "dtype": dtype}, p)
    np.testing.assert_array_equal(got, want)


def test_half_storage(rt: Runtime) -> None:
    got, want = both(rt, {"kind": "normal", "shape": (101,)}, half=True)
    np.testing.assert_allclose(got, want, rtol=1e-3)
    p = np.linspace(0, 1, 65, dtype=np.float32)
    got, want = both(rt, {"kind": "bernoulli", "shape": p.shape}, p, half=True)
    np.testing.assert_array_equal(got, want)
