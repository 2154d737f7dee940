"""RotaryEmbedding: rotary embedding, which rotates pairs of elements of each row by position-dependent angles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.symbols import always_equal
from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .operator import Array, Cost, Op, Types, broadcast_shape, make_type, moved_bytes, need, register_op, tensor


@register_op
@dataclass(frozen=True, slots=True)
class RotaryEmbedding(Op):
    """Rotary embedding of the two halves of each row (Su et al., 2021, RoFormer).

    y[.., d] = x[.., d] cos[.., d] - x[.., d + n] sin[.., d] and y[.., d + n] = x[.., d + n] cos[.., e] + x[.., d]
    sin[.., e] for d < n, half of a row. Inputs x, of rank 4 with rows of 2 n elements; cos and sin of one shape that
    broadcasts against y but for the last axis, which has n elements (e = d) or 2 n (e = d + n). Attributes: perm, which
    keeps the last axis last: the order of x's axes in y.
    """

    perm: tuple[int, int, int, int] = (0, 1, 2, 3)

    arity = 3

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

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        x, cos, sin = arrays
        assert x is not None
        assert cos is not None
        assert sin is not None
        acc, half = compute_dtype(x.dtype), x.shape[3] // 2
        rows, c, s = x.transpose(self.perm).astype(acc), cos.astype(acc), sin.astype(acc)
        low, high = rows[..., :half], rows[..., half:]
        y = [low * c[..., :half] - high * s[..., :half], high * c[..., -half:] + low * s[..., -half:]]
        return [np.concatenate(y, -1).astype(x.dtype)]

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        return Cost(3.0 * outs[0].count, moved_bytes(ins, outs))
