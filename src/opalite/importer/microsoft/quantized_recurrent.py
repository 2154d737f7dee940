"""Recurrent layers of domain com.microsoft with 8-bit weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...expr.trace_function import Sym
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.symbols import fixed
from ...ops.affine_quantization import dequantized
from ..onnx.quantize import dynamic_quantize
from ..onnx.recurrent import recurrent
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext
from .unfuse import MS

MOST_SEQUENCES = 16
MOST_UNITS = 2048
"""Limits of sequences and state units quantised with one range: a work-group holds as many. onnxruntime divides them
among threads.
"""


@onnx_op("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(ctx: NodeContext) -> Sequence[Value]:
    """Import DynamicQuantizeLSTM: 8-bit weights w[D,I,4H] and r[D,H,4H]; x and h are quantised by their own ranges.

    x is quantised once, h at each step.

    Inputs 8 and 9 are scale and zero point of w, 10 and 11 of r, by direction or by direction and column.
    """
    rounded = (_quantised_input(ctx, ctx.input(0)), _dequantised_weight(ctx, 1, 8), _dequantised_weight(ctx, 2, 10))
    batch, hidden = fixed(ctx.input(0).shape[1]), fixed(ctx.input(2).shape[1])
    most = max(1, min(MOST_SEQUENCES, MOST_UNITS // max(1, hidden)))
    if batch <= most:
        return recurrent(ctx, "lstm", rounded)
    parts = [recurrent(ctx, "lstm", rounded, i, min(most, batch - i)) for i in range(0, batch, most)]
    return [ctx.concat(list(pieces), 2 - min(i, 1)) for i, pieces in enumerate(zip(*parts, strict=True))]


def _quantised_input(ctx: NodeContext, x: Value) -> Value:
    """Quantise x[T,B,I] to 256 levels of its range over the steps in use."""
    lens = ctx.maybe_const(4)
    steps = x.shape[0] if lens is None or not lens.size else int(np.clip(lens.max(), 0, fixed(x.shape[0])))
    if steps != x.shape[0]:
        rest = ctx.slice_axis(x, 0, steps, x.shape[0])
        return ctx.concat([_quantise(ctx, ctx.slice_axis(x, 0, 0, steps)), rest], 0)
    return _quantise(ctx, x)


def _quantise(ctx: NodeContext, x: Value) -> Value:
    q, scale, zero = dynamic_quantize(ctx, x)
    return ctx.elementwise(dequantized, q, scale, zero)


def _dequantised_weight(ctx: NodeContext, at: int, scale: int) -> Value:
    """Return (q - zero point) * scale of input `at` in float32, in LSTM's layout [D,4H,K]."""
    q, s, zero = ctx.input(at), ctx.input(scale), ctx.get(scale + 1)

    def spread(v: Value) -> Value:
        directions = v.shape[0] if v.shape else 1
        return ctx.reshape(v, (directions, 1, v.type.count // directions))

    def real(x: Sym, f: Sym, *z: Sym) -> Sym:
        return (x.cast(DType.FLOAT32) - (z[0].cast(DType.FLOAT32) if z else 0.0)) * f

    wide = ctx.elementwise(real, q, spread(s), *([] if zero is None else [spread(zero)]))
    return ctx.transpose(wide, (0, 2, 1))
