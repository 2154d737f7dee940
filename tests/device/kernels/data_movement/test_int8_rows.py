"""Floats appended as int8 rows, and rows widened, against the references; odd sizes, positions of each sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.ir.constants.int8_rows import TAIL, from_byte_rows, to_byte_rows
from opalite.ir.dtype import DType
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

rng = np.random.default_rng(9)
(APPEND,) = (k for k in kernels_for("Append") if k.name == "AppendInt8Rows")
(WIDEN,) = kernels_for("DequantizeRows")


@pytest.mark.parametrize(
    "shape, axis, starts, circular, group, dtype",
    [
        ((2, 3, 5, 68), 2, None, False, 1, "float32"),
        ((2, 3, 5, 64), 2, None, False, 32, "float16"),
        ((2, 3, 2, 20), 2, [11, 0], True, 1, "float32"),
        ((2, 4, 3, 132), 1, [11, -1], False, 32, "float32"),
    ],
)
def test_append(
    rt: Runtime,
    shape: tuple[int, ...],
    axis: int,
    starts: list[int] | None,
    circular: bool,
    group: int,
    dtype: str,
) -> None:
    new = rng.standard_normal(shape).astype(dtype)
    new[0, 0, 0], new[1, 1, 1, 3] = 0, np.nan
    new[1, 0, 1] *= 1e3
    room = (*shape[:axis], 13, *shape[axis + 1 : -1], shape[-1] + TAIL)
    given: list[Any] = [np.zeros(room, np.int8), new]
    given += [] if starts is None else [np.array(starts)]
    node = make_node("Append", {"axis": axis, "at": 4 if starts is None else 0, "circular": circular}, given)
    (got,) = run_node(rt, APPEND, node, given, {"WG": group})
    (want,) = node.op.reference(given)
    # Only what is new is written; the planner has y where x lies.
    written = node.op.reference([np.zeros_like(given[0]), np.ones_like(new), *given[2:]])[0][..., -1:] != 0
    found, wanted = (from_byte_rows(np.where(written, a, 0)) for a in (got, want))
    step = np.nan_to_num(np.abs(wanted)).max(-1, keepdims=True) / 127
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert (np.nan_to_num(np.abs(found - wanted)) <= step * 1.01).all()  # a tie may be rounded either way
    assert (np.nan_to_num(np.abs(found - wanted)) > 1e-3 * step).mean() < 1e-3


@pytest.mark.parametrize("shape, axis, half", [((2, 3, 7, 68), 2, False), ((3, 5, 2, 20), 1, True)])
def test_widen(rt: Runtime, shape: tuple[int, ...], axis: int, half: bool) -> None:
    x = to_byte_rows(rng.standard_normal(shape).astype(np.float32))
    node = make_node("DequantizeRows", {"axis": axis, "size": 4, "half": half}, [x])
    (got,) = run_node(rt, WIDEN, node, [x])
    np.testing.assert_allclose(got, node.op.reference([x])[0], rtol=1e-3 if half else 1e-6)
    if not half:
        node = make_node("DequantizeRows", {"axis": axis, "size": 4}, [x], precision=DType.FLOAT16)
        np.testing.assert_allclose(run_node(rt, WIDEN, node, [x])[0], node.op.reference([x])[0], rtol=1e-3)
