"""Sigmoid and tanh of 16-bit fixed-point numbers, as expressions of int32 that keep each step within 16 bits.

A number with i bits before the point is raw / 2^(15 - i). `fixed_point` has the same functions in 32 bits.
"""

from __future__ import annotations

from ...expr.trace_function import Sym, where
from ...ir import DType
from .fixed_point import EXPONENTIALS, number

ONE = 2**15 - 1
"""1.0 without bits before the point: the largest number."""


def saturated(a: Sym) -> Sym:
    """Return a within 16 bits."""
    return a.call("max", -(2**15)).call("min", ONE)


def _wrapped(a: Sym) -> Sym:
    return a.cast(DType.INT16).cast(DType.INT32)


def times_16(a: Sym, b: Sym | int) -> Sym:
    """Return the product, rounded; halves go away from zero."""
    product = a * b
    nudged = where(product < 0, product + (1 - (1 << 14)), product + (1 << 14))
    return nudged.call("div", 1 << 15).call("min", ONE)


def rounded_shift(a: Sym, bits: int) -> Sym:
    """Return a / 2^bits with halves away from zero."""
    rest = a.call("bitand", (1 << bits) - 1)
    limit = ((1 << bits) - 1 >> 1) - a.call("shr", 31)
    return a.call("shr", bits) + (limit < rest).cast(DType.INT32)


def _upper(raw: int) -> int:
    """Return a constant of 32 bits in 16."""
    return (raw + (1 << 15)) >> 16


def _exp_negative(a: Sym, bits: int) -> Sym:
    """Return e^a, without bits before the point, for a <= 0 with `bits` of them."""
    quarter = 1 << (13 - bits)
    part = a.call("bitand", quarter - 1) - quarter
    x = saturated(part.call("shl", bits)) + (1 << 12)
    square = times_16(x, x)
    third = times_16(rounded_shift(times_16(square, square), 2) + times_16(square, x), _upper(715827883))
    base = _upper(1895147668)
    y = saturated(times_16(x + rounded_shift(third + square, 1), base) + base)
    rest = part - a
    for power, factor in EXPONENTIALS:
        if bits > power:
            y = where(rest.call("bitand", 1 << (15 - bits + power)).eq(0), y, times_16(y, _upper(factor)))
    if bits > 5:
        y = where(a < -(1 << (36 - bits - 16)), number(a, 0), y)
    return where(a.eq(0), number(a, ONE), y)


def _inverse_of_half_sum(a: Sym) -> Sym:
    """Return 2 / (1 + a), with two bits before the point, for a from 0 to 1, by three of Newton's steps."""
    half = (a + (ONE + 1)).call("shr", 1)
    x = _upper(1515870810) + times_16(half, _upper(-1010580540))
    for _ in range(3):
        x = _wrapped(x + saturated(times_16(x, (1 << 13) - times_16(half, x)).call("shl", 2)))
    return x


def sigmoid_16(a: Sym) -> Sym:
    """Return the sigmoid of a number with three bits before the point."""
    above = saturated(_inverse_of_half_sum(_exp_negative(-a.call("abs"), 3)).call("shl", 1))
    return where(a.eq(0), number(a, 1 << 14), where(a < 0, ONE - above, above))


def tanh_16(a: Sym, bits: int) -> Sym:
    """Return tanh of a number with `bits` bits before the point, at most 6."""
    x = _inverse_of_half_sum(_exp_negative(-a.call("abs"), bits + 1))
    above = saturated((x - (1 << 13)).call("shl", 2))
    return where(a.eq(0), number(a, 0), where(a < 0, -above, above))
