"""Importers of float operators whose constants are quantised, and are read as floats.

LiteRT rounds their other operand to bytes as well; results here are those of the float operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ...expr.trace_function import Sym
from ...ir import DType, Value
from ..walk.node_context import Handler, NodeContext
from . import conv, quantized_recurrent, recurrent
from .common import quantized_op, tensors_of, unsupported
from .quantization import levels_of

_IN_FLOATS: dict[str, Handler] = {
    "CONV_3D": conv.conv_3d,
    "LSTM": recurrent.lstm_step,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": recurrent.sequence_lstm,
    "BIDIRECTIONAL_SEQUENCE_LSTM": recurrent.bidirectional_lstm,
    "RNN": recurrent.rnn_step,
    "UNIDIRECTIONAL_SEQUENCE_RNN": recurrent.sequence_rnn,
    "BIDIRECTIONAL_SEQUENCE_RNN": recurrent.bidirectional_rnn,
    "SVDF": recurrent.svdf,
}


_IN_INTEGERS: dict[str, Handler] = {
    "LSTM": quantized_recurrent.integer_lstm,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": quantized_recurrent.integer_lstm,
    "SVDF": quantized_recurrent.integer_svdf,
}


@quantized_op(*_IN_FLOATS)
def by_float_weights(ctx: NodeContext) -> Sequence[Value | None] | Value:
    """Import recurrent operators and CONV_3D with quantised weights, on floats or integers."""
    if ctx.op_type in _IN_INTEGERS and not ctx.input(0).dtype.is_float:
        return cast("Sequence[Value | None] | Value", _IN_INTEGERS[ctx.op_type](ctx))
    read_weights_as_floats(ctx)
    return cast("Sequence[Value | None] | Value", _IN_FLOATS[ctx.op_type](ctx))


def read_weights_as_floats(ctx: NodeContext) -> None:
    """Replace the node's quantised constants by floats; refuse other quantised tensors."""
    tensors = tensors_of(ctx)
    for i, (v, t) in enumerate(zip(ctx.inputs, tensors.inputs, strict=False)):
        if v is None or t is None or not t.holds_quantized:
            continue
        if v.data is None:
            raise unsupported(ctx, f"has computed {v.dtype} for input {i}; floats, or constants, are expected")
        ctx.inputs[i] = as_floats(ctx, v, i)
    for t in tensors.outputs:
        if t.holds_quantized:
            raise unsupported(ctx, f"gives quantised {t.dtype}; floats are expected")


def as_floats(ctx: NodeContext, v: Value, i: int) -> Value:
    """Return (q - zero) * scale of `v`, with the scales of input `i`."""
    levels, rank = levels_of(ctx, tensors_of(ctx).inputs[i], f"input {i}"), len(v.shape)
    scale = ctx.along_axis(ctx.constant(levels.scale), levels.axis, rank)
    zero = ctx.along_axis(ctx.constant(levels.zero_point.astype("int32")), levels.axis, rank)

    def real(q: Sym, s: Sym, z: Sym) -> Sym:
        return (q.cast(DType.INT32) - z).cast(DType.FLOAT32) * s

    return ctx.elementwise(real, v, scale, zero)


@quantized_op("EMBEDDING_LOOKUP")
def embedding_lookup(ctx: NodeContext) -> Value:
    """Import EMBEDDING_LOOKUP of quantised rows, to floats or as they are."""
    out = tensors_of(ctx).outputs[0].dtype
    table = ctx.input(1)
    if out is not None and out.is_float:
        table = as_floats(ctx, table, 1)
    return ctx.gather(table, ctx.input(0), 0)
