"""PermuteRows: a row permutation, the result of any chain of movements that keeps rows whole.

The chain is stored as steps on a tensor of row numbers, which hold for all sizes:

    ("reshape", shape)                  ("transpose", perm)         ("slice", starts, steps, sizes)
    ("take", axis, indices)             ("expand", shape)           ("pad", pads)   rows of zeros around it
    ("concat", axis, branches)          each branch is a chain of its own on the same tensor
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..ir.symbols import is_symbolic
from ..ir.tensor_type import Shape, TensorType
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor

Step = tuple[Any, ...]
Steps = tuple[Step, ...]

NONE = -1
"""Table entry of a row of zeros."""


@frozen_op
class PermuteRows(Op):
    """Row i of y is row t[i] of x, or zeros; the table t is the result of `steps` on x's row numbers.

    Input x of any type, whose last dimension is a multiple of `row` elements, the length of a row. y has the shape
    `shape`.
    """

    shape: Shape
    row: int
    steps: Steps

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _tuples(self.steps))

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(x.rank >= 1, f"x must have an axis, got {x}")
        need(self.row >= 1 and x.shape[-1] % self.row == 0, f"rows of {self.row} elements do not divide {x}")
        count = math.prod(moved_shape(self.rows_shape(x.shape), self.steps)) * self.row
        need(count == math.prod(self.shape), f"the steps give {count!r} elements for {self.shape}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, self.shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        table = row_table(self.rows_shape(x.shape), self.steps)
        rows = x.reshape(-1, self.row)
        y = np.zeros((table.size, self.row), x.dtype)
        y[table != NONE] = rows[table[table != NONE]]
        return [y.reshape(self.shape)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(0.0, 2.0 * moved_bytes((), outs) + 4.0 * outs[0].count / self.row)

    def rows_shape(self, shape: Shape) -> Shape:
        """The shape of the tensor of row numbers, for x of `shape`."""
        return (*shape[:-1], shape[-1] // self.row)


def row_table(shape: Shape, steps: Steps) -> Array:
    """int32[rows of y]: the source row in x, or NONE. shape: of the tensor of x's row numbers."""
    return _table(tuple(shape), _tuples(steps))


@lru_cache(maxsize=256)
def _table(shape: Shape, steps: Steps) -> Array:
    numbers = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    table = np.ascontiguousarray(_moved(numbers, steps)).reshape(-1)
    table.flags.writeable = False
    return table


def table_of(op: PermuteRows, x: Shape) -> Array | None:
    """The table of a PermuteRows on x of shape `x`; None if it depends on symbolic sizes."""
    return None if is_symbolic((x, op.shape, op.steps)) else row_table(op.rows_shape(x), op.steps)


def _moved(a: Array, steps: Steps) -> Array:
    for step in steps:
        match step:
            case ("reshape", shape):
                a = a.reshape(shape)
            case ("transpose", perm):
                a = a.transpose(perm)
            case ("slice", starts, strides, sizes):
                for axis, (start, stride, size) in enumerate(zip(starts, strides, sizes, strict=True)):
                    a = np.take(a, start + stride * np.arange(size), axis=axis)
            case ("take", axis, indices):
                a = np.take(a, np.array(indices, np.int64), axis=axis)
            case ("expand", shape):
                a = np.broadcast_to(a, shape)
            case ("pad", pads):
                widths = list(zip(pads[: a.ndim], pads[a.ndim :], strict=True))
                a = np.pad(a, widths, constant_values=NONE)
            case ("concat", axis, branches):
                a = np.concatenate([_moved(a, branch) for branch in branches], axis)
            case _:
                raise ValueError(f"{step[0]!r} is no step of PermuteRows")
    return a


def moved_shape(shape: Shape, steps: Steps) -> Shape:
    """The shape after `steps` on a tensor of `shape`."""
    for step in steps:
        match step:
            case ("reshape" | "expand", new):
                shape = new
            case ("transpose", perm):
                shape = tuple(shape[p] for p in perm)
            case ("slice", _, _, sizes):
                shape = sizes
            case ("take", axis, indices):
                shape = (*shape[:axis], len(indices), *shape[axis + 1 :])
            case ("pad", pads):
                shape = tuple(d + pads[i] + pads[i + len(shape)] for i, d in enumerate(shape))
            case ("concat", axis, branches):
                parts = [moved_shape(shape, branch) for branch in branches]
                shape = (*parts[0][:axis], sum(p[axis] for p in parts), *parts[0][axis + 1 :])
            case _:
                need(False, f"{step[0]!r} is no step of PermuteRows")
    return shape


def scaled(steps: Steps, up: int, down: int) -> Steps:
    """`steps` on rows that are shorter by the factor `up` / `down`: the last axis counts more row numbers."""

    def last(sizes: Sequence[int]) -> tuple[int, ...]:
        return (*sizes[:-1], sizes[-1] * up // down)

    made: list[Step] = []
    for step in steps:
        match step:
            case ("reshape" | "expand" as kind, shape):
                made.append((kind, last(shape)))
            case ("slice", starts, strides, sizes):
                made.append(("slice", last(starts), strides, last(sizes)))
            case ("pad", pads):
                rank = len(pads) // 2
                made.append(("pad", (*last(pads[:rank]), *last(pads[rank:]))))
            case ("concat", axis, branches):
                made.append(("concat", axis, tuple(scaled(branch, up, down) for branch in branches)))
            case _:
                made.append(step)
    return tuple(made)


def _tuples(x: Any) -> Any:
    return tuple(_tuples(i) for i in x) if isinstance(x, list | tuple) else x
