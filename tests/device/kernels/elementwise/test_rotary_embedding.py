"""RotaryEmbedding and RotaryAppend: rows of any length, tables that broadcast, strided inputs and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

CASES = [
    ((0, 1, 2, 3), (2, 3, 5), (1, 1, 5)),
    ((0, 1, 2, 3), (2, 3, 5), (5,)),
    ((0, 2, 1, 3), (2, 5, 3), (2, 1, 5)),
    ((2, 1, 0, 3), (3, 7, 2), (2, 7, 1)),
    ((0, 1, 2, 3), (1, 1, 1), (1, 1, 1)),
    ((0, 1, 2, 3), (1, 4, 0), (1, 1, 0)),
]
ROOM, AT = 11, 3


def drawn(outer: tuple[int, ...], table: tuple[int, ...], half: int, columns: int, dtype: str = "float32") -> list[Any]:
    """x and tables."""
    rng = np.random.default_rng(half)
    x = rng.standard_normal((*outer, 2 * half))
    return [a.astype(dtype) for a in (x, *(rng.uniform(-1, 1, (*table, columns * half)) for _ in range(2)))]


def appended(given: list[Any], perm: tuple[int, ...], axis: int) -> tuple[dict[str, Any], list[Any], Any]:
    """Attributes and inputs of RotaryAppend, and where its output is written."""
    shape = [given[0].shape[p] for p in perm]
    shape[axis] += ROOM
    written = np.zeros(shape, bool)
    written[(slice(None),) * axis + (slice(AT, AT + shape[axis] - ROOM),)] = True
    return {"axis": axis, "at": AT, "perm": perm}, [np.zeros(shape, given[0].dtype), *given], written


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("half", [1, 19, 32])
@pytest.mark.parametrize("perm, outer, table", CASES)
def test_rotate(
    rt: Runtime, perm: tuple[int, ...], outer: tuple[int, ...], table: tuple[int, ...], half: int, columns: int
) -> None:
    given = drawn(outer, table, half, columns)
    node = make_node("RotaryEmbedding", {"perm": perm}, given)
    (wanted,) = node.op.reference(given)
    (kernel,) = kernels_for("RotaryEmbedding")
    for params in kernel.points(kernel.problem(node, rt.info)):
        np.testing.assert_allclose(run_node(rt, kernel, node, given, params)[0], wanted, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("half", [1, 19, 32])
@pytest.mark.parametrize("perm, outer, table", CASES)
def test_rotate_append(
    rt: Runtime, perm: tuple[int, ...], outer: tuple[int, ...], table: tuple[int, ...], half: int, axis: int
) -> None:
    """Only what is new is written; the planner has y where the memory lies."""
    attrs, given, written = appended(drawn(outer, table, half, 1), perm, axis)
    node = make_node("RotaryAppend", attrs, given)
    (wanted,) = node.op.reference(given)
    (kernel,) = kernels_for("RotaryAppend")
    for params in kernel.points(kernel.problem(node, rt.info)):
        (got,) = run_node(rt, kernel, node, given, params)
        np.testing.assert_allclose(got[written], wanted[written], atol=1e-6)
        assert np.unique(got[~written].view(np.uint32)).size <= 1, "something else was written"


@pytest.mark.parametrize("seed", range(40))
def test_random(rt: Runtime, seed: int) -> None:
    rng = np.random.default_rng(seed)
    outer, perm = tuple(rng.integers(1, 9, 3).tolist()), (*rng.permutation(3).tolist(), 3)
    table = tuple(outer[p] if rng.random() < 0.6 else 1 for p in perm[:3])[rng.integers(3) :]
    given = drawn(outer, table, int(rng.integers(1, 70)), int(rng.integers(1, 3)))
    attrs, given, written = appended(given, perm, int(rng.integers(3)))
    node = make_node("RotaryAppend", attrs, given)
    (wanted,) = node.op.reference(given)
    (kernel,) = kernels_for("RotaryAppend")
    (got,) = run_node(rt, kernel, node, given)
    np.testing.assert_allclose(got[written], wanted[written], atol=1e-6)
    assert np.unique(got[~written].view(np.uint32)).size == 1, "something else was written"


@pytest.mark.parametrize("precision", [None, DType.FLOAT16])
@pytest.mark.parametrize("op", ["RotaryEmbedding", "RotaryAppend"])
def test_halves(rt: Runtime, op: str, precision: DType | None) -> None:
    """Stored, or the model's own."""
    given = drawn((2, 3, 5), (5,), 19, 1, "float16" if precision is None else "float32")
    written = np.ones(given[0].shape, bool)
    attrs: dict[str, Any] = {}
    if op == "RotaryAppend":
        attrs, given, written = appended(given, (0, 1, 2, 3), 2)
    node = make_node(op, attrs, given, precision=precision)
    (wanted,) = node.op.reference(given)
    (kernel,) = kernels_for(op)
    (got,) = run_node(rt, kernel, node, given)
    np.testing.assert_allclose(got[written], wanted[written], atol=4e-3)
