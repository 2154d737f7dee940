"""RotaryEmbedding, which rotates pairs of elements of each row by angles of its position, and RotaryAppend."""

from __future__ import annotations

import numpy as np

from ..ir.symbols import always_equal
from ..ir.tensor_type import TensorType
from .append import Append
from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, broadcast_shape, frozen_op, make_type, need, present, tensor


@frozen_op
class RotaryEmbedding(Op):
    """Rotary embedding of the two halves of each row (Su et al., 2021, RoFormer).

    y[.., d] = x[.., d] cos[.., d] - x[.., d + n] sin[.., d] and y[.., d + n] = x[.., d + n] cos[.., e] + x[.., d]
    sin[.., e] for d < n, half of a row. Inputs x, of rank 4 with rows of 2 n elements; cos and sin of one shape that
    broadcasts against y but for the last axis, which has n elements (e = d) or 2 n (e = d + n). Attributes: perm, which
    keeps the last axis last: the order of x's axes in y.
    """

    perm: tuple[int, int, int, int] = (0, 1, 2, 3)

    arity = 3
    flops = 3.0

    def check_shape(self, ins: Types) -> None:
        x, cos, sin = tensor(ins, 0, "x"), tensor(ins, 1, "cosines"), tensor(ins, 2, "sines")
        need(x.rank == 4 and x.dtype.is_float, f"x must be a float tensor of rank 4, got {x}")
        need(sorted(self.perm) == [0, 1, 2, 3] and self.perm[3] == 3, f"perm {self.perm} moves elements of rows")
        need(type(x.shape[3]) is int and x.shape[3] % 2 == 0, f"x must have an even number of elements, got {x}")
        need(cos.dtype is x.dtype and sin.dtype is x.dtype, f"cosines and sines must be as x, got {cos}, {sin} and {x}")
        columns = (x.shape[3] // 2, x.shape[3])
        fits = 1 <= cos.rank <= 4 and cos.shape == sin.shape and cos.shape[-1] in columns
        need(fits, f"cosines and sines must have {columns[0]} or {columns[1]} columns, got {cos} and {sin}")
        outer = tuple(x.shape[i] for i in self.perm[:3])
        whole = broadcast_shape([outer, cos.shape[:-1]])
        same = all(always_equal(a, b) for a, b in zip(whole, outer, strict=True))
        need(same, f"cosines {cos} do not fit the rows {list(outer)}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(x.dtype, tuple(x.shape[i] for i in self.perm))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, cos, sin = present(arrays, 3)
        acc, half = compute_dtype(x.dtype), x.shape[3] // 2
        rows, c, s = x.transpose(self.perm).astype(acc), cos.astype(acc), sin.astype(acc)
        low, high = rows[..., :half], rows[..., half:]
        y = [low * c[..., :half] - high * s[..., :half], high * c[..., -half:] + low * s[..., -half:]]
        return [np.concatenate(y, -1).astype(x.dtype)]


@frozen_op
class RotaryAppend(Op):
    """y = x with RotaryEmbedding(new, cos, sin) written from position `at` on along `axis`.

    Inputs x, of rank 4; new, cos and sin, as RotaryEmbedding's, new of the type of x. Attributes: axis, not the last
    one, and at, as Append's; perm, as RotaryEmbedding's. y shares the memory of x: no other node may read x.
    """

    axis: int
    at: int
    perm: tuple[int, int, int, int] = (0, 1, 2, 3)

    arity = 4
    in_place = True

    def check_shape(self, ins: Types) -> None:
        x, new = tensor(ins, 0, "x"), tensor(ins, 1, "new")
        RotaryEmbedding(self.perm).check_shape(ins[1:])
        need(0 <= self.axis < 3, f"axis {self.axis} is not one of rows")
        need(x.dtype is new.dtype, f"new must be as x, got {new} and {x}")
        Append(self.axis, self.at).check_shape([x, *RotaryEmbedding(self.perm).infer_shape(ins[1:])])

    def reference(self, arrays: Arrays) -> list[Array]:
        return Append(self.axis, self.at).reference([arrays[0], *RotaryEmbedding(self.perm).reference(arrays[1:])])

    def cost(self, ins: Types, outs: Outs) -> Cost:
        """The rotation's cost, without the bytes of a copy."""
        return RotaryEmbedding(self.perm).cost(ins[1:], [tensor(ins, 1, "new")])
