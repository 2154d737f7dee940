"""RotaryAppend is Append of what RotaryEmbedding gives; what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.errors import ShapeError
from opalite.ir.dtype import DType
from opalite.ir.tensor_type import TensorType
from opalite.ops.append import Append
from opalite.ops.rotary_embedding import RotaryAppend, RotaryEmbedding

from .oracles import ours

rng = np.random.default_rng(17)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("axis, room", [(0, (7, 3, 5, 8)), (1, (2, 7, 5, 8)), (2, (2, 3, 9, 8))])
def test_what_is_rotated_is_appended(axis: int, room: tuple[int, ...], dtype: str) -> None:
    memory, new = rng.standard_normal(room).astype(dtype), rng.standard_normal((2, 5, 3, 8)).astype(dtype)
    tables = [rng.uniform(-1, 1, (5, 4)).astype(dtype) for _ in range(2)]
    (got,) = ours("RotaryAppend", [memory, new, *tables], axis=axis, at=3, perm=(0, 2, 1, 3))
    (turned,) = RotaryEmbedding((0, 2, 1, 3)).reference([new, *tables])
    np.testing.assert_array_equal(got, Append(axis, 3).reference([memory, turned])[0])


@pytest.mark.parametrize(
    "op, shapes, message",
    [
        (RotaryAppend(2, 0), ((2, 3, 9, 8), (2, 3, 5, 7)), "even number"),
        (RotaryAppend(2, 0), ((2, 3, 9, 8), (2, 3, 4, 8)), "do not broadcast"),
        (RotaryAppend(2, 0), ((2, 4, 9, 8), (2, 3, 5, 8)), "off axis 2"),
        (RotaryAppend(2, 0, (0, 2, 1, 3)), ((2, 3, 9, 8), (2, 3, 5, 8)), "do not broadcast"),
        (RotaryAppend(2, 0), ((3, 9, 8), (2, 3, 5, 8)), "does not fit"),
        (RotaryAppend(3, 0), ((2, 3, 5, 9), (2, 3, 5, 8)), "axis 3"),
        (RotaryAppend(-1, 0), ((2, 3, 5, 9), (2, 3, 5, 8)), "axis -1"),
    ],
)
def test_what_does_not_fit(op: RotaryAppend, shapes: Any, message: str) -> None:
    ins = [TensorType(DType.FLOAT32, s) for s in (*shapes, (5, 4), (5, 4))]
    with pytest.raises(ShapeError, match=message):
        op.check_shape(ins)


@pytest.mark.parametrize("memory", [DType.INT8, DType.FLOAT16])
def test_memory_is_of_the_type_of_the_rows(memory: DType) -> None:
    ins = [TensorType(DType.FLOAT32, s) for s in ((1, 1, 1, 8), (1, 4), (1, 4))]
    with pytest.raises(ShapeError, match="must be as x"):
        RotaryAppend(2, 0).check_shape([TensorType(memory, (1, 1, 4, 8)), *ins])
