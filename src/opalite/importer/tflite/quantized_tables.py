"""Importers of functions of one quantised number, looked up in tables that the host makes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...expr.trace_function import Sym, where
from ...ir import Array, DType, Value
from ..walk.node_context import NodeContext
from .common import quantized_op
from .fixed_point import (
    fixed_multiplier,
    inverse_root,
    number,
    rescale,
    round_away,
    table_of,
)
from .quantization import Affine, affine, out_affine

Real = Callable[[Array], Array]


# Tables


def look_up(ctx: NodeContext, x: Value, table: Array) -> Value:
    """Return the elements of a table of 256 for 8-bit integers, the least first."""
    first = int(np.iinfo(x.dtype.np).min)
    at = ctx.elementwise(lambda q: q.cast(DType.INT32) - first if first else q.cast(DType.INT32), x)
    return ctx.gather(ctx.constant(table), at, 0)


def interpolated(ctx: NodeContext, x: Value, table: Array) -> Value:
    """Return values of 16-bit integers from a table of 513: their upper 9 bits select, the others interpolate.

    A step that leaves 16 bits wraps around, as LiteRT's does.
    """
    at = ctx.elementwise(lambda q: q.cast(DType.INT32).call("shr", 7) + 256, x)
    after = ctx.elementwise(lambda i: i + 1, at)
    low, high = (ctx.gather(ctx.constant(table.astype(np.int32)), i, 0) for i in (at, after))

    def between(q: Sym, a: Sym, b: Sym) -> Sym:
        step = (b - a).cast(DType.INT16).cast(DType.INT32)
        return a + (step * q.cast(DType.INT32).call("bitand", 127) + 64).call("shr", 7)

    return ctx.elementwise(between, x, low, high)


def table_8(fn: Real, x: Affine, out: Affine) -> Array:
    """Return a real function of all 8-bit integers, in float32 and rounded to the result's scale."""
    low, high = x.ends
    with np.errstate(all="ignore"):
        real = x.scale * (np.arange(low, high + 1) - x.zero).astype(np.float32)
        rescaled = round_away(fn(real).astype(np.float32) * (np.float32(1) / out.scale))
    whole = np.nan_to_num(rescaled + np.float32(out.zero), nan=0.0, posinf=2.0**31, neginf=-(2.0**31))
    return np.asarray(np.clip(whole, *out.ends), out.dtype.np)


def table_16(fn: Real, x: Affine, out: Affine, kind: type = np.float32) -> Array:
    """Return 513 samples for `interpolated`, each corrected by half the error midway to the next one."""
    s, t = kind(x.scale), kind(out.scale)
    low, high = s * kind(-32768 - x.zero), s * kind(32767 - x.zero)
    step = kind((high - low) / kind(512))
    inverse = kind(65536) / (t * kind(32767 - out.zero) - t * kind(-32768 - out.zero))
    with np.errstate(all="ignore"):
        at = low + np.arange(513, dtype=kind) * step
        now, after = fn(at[:-1]), fn(at[1:])
        sample = round_away(now * inverse)
        error = round_away((after * inverse + sample) / kind(2)) - round_away(fn(at[:-1] + step / kind(2)) * inverse)
        last = round_away(fn(np.asarray([high], kind)) * inverse)
    return np.asarray(np.clip([*(sample - round_away(error / kind(2))), *last], -32768, 32767), np.int16)


def apply_table(ctx: NodeContext, fn: Real) -> Value:
    """Return a real function of the node's input by a table."""
    x, out = affine(ctx, 0), out_affine(ctx)
    if x.dtype is DType.INT16:
        return ctx.cast(interpolated(ctx, ctx.input(0), table_16(fn, x, out)), out.dtype)
    return look_up(ctx, ctx.input(0), table_8(fn, x, out))


# Functions


def _erfc(a: Array) -> Array:
    return np.array([math.erfc(float(v)) for v in a.reshape(-1)], np.float32).reshape(a.shape)


def _gelu(x: Array) -> Array:
    return np.float32(0.5) * x * _erfc(x * np.float32(-math.sqrt(0.5)))


def _gelu_tanh(x: Array) -> Array:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(np.float32(0.5) * x * (np.float32(1) + np.tanh(inner)))


@quantized_op("EXP", "ELU")
def exponential(ctx: NodeContext) -> Value:
    """Import EXP and ELU."""
    return apply_table(ctx, np.exp if ctx.op_type == "EXP" else lambda x: np.where(x < 0, np.expm1(x), x))


@quantized_op("GELU")
def gelu(ctx: NodeContext) -> Value:
    """Import GELU, exact or by tanh."""
    return apply_table(ctx, _gelu_tanh if ctx.attr("approximate", False) else _gelu)


@quantized_op("LOG")
def logarithm(ctx: NodeContext) -> Value:
    """Import LOG; the least result where the argument is not positive."""
    out = out_affine(ctx)
    least = np.float32(out.ends[0] - out.zero) * out.scale
    return apply_table(ctx, lambda x: np.where(x > 0, np.log(x), least))


@quantized_op("RSQRT")
def inverse_square_root(ctx: NodeContext) -> Value:
    """Import RSQRT: in fixed point for 8 bits, the largest result for 0."""
    x, out = affine(ctx, 0), out_affine(ctx)
    if x.dtype is DType.INT16:
        most = np.float32(32767) * out.scale
        return apply_table(ctx, lambda v: np.where(v > 0, np.float32(1) / np.sqrt(v), most))
    multiplier, shift = fixed_multiplier(1 / (math.sqrt(float(x.scale)) * float(out.scale)))

    def root(v: Sym) -> Sym:
        inverse, down = inverse_root(v.call("max", 1))
        return rescale(rescale(number(v, 1), inverse, down + 20), multiplier, shift - 20)

    low, high = x.ends
    whole = table_of(root, low - x.zero, high - x.zero) + out.zero
    whole[: max(0, x.zero - low + 1)] = out.ends[1]
    return look_up(ctx, ctx.input(0), np.clip(whole, *out.ends).astype(out.dtype.np))


@quantized_op("SQRT")
def square_root(ctx: NodeContext) -> Value:
    """Import SQRT; the result is truncated, not rounded."""
    x, out = affine(ctx, 0), out_affine(ctx)

    def root(v: Array) -> Array:
        real = x.scale * np.maximum(v.astype(np.int64) - x.zero, 0).astype(np.float32)
        return np.asarray(np.clip(np.trunc(np.sqrt(real) / out.scale) + out.zero, *out.ends), out.dtype.np)

    if x.dtype is not DType.INT16:
        low, high = x.ends
        return look_up(ctx, ctx.input(0), root(np.arange(low, high + 1)))

    def device(v: Sym) -> Sym:
        real = x.centred(v).call("max", 0).cast(DType.FLOAT32) * float(x.scale)
        return out.stored((real.call("sqrt") / float(out.scale)).call("trunc").cast(DType.INT32))

    return ctx.elementwise(device, ctx.input(0))


@quantized_op("LOGISTIC", "TANH")
def squashed(ctx: NodeContext) -> Value:
    """Import LOGISTIC and TANH."""
    if ctx.input(0).dtype is DType.INT16:
        return _squashed_16(ctx)
    one = np.float32(1)
    return apply_table(ctx, np.tanh if ctx.op_type == "TANH" else lambda x: one / (one + np.exp(-x)))


def _sigmoids() -> Array:
    """Return sigmoids of 0, 1/24 ... 255/24 in units of 2^-16, each higher by half the error midway to the next one."""
    at = np.arange(257) / 24
    exact, middle = (65536 / (1 + np.exp(-x)) for x in (at, at[:-1] + 1 / 48))
    raised = exact[:-1] + (middle - (exact[:-1] + exact[1:]) / 2) / 2
    return np.append(round_away(raised[:-1]), 65535).astype(np.int32)


def squash_multiplier(scale: np.float32, is_tanh: bool) -> tuple[int, int]:
    """Return (multiplier, shift) of int16 to units of 3 / 4096, halves up."""
    power = round(math.log2(float(scale)))
    left = 12 + power
    if abs(math.log2(float(scale)) - power) < 1e-3 and (left == 0 or (is_tanh and left == 1)):
        return 3 << left, 0
    factor, shift = float(scale) * 4096.0 * 3.0, 0
    while factor <= 32767.0 / 2.0 and shift <= 30:
        factor, shift = factor * 2.0, shift + 1
    return int(factor), shift


def _squashed_16(ctx: NodeContext) -> Value:
    """Return the sigmoid or tanh of int16, interpolated between sigmoids."""
    is_tanh = ctx.op_type == "TANH"
    multiplier, shift = squash_multiplier(affine(ctx, 0).scale, is_tanh)
    half = 1 << (shift - 1) if shift else 0

    def units(v: Sym) -> Sym:
        return (v.cast(DType.INT32) * multiplier + half).call("shr", shift)

    whole = ctx.elementwise(units, ctx.input(0))
    bits = 8 if is_tanh else 9
    at = ctx.elementwise(lambda v: v.call("abs").call("shr", bits).call("min", 254), whole)
    table = ctx.constant(_sigmoids())
    low = ctx.gather(table, at, 0)
    high = ctx.gather(table, ctx.elementwise(lambda i: i + 1, at), 0)

    def curve(v: Sym, a: Sym, b: Sym) -> Sym:
        size = v.call("abs")
        y = a.call("shl", bits) + size.call("bitand", (1 << bits) - 1) * (b - a)
        y = where(size.call("shr", bits) < 255, y, number(v, 0xFFFF << 8 if is_tanh else 0x7FFF << 10))
        if is_tanh:
            signed = where(v < 0, (1 << 23) + (1 << 7) - 1 - y, y - ((1 << 23) - (1 << 7)))
        else:
            signed = where(v < 0, (1 << 25) + (1 << 9) - 1 - y, y + (1 << 9))
        return signed.call("shr", 8 if is_tanh else 10).cast(DType.INT16)

    return ctx.elementwise(curve, whole, low, high)
