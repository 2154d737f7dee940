"""Reductions against NumPy, over every pattern of axes, packed tensors included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.expr.trace_function import trace
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels import kernels_for
from opalite.ops.reduce import KINDS

from ....helpers.pairs import pairwise

PATTERNS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((37,), (0,)),
    ((5, 67), (1,)),
    ((67, 5), (0,)),
    ((3, 7, 19), (1,)),
    ((3, 7, 19), (0, 2)),
    ((2, 3, 5, 7), (1, 3)),
    ((2, 3, 2, 5, 2, 3), (0, 2, 4)),
    ((2, 3, 2, 5, 2, 3), (1, 3, 5)),
    ((4, 1, 3), (1,)),
    ((4, 3), ()),
    ((2, 3, 2, 3, 2, 3, 2, 3, 2), (0, 2, 4, 6, 8)),
    ((0, 3), (0,)),
    ((3, 0), (1,)),
    ((3, 0, 2), (0, 1)),
    ((0, 3), (1,)),
    ((), ()),
]


def check(rt: Runtime, op: str, attrs: dict[str, Any], x: Any, tolerance: float) -> None:
    plain = make_node(op, attrs, [x])
    want = plain.op.reference([x])[0]
    for kernel in kernels_for(op):
        if kernel.refuse(kernel.problem(plain, rt.info)) is not None:
            continue
        for binding in kernel.bindings(kernel.problem(plain, rt.info)):
            node = make_node(op, attrs, [x], binding=binding)
            got = run_node(rt, kernel, node, [x])[0]
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=kernel.name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape, axes", PATTERNS)
def test_reduce(rt: Runtime, kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(shape) + len(axes))
    x = (rng.random(shape) + 0.5).astype(np.float32)
    check(rt, "Reduce", {"kind": kind, "axes": axes, "keepdims": bool(len(shape) % 2)}, x, 1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod", "l1", "sumsq"])
def test_element_types(rt: Runtime, kind: str, dtype: Any) -> None:
    x = np.random.default_rng(3).integers(-3, 4, (3, 11, 5)).astype(dtype)
    check(rt, "Reduce", {"kind": kind, "axes": (1,), "keepdims": False}, x, 1e-2 if dtype is np.float16 else 1e-6)


@pytest.mark.parametrize("kind", ["mean", "max", "l2"])
def test_spatial_axes_of_packed_tensors(rt: Runtime, kind: str) -> None:
    x = np.random.default_rng(4).standard_normal((2, 21, 5, 7)).astype(np.float32)
    check(rt, "Reduce", {"kind": kind, "axes": (2, 3), "keepdims": True}, x, 1e-5)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_is_handed_on(rt: Runtime, kind: str) -> None:
    x = np.random.default_rng(5).standard_normal((4, 40)).astype(np.float32)
    x[1, 7] = x[2, 39] = np.nan
    for axes in ((0,), (1,)):
        check(rt, "Reduce", {"kind": kind, "axes": axes, "keepdims": False}, x, 0)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint32", "float32"])
@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "prod"])
def test_reductions_of_nothing_give_the_identity(rt: Runtime, kind: str, dtype: str) -> None:
    x = np.zeros((3, 0, 2), dtype)
    check(rt, "Reduce", {"kind": kind, "axes": (1,), "keepdims": True}, x, 0)


@pytest.mark.parametrize("shape, axes", [((2, 1 << 20), (1,)), ((1 << 20, 2), (0,)), ((1 << 10, 3, 1 << 10), (0, 2))])
@pytest.mark.parametrize("kind", ["sum", "mean", "l2", "max"])
def test_long_reductions_stay_accurate(rt: Runtime, kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(8).random(shape, np.float32)
    check(rt, "Reduce", {"kind": kind, "axes": axes, "keepdims": False}, x, 5e-6)


@pytest.mark.parametrize(
    "shape, axes, keepdims, params",
    [
        ((3, 1031), (1,), True, {"PACK": 4, "WG": 1, "ROWS": 2, "PARTS": 8}),
        ((3, 1031), (1,), False, {"PACK": 16, "WG": 1, "ROWS": 1, "PARTS": 1}),
        ((3, 5, 131), (1, 2), True, {"PACK": 1, "WG": 1, "ROWS": 1, "PARTS": 2}),
        ((3, 131, 37), (1,), True, {"PACK": 16, "LX": 2, "LY": 1, "PARTS": 4}),
        ((131, 5, 7), (0,), False, {"PACK": 8, "LX": 1, "LY": 1, "PARTS": 16}),
    ],
)
@pytest.mark.parametrize("kind", ["mean", "max"])
def test_parameters(rt: Runtime, kind: str, shape: Any, axes: Any, keepdims: bool, params: dict[str, int]) -> None:
    attrs = {"kind": kind, "axes": axes, "keepdims": keepdims}
    x = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    node = make_node("Reduce", attrs, [x])
    (kernel,) = (k for k in kernels_for("Reduce") if k.space.keys() == params.keys())
    assert kernel.illegal(kernel.problem(node, rt.info), params) is None
    (got,) = run_node(rt, kernel, node, [x], params)
    np.testing.assert_allclose(got, node.op.reference([x])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "shape, axes, keepdims",
    [
        ((3, 5, 37), (2,), False),
        ((3, 5, 37), (2,), True),
        ((3, 17, 5, 7), (1,), True),
        ((2, 21, 5, 7), (2, 3), True),
        ((2, 21, 5, 7), (2,), True),
        ((2, 21, 5, 7), (0, 1, 2, 3), False),
    ],
)
def test_epilogue(rt: Runtime, shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> None:
    """(mean + 0.5) * operand, where the operand is like the output."""
    rng = np.random.default_rng(10)
    x = rng.standard_normal(shape).astype(np.float32)
    plain = {"kind": "mean", "axes": axes, "keepdims": keepdims}
    mean = make_node("Reduce", plain, [x]).op.reference([x])[0]
    other = rng.standard_normal(mean.shape).astype(np.float32)
    attrs = {**plain, "epilogue": trace(lambda m, o: (m + 0.5) * o, DType.FLOAT32, DType.FLOAT32)}
    served = 0
    for kernel in kernels_for("Reduce"):
        node = make_node("Reduce", attrs, [x, other])
        if kernel.refuse(kernel.problem(node, rt.info)) is not None:
            continue
        for binding in kernel.bindings(kernel.problem(node, rt.info)):
            node = make_node("Reduce", attrs, [x, other], binding=binding)
            (got,) = run_node(rt, kernel, node, [x, other])
            np.testing.assert_allclose(got, (mean + np.float32(0.5)) * other, rtol=1e-5, atol=1e-5, err_msg=kernel.name)
            served += 1
    assert served


def test_half_storage(rt: Runtime) -> None:
    x = np.random.default_rng(11).random((5, 67), np.float32)
    for kernel in kernels_for("Reduce"):
        for axis in (0, 1):
            attrs = {"kind": "mean", "axes": (axis,), "keepdims": True}
            node = make_node("Reduce", attrs, [x], precision=DType.FLOAT16)
            if kernel.refuse(kernel.problem(node, rt.info)) is None:
                (got,) = run_node(rt, kernel, node, [x])
                np.testing.assert_allclose(got, node.op.reference([x])[0], rtol=2e-3)


@pytest.mark.parametrize("stored", [DType.FLOAT16, DType.FLOAT32])
@pytest.mark.parametrize("kind", ["mean", "l2", "logsumexp"])
@pytest.mark.parametrize("shape, axes", [((5, 67), (1,)), ((5, 67), (0,)), ((3, 70, 9), (0, 2)), ((2, 1 << 17), (1,))])
def test_halves_are_reduced_to_floats_and_back(
    rt: Runtime, kind: str, stored: DType, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    """x is stored as the result is not."""
    x = np.random.default_rng(11).random(shape, np.float32)
    x = x.astype(np.float16).astype(np.float32)
    served = 0
    for kernel in kernels_for("Reduce"):
        attrs = {"kind": kind, "axes": axes, "keepdims": True}
        node = make_node("Reduce", attrs, [x], precision=DType.FLOAT32 if stored is DType.FLOAT16 else DType.FLOAT16)
        if kernel.tier != "optimized" or kernel.refuse(kernel.problem(node, rt.info)) is not None:
            continue
        assert kernel.takes(0, stored, node.y.type.storage) or kernel.images_only
        node.x.type = node.x.type.with_place(node.x.type.place.with_precision(stored))
        (got,) = run_node(rt, kernel, node, [x])
        np.testing.assert_allclose(got, node.op.reference([x])[0], rtol=1e-5 if stored is DType.FLOAT16 else 2e-3)
        served += not kernel.images_only
    assert served


@pytest.mark.parametrize(
    "kind, last, axis, dtype",
    pairwise(["max", "min"], [False, True], [0, 1, 2], [np.float32, np.float64, np.int32, np.uint8, np.int64]),
)
def test_arg_reduce(rt: Runtime, kind: str, last: bool, axis: int, dtype: Any) -> None:
    x = np.random.default_rng(6).integers(0, 4, (5, 13, 37)).astype(dtype)
    check(rt, "ArgReduce", {"kind": kind, "axis": axis, "keepdims": True, "select_last": last}, x, 0)


@pytest.mark.parametrize("columns", [1, 2, 3, 5, 8, 15, 16, 17])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_arg_reduce_of_short_rows(rt: Runtime, columns: int, dtype: Any) -> None:
    x = np.random.default_rng(columns).integers(0, 3, (203, columns)).astype(dtype)
    for kind in ("max", "min"):
        for last in (False, True):
            check(rt, "ArgReduce", {"kind": kind, "axis": 1, "keepdims": False, "select_last": last}, x, 0)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_arg_reduce_of_nan_and_infinities(rt: Runtime, kind: str, last: bool) -> None:
    x = np.random.default_rng(7).standard_normal((37, 41)).astype(np.float32)
    x[3, 5] = x[3, 29] = x[30, 7] = np.nan
    x[11] = -np.inf
    x[:, 11] = np.inf
    for axis in (0, 1):
        check(rt, "ArgReduce", {"kind": kind, "axis": axis, "keepdims": False, "select_last": last}, x, 0)
