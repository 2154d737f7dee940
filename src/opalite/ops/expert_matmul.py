"""ExpertMatMul: each row multiplied by the matrices of its selected experts (mixture of experts)."""

from __future__ import annotations

import numpy as np

from ..ir.symbols import hint_of
from ..ir.tensor_type import TensorType
from .gather import check_indices, clamp_indices
from .integer_conv_matmul import BYTES
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, need, present, tensor
from .quantized_matmul import FLOATS, check_block_scales, dequantize_blocks


@frozen_op
class ExpertMatMul(Op):
    """y[t, s, n] = sum over k of x[t, s, k] * w[e * N + n, k] + bias[e * N + n], where e = picks[t, s].

    Inputs x[T, S, K], or [T, K] if all picks of a token share its row, of float32 or float16; picks[T, S] (i32 or i64),
    counted and clamped as Gather's indices; w[E * N, K], the stacked matrices of E experts, of x's type, or with `bits`
    of int8 or uint8; bias[E * N] of x's type, or none; scale and zero of those integers, as QuantizedMatMul's.
    Attributes: experts, E; bits: 2, 4 or 8, and 0 for floats; block. Only matrices of selected experts are read.
    """

    experts: int
    bits: int = 0
    block: int = 0

    arity = 6
    takes_epilogue = True

    def check_shape(self, ins: Types) -> None:
        x, picks, w = tensor(ins, 0, "x"), check_indices(ins), tensor(ins, 2, "w")
        bias = ins[3] if len(ins) > 3 else None
        need(x.dtype in FLOATS and x.rank in (2, 3), f"x must be [T, K] or [T, S, K] of float32 or float16, got {x}")
        fits = picks.rank == 2 and picks.shape == x.shape[:-1][: picks.rank] + picks.shape[x.rank - 1 :]
        need(fits, f"picks must have the tokens, and of x [T, S, K] the slots, of x {x}, got {picks}")
        rows, columns = w.shape if w.rank == 2 else (0, 0)
        is_whole = w.rank == 2 and self.experts > 0 and rows % self.experts == 0 and columns == x.shape[-1]
        need(is_whole, f"w must be [{self.experts} * N, {x.shape[-1]!r}] for x {x}, got {w}")
        need(bias is None or (bias.dtype is x.dtype and bias.shape == (rows,)), f"bias must be [{rows}], got {bias}")
        if not self.bits:
            need(w.dtype is x.dtype, f"w must be of x's type {x.dtype}, got {w}")
            return
        need(w.dtype in BYTES, f"w must be a matrix of 8-bit integers, got {w}")
        check_block_scales(ins, 4, rows, columns, self.bits, self.block)

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, picks, w = tensor(ins, 0, "x"), tensor(ins, 1, "picks"), tensor(ins, 2, "w")
        return [make_type(x.dtype, (*picks.shape, w.shape[0] // self.experts))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, picks, w = present(arrays, 3)
        bias, scale, zero = (*arrays[3:], None, None, None)[:3]
        size, at = w.shape[0] // self.experts, clamp_indices(picks, self.experts)
        rows = np.broadcast_to(x[:, None] if x.ndim == 2 else x, (*picks.shape, x.shape[-1]))
        out = np.zeros((*picks.shape, size), x.dtype)
        for e in np.unique(at):
            own = slice(e * size, (e + 1) * size)
            matrix = w[own].astype(np.float64)
            if self.bits:
                assert scale is not None
                matrix = dequantize_blocks(
                    w[own], scale[own], zero if zero is None or zero.size == 1 else zero[own], self.block
                )
            y = rows[at == e].astype(np.float64) @ matrix.T
            out[at == e] = y if bias is None else y + bias[own]
        return [out]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        x, picks, w = tensor(ins, 0, "x"), tensor(ins, 1, "picks"), tensor(ins, 2, "w")
        share = min(1.0, hint_of(picks.count) / self.experts)
        read = w.count * (self.bits / 8 if self.bits else w.storage.size)
        read += sum(t.count * t.storage.size for t in ins[3:6] if t is not None)
        others = sum(t.count * t.storage.size for t in (x, picks, *outs, *ins[6:]) if t is not None)
        return Cost(2.0 * outs[0].count * x.shape[-1], 1.0 * others + share * read)
