"""Floats that are ratios of sizes are rounded to whole numbers exactly, and bounds follow from what is divided."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from opalite.ir.symbols import FUNCTIONS, SymbolicFloat, SymbolicInt, Trace, hint_of, is_less, is_symbolic, symbolic_max
from opalite.ir.symbols.polynomial import combined, make_ratio, plain_ratio

_WHOLE = 1 << 24


def at(value: Any, **sizes: int) -> Any:
    return eval(value.text, {}, {**FUNCTIONS, **sizes}) if type(value) in (SymbolicInt, SymbolicFloat) else value


def only(trace: Trace) -> list[str]:
    """Guards but for the symbols' own."""
    return [g.text for g in trace.guards if not g.text.endswith(">= 2")]


def as_float32(value: Any) -> Any:
    return value.float32_where_exact() if is_symbolic(value) else float(np.float32(value))


def padded(size: Any, kernel: int, stride: int) -> Any:
    """The padding "SAME", before and behind, in steps of float32."""
    last = math.ceil(as_float32(size / float(stride))) - 1
    pad = symbolic_max([last * stride + kernel - size, 0])
    return pad, math.floor(as_float32(pad / 2.0))


def test_same_padding_is_short_and_asks_nothing() -> None:
    trace = Trace()
    h = trace.symbol(97)
    assert h <= _WHOLE
    size = h
    for kernel, stride in [(3, 2), (5, 2), (3, 1), (7, 2), (3, 2), (5, 1), (3, 2)]:
        pad, before = padded(size, kernel, stride)
        assert 0 <= hint_of(pad) < kernel
        size = (size + before + (pad - before) - kernel) // stride + 1
    assert size is (h + 31) // 32
    assert only(trace) == ["s0 - 16777216 <= 0"]


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 7, 48, 1000, 65537])
def test_floor_and_ceil_are_those_of_float32_wherever_guards_hold(stride: int) -> None:
    trace = Trace()
    h = trace.symbol(1001)
    quotient = (h / float(stride)).float32_where_exact()
    low, high = math.floor(quotient), math.ceil(quotient)
    assert type(low) is not SymbolicFloat
    near = [k * stride + d for k in range(1, _WHOLE // stride, max(1, _WHOLE // stride // 300)) for d in (-1, 0, 1)]
    tried = 0
    for size in [*range(2, 400), *near, *range(_WHOLE - 300, _WHOLE + 300)]:
        if size >= 2 and trace.holds((size,)):
            tried += 1
            rounded = np.float32(size) / np.float32(stride)
            assert at(low, s0=size) == math.floor(rounded), size
            assert at(high, s0=size) == math.ceil(rounded), size
    assert tried > 600
    assert trace.holds((_WHOLE,))
    assert not trace.holds((_WHOLE + 1,))


@pytest.mark.parametrize("seed", range(6))
def test_random_floats_round_as_numpy_does_wherever_guards_hold(seed: int) -> None:
    rng = random.Random(seed)
    tried = 0
    for _ in range(150):
        numbers = [0.5, 0.25, 3.0, 7.0, 0.75, 1.5, float(np.float32(0.1)), 12.0, -2.0]
        steps = [(rng.choice("+-*/"), rng.choice(numbers)) for _ in range(3)]

        def compute(x: Any, rounded: Any, steps: Any = steps) -> Any:
            x = rounded(x)
            for sign, by in steps:
                x = rounded(eval(f"x {sign} by", {"x": x, "by": by}))
            return x

        trace = Trace()
        found = compute(trace.symbol(300) / 1.0, lambda x: x.float32_where_exact())
        low, high = math.floor(found), math.ceil(found)
        for size in [rng.randint(2, 2000) for _ in range(12)] + [rng.randint(2, _WHOLE * 2) for _ in range(12)]:
            if trace.holds((size,)):
                tried += 1
                wanted = compute(np.float32(size), np.float32)
                assert at(low, s0=size) == math.floor(wanted), (steps, size)
                assert at(high, s0=size) == math.ceil(wanted), (steps, size)
    assert tried > 1000


def test_what_rounding_may_move_is_no_ratio() -> None:
    trace = Trace()
    h = trace.symbol(49)
    third = h / 3.0
    assert third.ratio is not None
    assert (third * 3.0).ratio is None  # of what is rounded already
    assert (third + 1.0).ratio is None
    assert (h / h).ratio is None
    assert (h * 0.1).ratio is None  # whose dividend would be larger than floats hold
    assert third.float32().ratio is None  # h may be 2^25 and 1
    assert h <= 4000
    assert third.float32().ratio is third.ratio
    assert (h * float("nan")).ratio is None


def test_ratios_are_in_lowest_terms() -> None:
    h = (((0,), 6),)
    assert make_ratio(h, -4) == make_ratio((((0,), -3),), 2)
    half = make_ratio(h, 4)
    assert combined("*", half, plain_ratio(2.0)) == make_ratio((((0,), 3),), 1)
    assert combined("-", half, plain_ratio(0.25)) == make_ratio((((), -1), ((0,), 6)), 4)
    assert combined("/", half, plain_ratio(-1.5)) == make_ratio((((0,), -1),), 1)
    assert combined("/", plain_ratio(1.0), half) is None


def test_ratios_are_compared_by_integers() -> None:
    trace = Trace()
    h = trace.symbol(30)
    assert is_less(0.0, h / 3)
    assert is_less(h / 2, h)
    assert not is_less(h, 1.0)
    assert only(trace) == []
    assert is_less(h / 4, 8.0)
    assert only(trace) == ["s0 - 32 < 0"]


def test_a_size_is_compared_with_whole_floats_as_with_integers() -> None:
    trace = Trace()
    h = trace.symbol(30)
    assert h != 0.0
    assert h != 30.5
    assert h + 1 - h == 1.0
    assert only(trace) == []
    assert h == 30.0
    assert only(trace) == ["s0 - 30 == 0"]


def test_bounds_by_dividends_decide() -> None:
    trace = Trace()
    h, w = trace.symbol(33), trace.symbol(48)
    up = -(-h // 2)
    assert up * 2 >= h
    assert up * 2 <= h + 1
    assert symbolic_max([up * 2 - h + 1, 0]) is up * 2 - h + 1
    assert up - h // 2 <= 1
    assert (h + w) // 3 * 6 <= 2 * h + 2 * w
    assert h // 2 // 4 * 8 <= h
    assert (h * w) // 7 <= h * w
    assert only(trace) == []


@pytest.mark.parametrize("seed", range(8))
def test_bounds_by_dividends_hold(seed: int) -> None:
    rng = random.Random(seed)
    known = 0
    for _ in range(100):
        trace = Trace()
        values = [trace.symbol(rng.randint(2, 30)) for _ in range(2)]
        for _ in range(rng.randint(1, 4)):
            of = sum((rng.randint(-3, 3) * rng.choice(values) for _ in range(2)), rng.randint(-9, 9))
            values.append(of // rng.choice([2, 3, 4, 7]))
        found: Any = sum((rng.randint(-6, 6) * v for v in values), rng.randint(-9, 9))
        if type(found) is not SymbolicInt:
            continue
        low, high = trace.bounds(found.poly)
        known += (low is not None) + (high is not None)
        for _ in range(40):
            value = at(found, s0=rng.randint(2, 60), s1=rng.randint(2, 60))
            assert low is None or low <= value, (found, low)
            assert high is None or value <= high, (found, high)
    assert known > 10


def test_quotients_rounded_up_have_one_form() -> None:
    trace = Trace()
    h = trace.symbol(37)
    assert -(-h // 8) is (h + 7) // 8
    assert -((3 - h) // 8) is (h + 4) // 8
    assert (4 * h + 6) // 8 is (2 * h + 3) // 4
    half = -(-h // 2)
    assert -(-half // 2) is (h + 3) // 4
    assert only(trace) == []
