"""Importers of softmax and normalisation over the last axis of quantised integers, in fixed point."""

from __future__ import annotations

import math

import numpy as np

from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from ..walk.node_context import NodeContext
from .common import quantized_op, unsupported
from .fixed_point import (
    exp_negative,
    fixed_multiplier,
    inverse_root,
    log_of,
    number,
    reciprocal,
    rescale,
    scaled,
    shifted_right,
    table_of,
    times,
)
from .quantization import Affine, affine, out_affine
from .quantized_tables import interpolated, table_16

_DIFFERENCE_BITS = 5
_SUM_BITS = 12


def _difference_scale(beta: float, scale: np.float32) -> tuple[int, int, int]:
    """Return (multiplier, shift, least difference that counts) of differences, with 5 bits before the point."""
    multiplier, shift = fixed_multiplier(min(beta * float(scale) * (1 << 26), 2.0**31 - 1))
    radius = math.floor(((1 << _DIFFERENCE_BITS) - 1) * (1 << 26) / (1 << shift))
    return multiplier, shift, -radius


def _below_most(ctx: NodeContext, x: Value, first: int) -> Value:
    """Return x less the largest of its row, plus `first`, in int32."""
    wide = ctx.cast(x, DType.INT32)
    most = ctx.reduce(wide, "max", [len(x.shape) - 1])
    return ctx.elementwise(lambda a, b: a - b + first, wide, most)


@quantized_op("SOFTMAX")
def softmax(ctx: NodeContext) -> Value:
    """Import SOFTMAX: exponentials by a table, times the reciprocal of their sum."""
    x, out = affine(ctx, 0), out_affine(ctx)
    beta = float(np.float32(ctx.attr("beta", 1.0)))
    if x.dtype is DType.INT16:
        return _softmax_16(ctx, x, beta)
    multiplier, shift, least = _difference_scale(beta, x.scale)

    def exponential(d: Sym) -> Sym:
        return exp_negative(rescale(d, multiplier, shift), _DIFFERENCE_BITS)

    table = table_of(exponential, -255, 0)
    table[: max(0, 255 + least)] = 0
    e = ctx.gather(ctx.constant(table), _below_most(ctx, ctx.input(0), 255), 0)
    total = ctx.reduce(ctx.elementwise(lambda v: shifted_right(v, _SUM_BITS), e), "sum", [len(e.shape) - 1])
    low, bits = out.ends[0], 31 - 8 * out.dtype.size

    def share(v: Sym, s: Sym) -> Sym:
        inverse, below = reciprocal(s, _SUM_BITS)
        whole = shifted_right(times(inverse, v), below + bits) + low
        return whole.call("max", low).call("min", out.ends[1]).cast(out.dtype)

    return ctx.elementwise(share, e, total)


def _softmax_16(ctx: NodeContext, x: Affine, beta: float) -> Value:
    """Return the softmax of int16: exponentials and the reciprocal of their sum by tables of 513."""
    span = 65535.0

    def real(scale: float, zero: int) -> Affine:
        return Affine(np.float64(scale), zero, DType.INT16)  # type: ignore[arg-type]

    exps = table_16(np.exp, real(10 / span, 32767), real(2 / span, 0), np.float64)
    inverses = table_16(lambda v: 1 / (1 + v), real(1 / span, -32768), real(2 / span, 0), np.float64)
    factor = float(x.scale * np.float32(beta)) / (10.0 / span)
    d = _below_most(ctx, ctx.input(0), 0)
    d = ctx.elementwise(lambda v: (scaled(v, factor) + 32767).call("max", -32768).call("min", 32767), d)
    e = interpolated(ctx, d, exps)
    total = ctx.reduce(e, "sum", [len(e.shape) - 1])

    def normal(s: Sym) -> Sym:
        wide = s.cast(DType.INT64).call("shl", (s.call("clz") - 1).cast(DType.INT64)) + (1 << 13)
        whole = wide.call("shr", 14).cast(DType.INT32) - ((1 << 15) + (1 << 16))
        return whole.call("max", -32768).call("min", 32767)

    inverse = interpolated(ctx, ctx.elementwise(normal, total), inverses)

    def share(v: Sym, s: Sym, r: Sym) -> Sym:
        down = 31 - s.call("clz")
        half = number(s, 1).call("shl", down - 1)
        wide = v.cast(DType.INT64) * r.cast(DType.INT64) + half.cast(DType.INT64)
        whole = wide.call("shr", down.cast(DType.INT64)).cast(DType.INT32)
        return whole.call("max", 0).call("min", 32767).cast(DType.INT16)

    return ctx.elementwise(share, e, total, inverse)


@quantized_op("LOG_SOFTMAX")
def log_softmax(ctx: NodeContext) -> Value:
    """Import LOG_SOFTMAX: the difference to the largest less the logarithm of the sum of exponentials."""
    x, out = affine(ctx, 0), out_affine(ctx)
    if x.dtype is DType.INT16:
        raise unsupported(ctx, "has no form for int16")
    multiplier, shift, least = _difference_scale(1.0, x.scale)
    back, down = fixed_multiplier((1 << (31 - shift)) / multiplier)
    low, high = out.ends

    def exponential(d: Sym) -> Sym:
        return shifted_right(exp_negative(rescale(d, multiplier, shift), _DIFFERENCE_BITS), _SUM_BITS)

    table = table_of(exponential, -255, 0)
    table[: max(0, 255 + least)] = 0
    d = _below_most(ctx, ctx.input(0), 0)
    e = ctx.gather(ctx.constant(table), ctx.elementwise(lambda v: v + 255, d), 0)
    total = ctx.reduce(e, "sum", [len(d.shape) - 1])
    logs = ctx.elementwise(lambda s: log_of(s, _DIFFERENCE_BITS), total)

    def difference(v: Sym, log: Sym) -> Sym:
        limit = rescale(log + (-(2**31)), back, down).call("max", least - 1)
        whole = shifted_right(rescale(v, multiplier, shift) - log, 22) + high
        return where(limit < v, whole.call("min", high).call("max", low), number(v, low)).cast(out.dtype)

    return ctx.elementwise(difference, d, logs)


@quantized_op("L2_NORMALIZATION")
def l2_normalization(ctx: NodeContext) -> Value:
    """Import L2_NORMALIZATION: over the last axis, with 7 bits behind the point."""
    x, out = affine(ctx, 0), out_affine(ctx)
    c = ctx.elementwise(x.centred, ctx.input(0))
    total = ctx.reduce(ctx.elementwise(lambda v: v * v, c), "sum", [len(c.shape) - 1])

    def unit(v: Sym, s: Sym) -> Sym:
        inverse, shift = inverse_root(s)
        if out.dtype is DType.INT8:
            return out.stored(rescale(v, inverse, shift + 7))
        return out.stored(rescale(v * 128, inverse, shift))

    return ctx.elementwise(unit, c, total)
