"""Scatter kernels against the reference: every reduction, duplicates in order, indices outside dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import Kernel, kernels_for
from opalite.ops.scatter import REDUCTIONS

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)

NUMBERS = ["uint8", "int8", "int16", "uint16", "int32", "int64", "uint64", "float32", "float16"]


def check(rt: Runtime, kernel: Kernel, attrs: dict[str, Any], arrays: list[Array], half: bool = False) -> None:
    """Integers agree exactly, floats within their precision; `half` stores float32 in 16 bits."""
    node = make_node(kernel.op, attrs, arrays, precision=DType.FLOAT16 if half else None)
    why = kernel.refuse(kernel.problem(node, rt.info))
    if why is not None:
        assert kernel.tier == "generic", why
        pytest.skip(why)
    (got,) = run_node(rt, kernel, node, arrays)
    (want,) = node.op.reference(arrays)
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
    else:
        scale = np.nanmax(np.abs(want)).astype(np.float64)
        tolerance = 1e-2 if half or want.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), atol=tolerance * scale)


def pairs(op: str) -> list[Any]:
    """Every kernel of `op` with each reduction it takes: those that find the last update know none."""
    return [
        pytest.param(kernel, reduction, id=f"{kernel.name}-{reduction}")
        for kernel in kernels_for(op)
        for reduction in (("none",) if kernel.name.endswith("LastUpdate") else REDUCTIONS)
    ]


def values(shape: tuple[int, ...], dtype: str) -> Array:
    return rng.standard_normal(shape).astype(dtype) if dtype[0] == "f" else rng.integers(0, 50, shape).astype(dtype)


# Every reduction of four types, and of the others two: what differs is how a type is loaded, and whether it has signs.
TYPED = [
    pytest.param(kernel, reduction, dtype, id=f"{kernel.name}-{reduction}-{dtype}")
    for kernel, reduction in (p.values for p in pairs("ScatterElements"))
    for i, dtype in enumerate(NUMBERS)
    if dtype in ("int8", "int64", "float32", "float16")
    or reduction in ("none", *(("add", "max"), ("mul", "min"))[i % 2])
]


@pytest.mark.parametrize("kernel, reduction, dtype", TYPED)
def test_elements(rt: Runtime, kernel: Kernel, reduction: str, dtype: str) -> None:
    x, u = values((5, 7, 11), dtype), values((3, 13, 11), dtype)
    i = rng.integers(-9, 9, u.shape).astype(np.int32)
    check(rt, kernel, {"axis": 1, "reduction": reduction}, [x, i, u])


@pytest.mark.parametrize("kernel, reduction", [p for p in pairs("ScatterElements") if p.values[1] in ("none", "add")])
@pytest.mark.parametrize(
    "shape, indices, axis",
    [((101,), (307,), 0), ((5, 7), (5, 7), 0), ((2, 3, 5, 7), (1, 2, 5, 6), 3), ((37, 17), (3, 17), 0)],
)
def test_elements_of_any_shape(
    rt: Runtime, kernel: Kernel, shape: tuple[int, ...], indices: tuple[int, ...], axis: int, reduction: str
) -> None:
    x, u = values(shape, "float32"), values(indices, "float32")
    i = rng.integers(-shape[axis], shape[axis], indices)
    check(rt, kernel, {"axis": axis, "reduction": reduction}, [x, i, u])


@pytest.mark.parametrize("kernel, reduction", pairs("ScatterND"))
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float16"])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_tuples(rt: Runtime, kernel: Kernel, depth: int, dtype: str, reduction: str) -> None:
    x = values((5, 7, 37), dtype)
    i = rng.integers(-6, 6, (2, 11, depth))
    check(rt, kernel, {"reduction": reduction}, [x, i, values((2, 11, *x.shape[depth:]), dtype)])


def test_float32_stored_in_half(rt: Runtime) -> None:
    x, i, u = values((31,), "float32"), rng.integers(0, 31, 17), values((17,), "float32")
    by_name = {k.name: k for op in ("ScatterElements", "ScatterND") for k in kernels_for(op)}
    check(rt, by_name["ScatterElementsSequential"], {"axis": 0, "reduction": "add"}, [x, i, u], half=True)
    check(rt, by_name["ScatterNDSequential"], {"reduction": "add"}, [x, i[:, None], u], half=True)
    check(rt, by_name["ScatterNDLastUpdate"], {"reduction": "none"}, [x, i[:, None], u], half=True)


@pytest.mark.parametrize("kernel, reduction", pairs("ScatterElements"))
def test_booleans(rt: Runtime, kernel: Kernel, reduction: str) -> None:
    x, u = rng.integers(0, 2, 31).astype(bool), rng.integers(0, 2, 53).astype(bool)
    i = rng.integers(-31, 31, 53)
    check(rt, kernel, {"axis": 0, "reduction": reduction}, [x, i, u])


def test_nan_is_kept_by_maxima(rt: Runtime) -> None:
    x = np.array([np.nan, 1, 2], np.float32)
    u = np.array([5, np.nan, 1], np.float32)
    for kernel in kernels_for("ScatterElements"):
        if not kernel.name.endswith("LastUpdate"):
            check(rt, kernel, {"axis": 0, "reduction": "max"}, [x, np.arange(3), u])


def test_no_updates(rt: Runtime) -> None:
    x = values((5, 3), "float32")
    for kernel in kernels_for("ScatterND"):
        check(rt, kernel, {"reduction": "none"}, [x, np.zeros((0, 1), np.int64), np.zeros((0, 3), np.float32)])
