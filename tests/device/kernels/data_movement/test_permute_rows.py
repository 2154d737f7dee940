"""PermuteRows: rows of any length and element type, some taken twice, some zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opalite.cl.runtime import Runtime
from opalite.errors import ShapeError
from opalite.kernel.testing.single_node import make_node, run_node
from opalite.kernels.kernel import kernels_for

ROWS = [1, 3, 6, 8, 37, 128]
PATCHES = [["reshape", [7, 2, 5, 2, 1]], ["transpose", [0, 2, 1, 3, 4]], ["reshape", [35, 4]]]
ROLLED = [
    [
        "concat",
        0,
        [[["slice", [9, 0, 0], [1, 1, 1], [5, 10, 1]]], [["slice", [0, 0, 0], [1, 1, 1], [9, 10, 1]]]],
    ]
]
PADDED = [["slice", [1, 8, 0], [3, -2, 1], [4, 5, 1]], ["pad", [1, 0, 0, 0, 2, 0]], ["take", 1, [6, 0, 0, 3]]]
CASES: list[tuple[list[Any], tuple[int, ...]]] = [(PATCHES, (35, -1)), (ROLLED, (14, 10, -1)), (PADDED, (5, 4, -1))]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float32", "int64"])
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("steps, shape", CASES, ids=["patches", "rolled", "padded"])
def test_move_rows(rt: Runtime, steps: list[Any], shape: tuple[int, ...], row: int, dtype: str) -> None:
    x = np.random.default_rng(row).integers(1, 100, (14, 10, row)).astype(dtype)
    wide = 4 * row if steps is PATCHES else row
    node = make_node("PermuteRows", {"shape": (*shape[:-1], wide), "row": row, "steps": steps}, [x])
    wanted = node.op.reference([x])[0]
    (kernel,) = kernels_for("PermuteRows")
    # Each number of rows at a time with each length and each type, not with each of both.
    points = list(kernel.points(kernel.problem(node, rt.info)))
    params = points[(ROWS.index(row) + x.itemsize.bit_length()) % len(points)]
    np.testing.assert_array_equal(run_node(rt, kernel, node, [x], params)[0], wanted)


def test_steps_are_what_numpy_does() -> None:
    x = np.random.default_rng(3).standard_normal((14, 10, 4)).astype(np.float32)
    rolled = make_node("PermuteRows", {"shape": x.shape, "row": 4, "steps": ROLLED}, [x]).op.reference([x])[0]
    np.testing.assert_array_equal(rolled, np.roll(x, 5, 0))
    padded = make_node("PermuteRows", {"shape": (5, 4, 4), "row": 4, "steps": PADDED}, [x]).op.reference([x])[0]
    plain = np.pad(x[1:11:3, 8::-2], [(1, 0), (0, 2), (0, 0)])[:, [6, 0, 0, 3]]
    np.testing.assert_array_equal(padded, plain)


@pytest.mark.parametrize(
    "attrs, reason",
    [
        ({"shape": (5, 6), "row": 4, "steps": []}, "do not divide"),
        ({"shape": (5, 7), "row": 3, "steps": []}, "30 elements"),
        ({"shape": (5, 6), "row": 3, "steps": [["turn", [1, 0]]]}, "no step"),
    ],
)
def test_bad_attributes(attrs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        make_node("PermuteRows", attrs, [np.zeros((5, 6), np.float32)])
