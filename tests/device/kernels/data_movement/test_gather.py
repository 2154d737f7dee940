"""Gather kernels move elements bit by bit, whatever their type; indices from the end, and outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(7)


def check(
    rt: Runtime,
    op: str,
    attrs: dict[str, Any],
    arrays: list[Array],
    params: dict[str, int] | None = None,
) -> None:
    """The output of each kernel, or of the one that has `params`, equals the reference's."""
    node = make_node(op, attrs, arrays)
    for kernel in kernels_for(op):
        if params is None or kernel.space.keys() == params.keys():
            (got,) = run_node(rt, kernel, node, arrays, params)
            np.testing.assert_array_equal(got, node.op.reference(arrays)[0], kernel.name)


def any_indices(size: int, shape: tuple[int, ...], dtype: str = "int64") -> Array:
    """Indices of all kinds: from either end, some outside."""
    return rng.integers(-size - 2, size + 2, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64", "bool"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather(rt: Runtime, axis: int, dtype: str) -> None:
    x = rng.integers(0, 100, (5, 7, 37)).astype(dtype)
    check(rt, "Gather", {"axis": axis}, [x, any_indices(x.shape[axis], (3, 5), "int32")])


@pytest.mark.parametrize("inner", [1, 3, 16, 67, 1031])
@pytest.mark.parametrize("params", [{"VEC": 4, "UNROLL": 1, "WG": 64}, {"VEC": 16, "UNROLL": 4, "WG": 64}])
def test_gather_rows_of_any_length(rt: Runtime, inner: int, params: dict[str, int]) -> None:
    x = rng.standard_normal((13, inner)).astype(np.float32)
    check(rt, "Gather", {"axis": 0}, [x, any_indices(13, (29,))], params)


def test_gather_by_a_scalar_index(rt: Runtime) -> None:
    check(rt, "Gather", {"axis": 1}, [rng.standard_normal((3, 5, 7)), np.array(-2)])


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    "shape, indices, axis",
    [
        ((5, 7, 11), (5, 7, 13), 2),
        ((5, 7, 11), (5, 3, 11), 1),
        ((5, 7, 11), (2, 7, 11), 0),
        ((5, 7, 11), (3, 5, 2), 1),
        ((2, 3, 5, 7), (1, 2, 11, 5), 2),
        ((17,), (101,), 0),
    ],
)
def test_gather_elements(
    rt: Runtime, shape: tuple[int, ...], indices: tuple[int, ...], axis: int, index_dtype: str
) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    check(rt, "GatherElements", {"axis": axis}, [x, any_indices(shape[axis], indices, index_dtype)])


@pytest.mark.parametrize(
    "shape, indices, batch",
    [
        ((5, 7, 37), (11, 2), 0),
        ((5, 7, 37), (2, 3, 1), 0),
        ((5, 7, 37), (13, 3), 0),
        ((5, 7, 37), (5, 3, 1), 1),
        ((5, 7, 37), (5, 7, 3, 1), 2),
        ((5, 7), (3, 0), 0),
    ],
)
def test_gather_nd(rt: Runtime, shape: tuple[int, ...], indices: tuple[int, ...], batch: int) -> None:
    x = rng.integers(0, 1000, shape).astype(np.int16)
    check(rt, "GatherND", {"batch_dims": batch}, [x, any_indices(6, indices)])


def test_sizes_build_nothing_new(rt: Runtime) -> None:
    (kernel,) = [k for k in kernels_for("Gather") if k.tier == "optimized"]
    built = []
    for inner in (8, 31):
        node = make_node("Gather", {"axis": 0}, [np.zeros((5, inner), np.float32), np.zeros(3, np.int64)])
        (launch,) = kernel.launch(kernel.problem(node, rt.info), kernel.defaults(kernel.problem(node, rt.info)))
        built.append((launch.defines, launch.prelude))
    assert built[0] == built[1]
