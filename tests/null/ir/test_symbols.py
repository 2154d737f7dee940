"""Sizes as symbols: expressions are right for every size for which their guards hold."""

import math
import random
from itertools import combinations_with_replacement

import numpy as np
import pytest

from opalite.ir.symbols import (
    FUNCTIONS,
    Substituted,
    SymbolicFloat,
    SymbolicInt,
    Trace,
    always_equal,
    as_float32,
    equal_guarded,
    hint_of,
    holds_symbols,
    is_less,
    is_symbolic,
    may_be_less,
    may_have_remainder,
    runs_along,
    symbolic_max,
    symbolic_min,
    tile_at_most,
)
from opalite.ir.symbols.value_bounds import KnownBounds
from opalite.ops.data_movement import Slice


def evaluate(value, sizes):
    return eval(value.text, {}, {**FUNCTIONS, **sizes}) if type(value) in (SymbolicInt, SymbolicFloat) else value


def draw(rng, depth):
    if depth == 0:
        return rng.choice(["s0", "s1", rng.randint(-3, 9)])
    return rng.choice("+-*/%mMcifr"), draw(rng, depth - 1), draw(rng, depth - 1), rng.choice([1, 2, 3, 4, 8, 16])


def compute(tree, sizes):
    if not isinstance(tree, tuple):
        return sizes.get(tree, tree)
    sign, a, b, k = tree
    a, b = compute(a, sizes), compute(b, sizes)
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a // k
        case "%":
            return a % k
        case "m":
            return symbolic_min([a, b])
        case "M":
            return symbolic_max([a, b])
        case "c":
            return -(-a // k)
        case "i":
            return a if a < b else b
        case "f":
            return math.floor(a * 0.37)
        case _:
            return [0, 1, 2][a % 3]  # an index is a plain number


@pytest.mark.parametrize("seed", range(8))
def test_random_expressions_hold_wherever_their_guards_do(seed):
    rng = random.Random(seed)
    held = 0
    for _ in range(150):
        tree = draw(rng, rng.randint(1, 4))
        first = {"s0": rng.randint(2, 40), "s1": rng.randint(2, 40)}
        trace = Trace()
        result = compute(tree, {n: trace.symbol(v) for n, v in first.items()})
        assert hint_of(result) == compute(tree, first)
        for _ in range(4):
            sizes = {"s0": rng.randint(2, 60), "s1": rng.randint(2, 60)}
            if all(eval(g.text, {}, {**FUNCTIONS, **sizes}) for g in trace.guards):
                held += 1
                assert evaluate(result, sizes) == compute(tree, sizes), (tree, result, trace.guards)
    assert held > 200


def only(trace):
    """Guards but for the symbols' own."""
    return [g.text for g in trace.guards if not g.text.endswith(">= 2")]


def test_what_follows_from_form_or_bounds_is_no_guard():
    trace = Trace()
    h, w = trace.symbol(32), trace.symbol(48)
    assert h + 1 - 1 is h
    assert (h * 4) // 4 is h
    assert (h * 6) % 3 == 0
    assert h != 1
    assert h * w > 3
    assert h % 8 < 8
    assert -(-h // 8) > 0
    assert (8 * h + 3) // 8 is h
    assert 2 * h + w == w + h + h
    assert only(trace) == []


def test_quotients_of_quotients_are_joined():
    trace = Trace()
    h = trace.symbol(37)
    half = (h - 1) // 2 + 1
    assert (half - 1) // 2 + 1 == (h - 1) // 4 + 1
    assert ((h // 3 + 4) // 5) == (h + 12) // 15
    assert (h * 8 + 8) // (h + 1) == 8
    assert only(trace) == []


def test_a_real_is_compared_for_good_by_is_less():
    trace = Trace()
    h, w = trace.symbol(30), trace.symbol(40)
    assert is_less(h / 10, w / 10)
    assert not is_less(as_float32(h), 12.5)
    assert only(trace) == ["((s0)/10.0) < ((s1)/10.0)", "float32((s0)) >= 12.5"]
    assert trace.holds((31, 40))
    assert not trace.holds((40, 40))
    assert not trace.holds((12, 40))


def test_guards_recorded_later_count():
    trace = Trace()
    h = trace.symbol(30)
    assert trace.holds((7,))
    assert h > 20
    assert not trace.holds((7,))
    assert not trace.holds((1,)), "symbols are at least 2"


def test_what_is_made_with_symbols_is_had_at_sizes():
    trace = Trace()
    h = trace.symbol(30)
    at = Substituted(trace, (8,))
    assert at((h * 2, [h // 3, 1], 0.5 * h, "h")) == (16, [2, 1], 4.0, "h")
    assert at(Slice((h - 1,), (1,), (1,))) == Slice((7,), (1,), (1,))
    assert holds_symbols(Slice((h - 1,), (1,), (1,)))
    assert not holds_symbols(Slice((0,), (1,), (1,)))


def test_decisions_and_plain_numbers_are_guards():
    trace = Trace()
    h = trace.symbol(32, "height")
    assert h > 16
    assert [*range(h)][-1] == 31
    assert f"{h}" == "32"
    assert only(trace) == ["s0 - 16 > 0", "s0 == 32"]
    assert trace.guards[-1].fixes
    assert "test_symbols.py" in trace.guards[-1].where


def test_how_many_bits_a_size_has_holds_between_two_powers():
    trace = Trace()
    n = trace.symbol(20)
    assert (n - 1).bit_length() == 5
    assert [trace.holds((size,)) for size in (16, 17, 32, 33)] == [False, True, True, False]
    assert not any(g.fixes for g in trace.guards)
    assert (n - 20).bit_length() == 0
    assert not trace.holds((19,))


def test_zero_and_one_stay_themselves():
    trace = Trace()
    assert trace.symbol(1) == 1
    assert trace.symbol(0) == 0
    assert not trace.symbols


def test_reals_keep_expressions_and_their_order_is_free():
    trace = Trace()
    n = trace.symbol(49)
    mean = 1.0 / n
    assert type(mean) is SymbolicFloat
    assert evaluate(mean, {"s0": 7}) == 1 / 7
    assert mean < 0.5
    assert only(trace) == []
    assert float(mean) == 1 / 49
    assert trace.guards[-1].fixes


def test_it_passes_for_an_int_and_meets_numpy():
    trace = Trace()
    n = trace.symbol(5)
    assert isinstance(n, int)
    assert type(np.int64(3) * n) is SymbolicInt
    assert is_symbolic((1, n))
    assert only(trace) == []
    assert np.zeros((n, 2)).shape == (5, 2)
    assert only(trace) == ["s0 == 5"]


def test_least_and_largest_drop_what_is_known():
    trace = Trace()
    n = trace.symbol(9)
    assert symbolic_max([n, 1]) is n
    assert symbolic_min([n, n + 3]) is n
    assert evaluate(symbolic_max([n, 20]), {"s0": 31}) == 31
    assert only(trace) == []


@pytest.mark.parametrize("seed", range(6))
def test_random_decisions_hold_wherever_guards_do(seed):
    rng = random.Random(seed)
    held = 0
    for _ in range(120):
        first = {"s0": rng.randint(2, 40), "s1": rng.randint(2, 40)}
        trees = [(rng.choice("+-*/%"), draw(rng, 1), draw(rng, 1), rng.choice([1, 2, 3, 8])) for _ in range(8)]
        limits = [rng.randint(-9, 300) for _ in trees]
        signs = [rng.choice(["<", "<=", ">", ">=", "==", "!="]) for _ in trees]

        def decide(sizes, trees=trees, limits=limits, signs=signs):
            values = [compute(tree, sizes) for tree in trees]
            return [
                eval(f"bool(v {sign} c)", {"v": v, "c": c}) for v, sign, c in zip(values, signs, limits, strict=True)
            ]

        trace = Trace()
        asked = decide({n: trace.symbol(v) for n, v in first.items()})
        assert asked == decide(first)
        assert all(eval(g.text, {}, {**FUNCTIONS, **first}) for g in trace.guards)
        for _ in range(6):
            sizes = {"s0": rng.randint(2, 60), "s1": rng.randint(2, 60)}
            if all(eval(g.text, {}, {**FUNCTIONS, **sizes}) for g in trace.guards):
                held += 1
                assert decide(sizes) == asked, (trees, signs, limits, trace.guards)
    assert held > 30


def test_what_earlier_guards_say_is_no_guard_again():
    trace = Trace()
    h, w = trace.symbol(32), trace.symbol(48)
    assert h * w * 4 <= 10000
    assert only(trace) == ["s0*s1*4 - 10000 <= 0"]
    assert h * w <= 2500
    assert h <= 1250
    assert h * w - h > 0
    assert h * w * 4 <= 8000  # tighter: it takes the place of the first
    assert only(trace) == ["s0*s1*4 - 8000 <= 0"]
    assert -(-1000 // (h * w)) != 0
    assert 3 // (h * w) == 0
    assert h != 2
    assert h > 2
    assert only(trace) == ["s0*s1*4 - 8000 <= 0", "s0 - 2 != 0"]


def test_a_product_below_zero_says_of_a_factor_that_it_is_negative():
    """The text of a quotient by a size, rounded up, is -(-a // b): a product with it is one with a negative number."""
    trace = Trace()
    a, b = trace.symbol(2), trace.symbol(17)
    up = -((-a) // b)
    assert up == 1
    assert a * a * b * up >= 60  # of 68: -a // b is 60 / (a * a * b) at least, not where those are least
    assert up == 1
    assert trace.holds((2, 17))
    assert not trace.holds((18, 17))


@pytest.mark.parametrize("seed", range(20))
def test_bounds_learnt_hold_for_the_numbers_they_were_learnt_of(seed):
    rng = random.Random(seed)
    numbers = [rng.choice([-9, -4, -1, 0, 1, 2, 3, 17]) for _ in range(4)]
    known = KnownBounds()
    for n in numbers:
        known.add_atom(rng.choice([(None, None), (min(n, 1), None), (None, max(n, -1)), (n, n + 2)]))
    for _ in range(12):
        monomial = tuple(sorted(rng.choices(range(4), k=rng.randint(1, 4))))
        value, by = math.prod(numbers[a] for a in monomial), rng.choice([-3, -1, 1, 2])
        sign, rest = rng.choice([("<=", -1), (">=", 1), ("<", -1), (">", 1), ("!=", 1)])
        poly = (((), -by * value + rest * rng.randint(1, 40)), (monomial, by))
        known.learn(poly, sign, "")
        for size in (1, 2, 3):
            for part in combinations_with_replacement(range(4), size):
                low, high = known.of(((part, 1),))
                there = math.prod(numbers[a] for a in part)
                assert low is None or low <= there, (numbers, poly, sign, part)
                assert high is None or there <= high, (numbers, poly, sign, part)


def test_equality_that_nothing_depends_on_is_no_guard():
    trace = Trace()
    h, w = trace.symbol(32), trace.symbol(32)
    assert not always_equal(h, w)
    assert not always_equal(h, 32)
    assert always_equal((h + w, 3), (w + h, 3))
    assert not always_equal((h,), (h, 1))
    assert only(trace) == []


def test_what_sizes_may_become_is_told_without_a_guard():
    trace = Trace()
    h, w = trace.symbol(6), trace.symbol(9)
    assert (tile_at_most(4, h), tile_at_most(8, h), tile_at_most(8, 5)) == (4, 6, 5)
    assert [may_be_less(x, 4) for x in (h, h + 2, 3, 4)] == [True, False, True, False]
    assert [may_have_remainder(x, 4) for x in (h, h * 4, 8, 9)] == [True, False, False, True]
    assert [runs_along(*x) for x in ((h // 6, h // 6), (1, h), (h, h), (3, 3))] == [True, False, True, True]
    assert equal_guarded((h, 2), (h, 2))
    assert not equal_guarded((h, 2), (w, 2))
    assert not equal_guarded((h // 6, 2), (1, 2))  # which is so at hand
    assert only(trace) == []
    assert equal_guarded((h, w), (h, h + 3))
    assert only(trace) == ["s0*-1 + s1 - 3 == 0"]


def test_numpy_scalars_keep_symbols_and_arrays_fix_them():
    trace = Trace()
    h = trace.symbol(6)
    assert np.int64(3) * h is h * 3
    assert h - np.int32(1) is h - 1
    assert type(np.float32(0.5) * h) is SymbolicFloat
    half = h / 4
    for found, want in ((np.float64(7) % half, 1.0), (np.float64(7) // half, 4.0), (half % np.float32(1), 0.5)):
        assert type(found) is SymbolicFloat
        assert found.hint == want
    assert only(trace) == []
    np.testing.assert_array_equal(np.zeros(2) + h, [6, 6])
    assert only(trace) == ["s0 == 6"]
