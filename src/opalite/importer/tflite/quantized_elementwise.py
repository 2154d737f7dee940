"""Importers of arithmetic, comparisons and activations on quantised integers."""

from __future__ import annotations

import math

import numpy as np

from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from ..walk.node_context import NodeContext
from .common import quantized_op, unsupported
from .elementwise import binary, floor_div
from .fixed_point import fixed_multiplier, reciprocal, rescale, scaled, shifted_left, shifted_right
from .fixed_point_16 import rounded_shift, times_16
from .quantization import Affine, activation_ends, affine, clipped_ends, out_affine


def _log2(scale: np.float32) -> int | None:
    """Return the exponent of a power of two, else None."""
    exponent = math.log2(float(scale)) if scale > 0 else math.inf
    return round(exponent) if math.isfinite(exponent) and abs(exponent - round(exponent)) < 1e-3 else None


@quantized_op("ADD", "SUB")
def add_sub(ctx: NodeContext) -> Value:
    """Import ADD and SUB: both operands with 20 more bits (15 of int16) and twice the larger scale, then rescaled."""
    a, b, out = affine(ctx, 0), affine(ctx, 1), out_affine(ctx)
    ends, sign = activation_ends(ctx, out), 1 if ctx.op_type == "ADD" else -1
    if out.dtype is DType.INT16 and ctx.attr("pot_scale_int16", True):
        powers = [_log2(t.scale) for t in (a, b, out)]
        if None not in powers:
            return _add_powers(ctx, [p - (powers[2] or 0) for p in powers[:2] if p is not None], sign, out, ends)
    left = 15 if out.dtype is DType.INT16 else 20
    twice = float(2 * max(a.scale, b.scale))
    last = twice / float(np.float32(1 << left) * out.scale)

    def total(x: Sym, y: Sym) -> Sym:
        p = scaled(a.centred(x).call("shl", left), float(a.scale) / twice)
        q = scaled(b.centred(y).call("shl", left), float(b.scale) / twice)
        return out.stored(scaled(p + q if sign > 0 else p - q, last), ends)

    return ctx.elementwise(total, ctx.input(0), ctx.input(1))


def _add_powers(ctx: NodeContext, shifts: list[int], sign: int, out: Affine, ends: tuple[int, int]) -> Value:
    """Return the sum of int16 whose scales are powers of two: one operand is shifted to the right."""
    if max(shifts) > 0 or 0 not in shifts:
        raise unsupported(ctx, "has scales that are powers of two; the larger operand's must be the result's")

    def total(x: Sym, y: Sym) -> Sym:
        p, q = (shifted_right(v.cast(DType.INT32), -s) for v, s in zip((x, y), shifts, strict=True))
        return out.stored((p + q if sign > 0 else p - q).call("max", -32768).call("min", 32767), ends)

    return ctx.elementwise(total, ctx.input(0), ctx.input(1))


@quantized_op("MUL")
def mul(ctx: NodeContext) -> Value:
    """Import MUL: the product of both, rescaled; of int16 to bytes its upper half, whatever the scales."""
    a, b, out = affine(ctx, 0), affine(ctx, 1), out_affine(ctx)
    if a.dtype is DType.INT16 and out.dtype.size == 1:
        low, high = activation_ends(ctx, out)

        def upper(x: Sym, y: Sym) -> Sym:
            return out.stored(rounded_shift(times_16(x.cast(DType.INT32), y.cast(DType.INT32)), 8), (low, high))

        return ctx.elementwise(upper, ctx.input(0), ctx.input(1))
    if out.dtype is not a.dtype:
        raise unsupported(ctx, f"gives {out.dtype} of {a.dtype}; the same type is expected")
    ends, factor = activation_ends(ctx, out), float(a.scale * b.scale / out.scale)
    return ctx.elementwise(
        lambda x, y: out.stored(scaled(a.centred(x) * b.centred(y), factor), ends), ctx.input(0), ctx.input(1)
    )


@quantized_op("DIV")
def div(ctx: NodeContext) -> Value:
    """Import DIV: times the divisor's reciprocal, with as many bits as there are."""
    a, b, out = affine(ctx, 0), affine(ctx, 1), out_affine(ctx)
    ends = activation_ends(ctx, out)
    multiplier, shift = fixed_multiplier(float(a.scale / (b.scale * out.scale)))

    def quotient(x: Sym, y: Sym) -> Sym:
        top, bottom = a.centred(x), b.centred(y)
        top, bottom = where(bottom < 0, -top, top), bottom.call("abs").call("max", 1)
        inverse, below = reciprocal(bottom, 31)
        room = where(top < 0, top.call("bitnot"), top).call("clz") - 1
        whole = top.call("shl", room).call("requantize", inverse, 0)
        return out.stored(rescale(whole, multiplier, shift - below - room), ends)

    return ctx.elementwise(quotient, ctx.input(0), ctx.input(1))


@quantized_op("BITWISE_XOR", "RIGHT_SHIFT", "FLOOR_DIV", "FLOOR_MOD")
def without_scale(ctx: NodeContext) -> Value:
    """Import operators on integers as they are, whatever the scales of their tensors."""
    return floor_div(ctx) if ctx.op_type == "FLOOR_DIV" else binary(ctx)


@quantized_op("SQUARED_DIFFERENCE")
def squared_difference(ctx: NodeContext) -> Value:
    """Import SQUARED_DIFFERENCE: as SUB with 7 more bits, squared."""
    a, b, out = affine(ctx, 0), affine(ctx, 1), out_affine(ctx)
    twice = float(2 * max(a.scale, b.scale))
    last = twice * twice / float(np.float32(1 << 14) * out.scale)

    def square(x: Sym, y: Sym) -> Sym:
        p = scaled(a.centred(x).call("shl", 7), float(a.scale) / twice)
        d = p - scaled(b.centred(y).call("shl", 7), float(b.scale) / twice)
        return out.stored(scaled(d * d, last))

    return ctx.elementwise(square, ctx.input(0), ctx.input(1))


@quantized_op("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
def compare(ctx: NodeContext) -> Value:
    """Import comparisons: both operands with 8 more bits, times their scales."""
    a, b = affine(ctx, 0), affine(ctx, 1)

    def compared(x: Sym, y: Sym) -> Sym:
        p = scaled(a.centred(x).call("shl", 8), float(a.scale))
        q = scaled(b.centred(y).call("shl", 8), float(b.scale))
        match ctx.op_type:
            case "EQUAL":
                return p.eq(q)
            case "NOT_EQUAL":
                return p.eq(q).call("not")
            case "LESS":
                return p < q
            case "LESS_EQUAL":
                return p <= q
            case "GREATER":
                return q < p
        return q <= p

    return ctx.elementwise(compared, ctx.input(0), ctx.input(1))


_CLIPPED = {"RELU": (0.0, np.inf), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}


@quantized_op(*_CLIPPED)
def relu(ctx: NodeContext) -> Value:
    """Import RELU and its kind: rescaled and clipped."""
    x, out = affine(ctx, 0), out_affine(ctx)
    ends = clipped_ends(out, *_CLIPPED[ctx.op_type])
    return ctx.elementwise(lambda v: out.stored(scaled(x.centred(v), float(x.scale / out.scale)), ends), ctx.input(0))


@quantized_op("LEAKY_RELU")
def leaky_relu(ctx: NodeContext) -> Value:
    """Import LEAKY_RELU: two factors, by sign."""
    x, out = affine(ctx, 0), out_affine(ctx)
    alpha = float(x.scale * np.float32(ctx.attr("alpha", 0.0)) / out.scale)

    def leaky(v: Sym) -> Sym:
        c = x.centred(v)
        below = scaled(c, abs(alpha))
        return out.stored(where(c < 0, -below if alpha < 0 else below, scaled(c, float(x.scale / out.scale))))

    return ctx.elementwise(leaky, ctx.input(0))


@quantized_op("PRELU")
def prelu(ctx: NodeContext) -> Value:
    """Import PRELU: x, or x times alpha where it is negative."""
    x, alpha, out = affine(ctx, 0), affine(ctx, 1), out_affine(ctx)
    factor = float(x.scale * alpha.scale / out.scale)

    def parametric(v: Sym, a: Sym) -> Sym:
        c = x.centred(v)
        below = scaled(c * alpha.centred(a), factor)
        return out.stored(where(c < 0, below, scaled(c, float(x.scale / out.scale))))

    return ctx.elementwise(parametric, ctx.input(0), ctx.input(1))


@quantized_op("ABS")
def absolute(ctx: NodeContext) -> Value:
    """Import ABS: rescaled where the scales differ."""
    x, out = affine(ctx, 0), out_affine(ctx)
    factor = float(x.scale / out.scale)

    def positive(v: Sym) -> Sym:
        c = x.centred(v).call("abs")
        return out.stored(c if x.scale == out.scale else scaled(c, factor))

    return ctx.elementwise(positive, ctx.input(0))


@quantized_op("NEG")
def negative(ctx: NodeContext) -> Value:
    """Import NEG: of integers, whose zero point is 0."""
    x, out = affine(ctx, 0), out_affine(ctx)
    if x != out or x.zero:
        raise unsupported(ctx, f"has the zero points {x.zero} and {out.zero}, or two scales; 0 and one are expected")
    return ctx.unary("neg", ctx.input(0))


def _times_16(a: Sym, b: Sym | int) -> Sym:
    """Return the rounded product of two numbers of 15 bits behind the point."""
    return (a * b + (1 << 14)).call("shr", 15).call("min", 32767)


def _upper_16(multiplier: int) -> int:
    """Return the upper half of a multiplier, rounded."""
    return 32767 if multiplier >= 2**31 - 1 - 2**15 else (multiplier + (1 << 15)) >> 16


@quantized_op("HARD_SWISH")
def hard_swish(ctx: NodeContext) -> Value:
    """Import HARD_SWISH: x times a ramp from 0 to 1, in numbers of 16 bits."""
    x, out = affine(ctx, 0), out_affine(ctx)
    fine = np.float32(1.0 / 128.0) * x.scale
    multiplier, shift = fixed_multiplier(float(np.float32(fine / out.scale)))
    ramp, grow = fixed_multiplier(float(np.float32(fine / np.float32(3.0 / 32768.0))))

    def saturated(v: Sym, bits: int) -> Sym:
        return shifted_left(v, bits).call("max", -32768).call("min", 32767)

    def product(v: Sym) -> Sym:
        c = x.centred(v).call("shl", 7).cast(DType.INT16).cast(DType.INT32)
        r = saturated(c, grow - 1) if grow > 0 else c
        r = _times_16(r, _upper_16(ramp))
        r = saturated(r, 1) if grow > 0 else shifted_right(r, -grow) if grow < 0 else r
        r = (r + (1 << 15)).call("shr", 1)
        y = (r * _times_16(c, _upper_16(multiplier))).call("div", 1 << 15).call("min", 32767)
        return out.stored(shifted_right(y, -shift) if shift <= 0 else y)

    return ctx.elementwise(product, ctx.input(0))


@quantized_op("MAXIMUM", "MINIMUM")
def extreme(ctx: NodeContext) -> Value:
    """Import MAXIMUM and MINIMUM: of integers, whose scales are equal."""
    a, b, out = affine(ctx, 0), affine(ctx, 1), out_affine(ctx)
    if not (a == b and a.zero == out.zero and a.scale == out.scale):
        raise unsupported(ctx, "has operands with another scale than the result; one is expected")
    return ctx.binary("max" if ctx.op_type == "MAXIMUM" else "min", ctx.input(0), ctx.input(1))
