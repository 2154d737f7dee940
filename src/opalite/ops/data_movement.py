"""Operators that move elements without arithmetic: Reshape, Transpose, Slice, Concat, Pad."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from ..ir.tensor_type import Shape, TensorType
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor


class _Movement(Op):
    """Base class of operators that only move bytes."""

    __slots__ = ()

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(0.0, 2.0 * moved_bytes((), outs))


@frozen_op
class Reshape(_Movement):
    """The same elements in row-major order under another shape: a view."""

    shape: Shape

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        count = math.prod(self.shape)
        need(count == x.count, f"cannot reshape {x} with {x.count!r} elements to {self.shape} with {count!r}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, self.shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        return [present(arrays, 1)[0].reshape(self.shape)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(0.0, 0.0)


@frozen_op
class Transpose(_Movement):
    """y's axis i is x's axis perm[i]."""

    perm: tuple[int, ...]

    def check_shape(self, ins: Types) -> None:
        x, perm = tensor(ins, 0, "x"), self.perm
        need(sorted(perm) == list(range(x.rank)), f"perm {perm} does not permute the {x.rank} axes of {x}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(x.dtype, [x.shape[p] for p in self.perm])]

    def reference(self, arrays: Arrays) -> list[Array]:
        return [np.ascontiguousarray(present(arrays, 1)[0].transpose(self.perm))]


@frozen_op
class Slice(_Movement):
    """y[i] = x[starts + steps * i], along every axis of x; `sizes` is the shape of y."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    sizes: Shape

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        for what, got in (("starts", self.starts), ("steps", self.steps), ("sizes", self.sizes)):
            need(len(got) == x.rank, f"{what} {got} needs one entry for each axis of {x}")
        each = zip(self.starts, self.steps, self.sizes, x.shape, strict=True)
        for axis, (start, step, size, extent) in enumerate(each):
            if size:
                last = start + step * (size - 1)
                fits = size > 0 and 0 <= start < extent and 0 <= last < extent
                need(fits, f"slice of axis {axis} reads {start!r} to {last!r} of {extent!r} elements")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        return [make_type(tensor(ins, 0, "x").dtype, self.sizes)]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        for axis, (start, step, size) in enumerate(zip(self.starts, self.steps, self.sizes, strict=True)):
            x = np.take(x, start + step * np.arange(size), axis=axis)
        return [np.ascontiguousarray(x)]


@frozen_op
class Concat(_Movement):
    """Inputs one after another along `axis`."""

    axis: int

    def check_shape(self, ins: Types) -> None:
        first, axis = tensor(ins, 0, "first input"), self.axis
        need(0 <= axis < first.rank, f"axis {axis} is not an axis of {first}")
        for i in range(1, len(ins)):
            t = tensor(ins, i, "input to join")
            pairs = enumerate(zip(t.shape, first.shape, strict=False))
            same = t.rank == first.rank and all(a == b for k, (a, b) in pairs if k != axis)
            need(same and t.dtype is first.dtype, f"input {i} {t} does not fit {first} off axis {axis}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        shape = list(tensor(ins, 0, "first input").shape)
        shape[self.axis] = sum(t.shape[self.axis] for t in ins if t is not None)
        return [make_type(tensor(ins, 0, "first input").dtype, shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        return [np.concatenate([a for a in arrays if a is not None], axis=self.axis)]


@frozen_op
class Pad(_Movement):
    """x inside a border. pads: begins, then ends, all >= 0.

    mode: constant (of `value`), reflect, edge, wrap, or symmetric: reflected with the outermost elements.
    """

    pads: tuple[int, ...]
    mode: str
    value: float

    def check_shape(self, ins: Types) -> None:
        x, pads, mode = tensor(ins, 0, "x"), self.pads, self.mode
        need(mode in ("constant", "reflect", "edge", "wrap", "symmetric"), f"padding mode {mode!r} is not known")
        need(len(pads) == 2 * x.rank and all(p >= 0 for p in pads), f"pads {pads} do not fit {x}")
        for axis, extent in enumerate(x.shape):
            serves = mode == "constant" or extent or not (pads[axis] or pads[axis + x.rank])
            need(serves, f"axis {axis} of {x} has nothing to pad with ({mode})")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, pads = tensor(ins, 0, "x"), self.pads
        return [make_type(x.dtype, [d + pads[i] + pads[i + x.rank] for i, d in enumerate(x.shape)])]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        widths = list(zip(self.pads[: x.ndim], self.pads[x.ndim :], strict=True))
        if self.mode == "constant":
            return [np.pad(x, widths, "constant", constant_values=self.value)]
        return [np.pad(x, widths, cast(Any, self.mode))]
