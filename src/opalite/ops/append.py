"""Append, which writes new rows into reserved memory (KV cache), and DequantizeRows, which dequantizes int8 rows."""

from __future__ import annotations

import numpy as np

from ..ir.constants.int8_rows import TAIL, from_byte_rows, to_byte_rows
from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, need, present, tensor


@frozen_op
class Append(Op):
    """Overwrite part of x with `new`, from position `at` on along `axis`: the append to a KV cache.

    Inputs: x and new, of one type and equal sizes except along the axis; optionally starts, i64, one for each entry of
    the first axis. An entry of new begins at `at` plus its start. Positions outside x are dropped, or wrap around if
    circular. The planner assigns y the memory of x, so that only `new` is written. No other node may read x.
    """

    axis: int
    at: int
    circular: bool = False

    arity = 3
    in_place = True

    def check_shape(self, ins: Types) -> None:
        x, new = tensor(ins, 0, "x"), tensor(ins, 1, "new")
        need(0 <= self.axis < x.rank, f"axis {self.axis} is not an axis of {x}")
        starts = ins[2] if len(ins) > 2 else None
        need(
            starts is None or (self.axis > 0 and starts.dtype is DType.INT64 and starts.count == x.shape[0]),
            f"starts must be i64, one for each of {x.shape[0]!r} entries, got {starts}",
        )
        sizes = (*new.shape[:-1], new.shape[-1] + TAIL) if _narrows(x, new) else new.shape
        pairs = enumerate(zip(x.shape, sizes, strict=False))
        same = x.rank == new.rank and all(a == b for i, (a, b) in pairs if i != self.axis)
        need(same and (x.dtype is new.dtype or _narrows(x, new)), f"new {new} does not fit {x} off axis {self.axis}")

    def reference(self, arrays: Arrays) -> list[Array]:
        x, new = present(arrays, 2)
        y = x.copy()
        if x.dtype != new.dtype:
            new = to_byte_rows(new)
        starts = arrays[2] if len(arrays) > 2 else None
        if starts is not None:
            for b, start in enumerate(starts.reshape(-1)):
                at = self.at + start + np.arange(new.shape[self.axis])
                at = at % x.shape[self.axis] if self.circular else at
                kept = (at >= 0) & (at < x.shape[self.axis])
                before = (b, *(slice(None),) * (self.axis - 1))
                y[(*before, at[kept])] = new[(*before, kept)]
            return [y]
        y[(slice(None),) * self.axis + (slice(self.at, self.at + new.shape[self.axis]),)] = new
        return [y]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        new = tensor(ins, 1, "new")
        return Cost(0.0, 2.0 * new.count * new.storage.size)


def _narrows(x: TensorType, new: TensorType) -> bool:
    """Whether floats become int8 rows (ir/constants/int8_rows.py), appended along another axis than the last."""
    return x.dtype is DType.INT8 and new.dtype in FLOATS and 0 < new.rank == x.rank


FLOATS = (DType.FLOAT32, DType.FLOAT16)
"""Element types that int8 rows can be dequantized to."""


@frozen_op
class DequantizeRows(Op):
    """The first `size` entries along `axis` of int8 rows (ir/constants/int8_rows.py), dequantized.

    x of int8 [..., D + 4]; y[..., D]. Attributes: axis, not the last one; size; half: y is float16, else float32.
    """

    axis: int
    size: int
    half: bool = False

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(0 <= self.axis < x.rank - 1, f"axis {self.axis} is none before the last of {x}")
        need(x.dtype is DType.INT8 and x.shape[-1] > TAIL, f"x must be int8 rows with scales, got {x}")
        need(0 <= self.size <= x.shape[self.axis], f"x {x} has fewer than {self.size!r} entries along axis {self.axis}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        shape = (*x.shape[: self.axis], self.size, *x.shape[self.axis + 1 : -1], x.shape[-1] - TAIL)
        return [TensorType(DType.FLOAT16 if self.half else DType.FLOAT32, shape)]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        kept = x[(slice(None),) * self.axis + (slice(self.size),)]
        return [from_byte_rows(kept, np.float16 if self.half else np.float32)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(2.0 * outs[0].count, 1.0 * outs[0].count * (1 + outs[0].storage.size))
