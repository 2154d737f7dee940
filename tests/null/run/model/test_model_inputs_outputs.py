"""Shapes guessed for open dimensions."""

from __future__ import annotations

import pytest

from opalite.ir.dtype import DType
from opalite.run.model.model_inputs_outputs import LENGTH, PICTURE, NodeArg, example_shapes

Dims = tuple[int | str | None, ...]


@pytest.mark.parametrize(
    "dims, dtype, expected",
    [
        (("N", 3, "H", "W"), DType.FLOAT32, (1, 3, PICTURE, PICTURE)),
        ((None, None, None, 3), DType.UINT8, (1, PICTURE, PICTURE, 3)),
        (("N", 64, None, None), DType.FLOAT32, (1, 64, 1, 1)),
        (("batch", "sequence"), DType.INT64, (1, LENGTH)),
        ((2, "batch_size", 128), DType.FLOAT32, (2, 1, 128)),
        ((5, 7), DType.FLOAT32, (5, 7)),
        ((), DType.FLOAT32, ()),
    ],
)
def test_guesses(dims: Dims, dtype: DType, expected: tuple[int, ...]) -> None:
    assert example_shapes([NodeArg("x", "tensor", dims, dtype)]) == {"x": expected}


def test_dimensions_of_one_name_are_equal() -> None:
    ids, mask = (NodeArg(n, "tensor", ("b", "s"), DType.INT64) for n in ("ids", "mask"))
    hidden = NodeArg("hidden", "tensor", ("b", "s", 64), DType.FLOAT32)
    assert example_shapes([ids, mask, hidden]) == {"ids": (1, LENGTH), "mask": (1, LENGTH), "hidden": (1, LENGTH, 64)}
