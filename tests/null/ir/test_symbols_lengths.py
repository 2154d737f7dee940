"""Expressions stay short, whatever is computed: a size whose expressions would not is fixed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from opalite.ir.symbols import (
    Rehinted,
    Trace,
    as_float,
    as_float32,
    compile_numbers,
    conditions,
    fixed_sizes,
    hint_of,
    is_symbolic,
    symbolic_max,
    symbolic_min,
)
from opalite.ir.symbols.expression_limits import LONGEST

STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "quotients": lambda a, h: (a * 3 + a // 2 + h) % 61 + 3,
    "by sizes": lambda a, h: (a * (h + 17)) // (a + 5) + 1,
    "squares": lambda a, h: a * a + h,
    "numbers": lambda a, h: a * 10**30 + h,
    "extremes": lambda a, h: symbolic_min([symbolic_max([50 - a, a * 2 // 3]), a - h + 40]),
    "floats": lambda a, h: as_float32((a + 0.1) / (a + 2.7)),
    "ceilings": lambda a, h: math.ceil(as_float32(a / 0.37 + a * 0.11) % 50.0) + 1,
    "nested": lambda a, h: -(as_float(a) + 0.1),
    "minima of many": lambda a, h: symbolic_min([(a * i + h) // (h + i) for i in range(2, 60)]) + a,
}


@pytest.mark.parametrize("name", STEPS)
def test_expressions_stay_short(name: str) -> None:
    trace = Trace()
    h = trace.symbol(30, "height")
    found: Any = h
    for _ in range(300):
        found = STEPS[name](found, h)
        assert not is_symbolic(found) or len(found.text) <= LONGEST
        if not is_symbolic(found) and abs(found) > 1e30:
            break
    assert not is_symbolic(found)
    assert trace.holds((30,))
    assert not trace.holds((31,))
    assert all(len(g.text) <= 2 * LONGEST for g in trace.guards)


@pytest.mark.parametrize("name", [n for n in STEPS if n not in ("squares", "numbers")])
def test_numbers_are_those_of_plain_sizes(name: str) -> None:
    trace = Trace()
    h = trace.symbol(30)
    found, wanted = h, 30
    for _ in range(40):
        found, wanted = STEPS[name](found, h), STEPS[name](wanted, 30)
        assert hint_of(found) == wanted


def test_a_size_that_is_fixed_for_length_is_a_plain_number_from_then_on() -> None:
    trace = Trace()
    n, h = trace.symbol(3, "batch"), trace.symbol(30, "height")
    old = n * h + h // 4
    found: Any = h
    for _ in range(40):
        found = STEPS["quotients"](found, h)
    assert type(found) is int
    assert h + 1 == 31
    assert type(h + 1) is int
    assert old - 7 is n * 30
    assert old is not n * 30
    assert old == n * 30 + 7
    assert -old // 8 is -((n * 30 + 14) // 8)
    assert is_symbolic(n // 2)
    assert trace.holds((4, 30))
    assert not trace.holds((3, 31))
    (told,) = fixed_sizes(trace)
    assert told.startswith("size 30 of height is fixed by")
    assert str(LONGEST) in told
    assert conditions(trace) == []
    moved = Rehinted(trace, (5, 30))
    assert moved(n).hint == 5
    assert type(moved(h) + 1) is int


def test_the_longest_part_is_fixed_and_others_stay_open() -> None:
    trace = Trace()
    n, h, w = (trace.symbol(size, name) for size, name in ((3, "batch"), (30, "height"), (41, "width")))
    tall: Any = h
    while len(tall.text) < LONGEST // 10:
        tall = (tall + h * 3) // (tall + 7) + h
    wide = (w + 1) // (n + 2) + w
    area: Any = n * wide
    for _ in range(12):
        area = area * tall + n
    assert [g.text for g in trace.guards if g.fixes] == ["s1 == 30"]
    assert {"s0", "s2"} <= set(re.findall(r"s\d", area.text))
    assert trace.holds((4, 30, 50))


def test_many_operations_within_each_other_are_compiled() -> None:
    text = "s0"
    for i in range(90):
        text = f"({text} + {i}) * 1" if i % 2 else f"{text} - s1"
    (found,) = compile_numbers(2, ["s0 + " + " + ".join(f"s1*{i}" for i in range(2, 400)) + " > 0"], [text])(3, 5) or ()
    assert found == eval(text, {"s0": 3, "s1": 5})
