"""Fixed-point arithmetic of quantised operators, as expressions of int32.

A number with i bits before the point is raw / 2^(31 - i). The same expressions run on the device and make tables on the
host (`table_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...expr.expression import Lit, evaluate
from ...expr.trace_function import Sym, trace, where
from ...ir import Array, DType

ONE = 2**31 - 1
"""1.0 without bits before the point: the largest number."""


def fixed_multiplier(real: float) -> tuple[int, int]:
    """Return (multiplier, shift) of a real factor: multiplier * 2^(shift - 31); factors below 2^-32 become 0."""
    if real == 0 or not math.isfinite(real):
        return 0, 0
    fraction, shift = math.frexp(real)
    scaled = int(round_away(np.float64(fraction * 2.0**31)))
    if scaled == 2**31:
        scaled, shift = 2**30, shift + 1
    return (0, 0) if shift < -31 else (scaled, shift)


def round_away(a: Array | np.floating) -> Array:
    """Round to integers of the same float type; halves go away from zero."""
    whole = np.trunc(a)
    return np.asarray(np.where(np.abs(a - whole) >= 0.5, whole + np.sign(a), whole), a.dtype)


def rounded_away(a: Sym) -> Sym:
    """`round_away` of a float on the device."""
    whole = a.call("trunc")
    return where((a - whole).call("abs") < 0.5, whole, whole + a.call("sign"))


def number(like: Sym, value: int) -> Sym:
    """Return a literal of the type of `like`."""
    return Sym(like.builder, Lit(value, like.dtype))


def scaled(a: Sym, real: float) -> Sym:
    """Return a * real by a fixed-point multiplier."""
    return rescale(a, *fixed_multiplier(real))


def rescale(a: Sym, multiplier: Sym | int, shift: Sym | int) -> Sym:
    """Return a * multiplier * 2^(shift - 31). A shift to the left comes first and wraps around."""
    if isinstance(shift, int):
        left, right = max(shift, 0), max(-shift, 0)
        return (a.call("shl", left) if left else a).call("requantize", multiplier, right)
    return a.call("shl", shift.call("max", 0)).call("requantize", multiplier, (-shift).call("max", 0))


def fixed_multiplier_16(real: float) -> tuple[int, int]:
    """Return (multiplier of 16 bits, shift to the right) of a real factor, for numbers of 48 bits."""
    multiplier, shift = fixed_multiplier(real)
    return (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF, 15 - shift


def rescale_wide(a: Sym, real: float) -> Sym:
    """Return a * real in int32 for an int64 of 48 bits."""
    multiplier, shift = fixed_multiplier_16(real)
    return (a * multiplier + (1 << (shift - 1))).call("shr", shift).cast(DType.INT32)


def times(a: Sym, b: Sym | int) -> Sym:
    """Return the rounded product, which has as many bits before the point as both together."""
    return a.call("requantize", b, 0)


def shifted_right(a: Sym, bits: Sym | int) -> Sym:
    """Return a / 2^bits with halves away from zero; bits from 0 to 31."""
    mask = number(a, 1).call("shl", bits) - 1
    limit = mask.call("shr", 1) - a.call("shr", 31)
    return a.call("shr", bits) + (limit < mask.call("bitand", a)).cast(DType.INT32)


def shifted_left(a: Sym, bits: Sym | int) -> Sym:
    """Return a * 2^bits, saturated."""
    count = bits.cast(DType.INT64) if isinstance(bits, Sym) else bits
    return a.cast(DType.INT64).call("shl", count).typed("saturate", DType.INT32)


def half_sum(a: Sym, b: int) -> Sym:
    """Return (a + b) / 2 with halves away from zero."""
    wide = a.cast(DType.INT64) + b
    return (wide + where(wide < 0, number(wide, -1), number(wide, 1))).call("div", 2).cast(DType.INT32)


EXPONENTIALS = (
    (-2, 1672461947),
    (-1, 1302514674),
    (0, 790015084),
    (1, 290630308),
    (2, 39332535),
    (3, 720401),
    (4, 242),
)
"""(k, e^-(2^k))."""


def exp_negative(a: Sym, bits: int) -> Sym:
    """Return e^a, without bits before the point, for a <= 0 with `bits` of them, at most 5."""
    quarter = 1 << (29 - bits)
    part = a.call("bitand", quarter - 1) - quarter
    x = part.call("shl", bits) + (1 << 28)
    square = times(x, x)
    tail = times(shifted_right(times(square, square), 2) + times(square, x), 715827883) + square
    y = times(x + shifted_right(tail, 1), 1895147668) + 1895147668
    rest = part - a
    for power, factor in EXPONENTIALS:
        if bits > power:
            y = where(rest.call("bitand", 1 << (31 - bits + power)).eq(0), y, times(y, factor))
    return where(a.eq(0), number(a, ONE), y)


def one_over_one_plus(a: Sym) -> Sym:
    """Return 1 / (1 + a) for a from 0 to 1, by three of Newton's steps."""
    half = half_sum(a, ONE)
    x = times(half, -1010580540) + 1515870810
    for _ in range(3):
        x = x + shifted_left(times(x, (1 << 29) - times(half, x)), 2)
    return shifted_left(x, 1)


def reciprocal(x: Sym, bits: int) -> tuple[Sym, Sym]:
    """Return (raw, shift) of 1 / x = raw * 2^(-31 - shift) for positive x with `bits` bits before the point."""
    zeros = x.call("clz")
    beyond = x.cast(DType.UINT32).call("shl", zeros.cast(DType.UINT32))
    return one_over_one_plus((beyond - (1 << 31)).cast(DType.INT32)), bits - zeros


def inverse_root(x: Sym) -> tuple[Sym, Sym]:
    """Return (multiplier, shift) of 1 / sqrt(x) for a whole number; 0 counts as 1."""
    whole = x.call("max", 2)
    fours = where(whole < (1 << 29), number(x, 0), number(x, 1))
    whole = where(whole < (1 << 29), whole, whole.call("shr", 2))
    pairs = (whole.call("clz") - 1).call("shr", 1) - 1
    shift = 11 + fours - pairs
    a = whole.call("shl", pairs * 2).call("shr", 1)
    half, y = shifted_right(a, 1), number(x, 1 << 28)
    for _ in range(5):
        cube = shifted_left(times(times(y, y), y), 6)
        y = shifted_left(times(y, (1 << 28) + (1 << 27)) - times(half, cube), 3)
    y = times(y, 1518500250)
    up = (-shift).call("max", 0)
    y, shift = y.call("shl", up), shift.call("max", 0)
    small = x < 2
    return where(small, number(x, ONE), y), where(small, number(x, 0), -shift)


def log_of(x: Sym, bits: int) -> Sym:
    """Return the logarithm of x >= 1 with 12 bits before the point, with `bits` bits before the point."""
    more, root, quarter = bits + 1, 1518500250, 536870912 >> (bits + 1)
    step = 31 - more

    def power(count: Sym) -> Sym:
        return shifted_left(12 - count, step)

    def saturated(a: Sym, b: int) -> Sym:
        return (a.cast(DType.INT64) + b).typed("saturate", DType.INT32)

    zeros = x.call("clz")
    r_a = shifted_left(times(shifted_left(x, zeros - 1), root), 1)
    z_a = saturated(power(zeros), quarter)
    spare = times(x, root).call("clz") - 1
    r_b = shifted_left(x, spare)
    z_b = saturated(power(spare), -quarter)
    r, z = r_a.call("min", r_b), z_a.call("max", z_b)
    middle = 1805811301
    p = half_sum(r, middle)
    q = r - middle
    q = q + q
    square = times(q, q)
    top = times(q, r) + times(times(q, square), 117049297)
    bottom = times(p, 1057819769 + q + times(square, 127690142)) + times(q, 638450708)
    return shifted_left(times(z, 1488522236) + times(shifted_right(top, more), one_over_one_plus(bottom)), 1)


def table_of(fn: Callable[[Sym], Sym], first: int, last: int) -> Array:
    """Return the results of an expression of int32 for first to last."""
    numbers = np.arange(first, last + 1, dtype=np.int32)
    return evaluate(trace(fn, DType.INT32), [numbers], numbers.shape)
