"""SymbolicFloat: a float computed from symbolic sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .polynomial import Rational, SymbolScope, combined, constant, multiply, plain_ratio

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "true_divide": operator.truediv,
    "divide": operator.truediv,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def call_ufunc(
    function: Any, method: str, inputs: Sequence[Any], options: Mapping[str, Any], fixed: Callable[[Any], Any]
) -> Any:
    """The result of `__array_ufunc__`; arrays and functions other than arithmetic get `fixed(x)` for each input."""
    sign = _OPERATORS.get(function.__name__)
    arrays = any(isinstance(x, np.ndarray) for x in inputs)
    if sign is not None and method == "__call__" and not options and not arrays:
        return sign(*(x.item() if isinstance(x, np.generic) else x for x in inputs))
    return getattr(function, method)(*map(fixed, inputs), **options)


_Step = tuple[str, Any, Any]
"""An arithmetic sign and its two operands."""


def _real_text(value: Any) -> str:
    if type(value) is SymbolicFloat:
        return value.text
    if hasattr(value, "poly"):
        return f"({value.text})"
    return repr(float(value))


def _arithmetic(sign: str, fn: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the methods that compute self (sign) other, and other (sign) self."""

    def forward(self: SymbolicFloat, other: Any) -> Any:
        return self._with(other, sign, fn)

    def backward(self: SymbolicFloat, other: Any) -> Any:
        return self._with(other, sign, fn, True)

    return forward, backward


def _comparison(fn: Callable[[Any, Any], bool]) -> Callable[[SymbolicFloat, Any], bool]:
    return lambda self, other: bool(fn(self.hint, _at_hand(other)))


class SymbolicFloat:
    """A float computed from symbolic sizes: costs, scales, reciprocals.

    `<` records no guard: comparisons of floats decide speed, never correctness. Equality and conversion to a plain
    number record one.
    """

    __slots__ = ("_of", "hint", "text", "trace")

    def __init__(self, trace: SymbolScope, text: str, hint: float, of: Rational | _Step | None = None) -> None:
        """of: the exact ratio, if known, or the arithmetic step from which it can be derived."""
        self.trace, self.text, self.hint, self._of = trace, text, hint, of

    @property
    def ratio(self) -> Rational | None:
        """The ratio of integers with the same floor and ceiling; None if unknown. Computed on first use."""
        if type(self._of) is tuple:
            sign, a, b = self._of
            self._of = combined(sign, ratio_of(a), ratio_of(b))
        return self._of  # type: ignore[return-value]

    @property
    def __class__(self) -> type:
        return float

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("the class of a SymbolicFloat cannot be set")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Arithmetic with NumPy scalars stays symbolic; with arrays the value is fixed."""
        return call_ufunc(function, method, inputs, options, lambda x: x.fix() if hasattr(x, "fix") else x)

    def __repr__(self) -> str:
        return f"<{self.text} = {self.hint}>"

    def fix(self) -> float:
        """The plain float; a guard fixes this value."""
        self.trace.guard(f"{self.text} == {self.hint!r}", fixes=True)
        return self.hint

    __float__ = fix

    def __int__(self) -> int:
        return int(self.fix())

    __trunc__ = __int__

    def __str__(self) -> str:
        return str(self.fix())

    def __format__(self, spec: str) -> str:
        return format(self.fix(), spec)

    def __hash__(self) -> int:
        return hash(self.text)

    def __bool__(self) -> bool:
        return self != 0.0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | float):
            return NotImplemented
        text = _real_text(other)
        if text == self.text:
            return True
        is_so = bool(self.hint == _at_hand(other))
        self.trace.guard(f"{self.text} {'==' if is_so else '!='} {text}", fixes=is_so)
        return is_so

    def __ne__(self, other: object) -> bool:
        found = self.__eq__(other)
        return found if found is NotImplemented else not found

    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)

    def _with(self, other: Any, sign: str, fn: Callable[[Any, Any], Any], swap: bool = False) -> Any:
        if not isinstance(other, int | float) and not type(other).__name__.startswith(("float", "int", "uint")):
            return NotImplemented
        a, b = (other, self) if swap else (self, other)
        hint = fn(float(_at_hand(a)), float(_at_hand(b)))
        text = f"({_real_text(a)}{sign}{_real_text(b)})"
        return _made(self.trace, text, hint, (sign, a, b))

    __add__, __radd__ = _arithmetic("+", operator.add)
    __sub__, __rsub__ = _arithmetic("-", operator.sub)
    __mul__, __rmul__ = _arithmetic("*", operator.mul)
    __truediv__, __rtruediv__ = _arithmetic("/", operator.truediv)
    __floordiv__, __rfloordiv__ = _arithmetic("//", operator.floordiv)
    __mod__, __rmod__ = _arithmetic("%", operator.mod)
    __pow__, __rpow__ = _arithmetic("**", operator.pow)

    def __neg__(self) -> Any:
        return _made(self.trace, f"(-{self.text})", -self.hint, ("*", self, -1.0))

    def __abs__(self) -> Any:
        return _made(self.trace, f"abs({self.text})", abs(self.hint))

    def __ceil__(self) -> Any:
        if self.ratio is not None:
            return self.ratio.ceil(self.trace)
        return self.trace.atom(f"ceil({self.text})", math.ceil(self.hint), (None, None))

    def __floor__(self) -> Any:
        if self.ratio is not None:
            return self.ratio.floor(self.trace)
        return self.trace.atom(f"floor({self.text})", math.floor(self.hint), (None, None))

    def __round__(self, digits: int | None = None) -> Any:
        if digits:
            return round(self.fix(), digits)
        return self.trace.atom(f"round({self.text})", round(self.hint), (None, None))

    def float32(self) -> Any:
        """The value rounded to float32, as in each step of NumPy's float32 arithmetic."""
        ratio = self.ratio
        if ratio is not None:
            low, high = self.trace.bounds(ratio.top)
            if low is None or high is None or max(-low, high) > FLOAT32_WHOLE:
                ratio = None
        return self._as_float32(ratio)

    def float32_where_exact(self) -> Any:
        """`float32`, with a guard that the ratio's dividend is exact in float32."""
        ratio = self.ratio
        if ratio is not None:
            top = self.trace.dim(ratio.top)
            if abs(_at_hand(top)) > FLOAT32_WHOLE or not -FLOAT32_WHOLE <= top <= FLOAT32_WHOLE:
                ratio = None
        return self._as_float32(ratio)

    def _as_float32(self, ratio: Rational | None) -> Any:
        return _made(self.trace, f"float32({self.text})", float(np.float32(self.hint)), ratio)


FLOAT32_WHOLE = 1 << 24
"""Largest integer below which float32 holds every integer."""


def _made(trace: SymbolScope, text: str, hint: float, of: Rational | _Step | None = None) -> Any:
    """A SymbolicFloat; a plain float if its text is too long, whose sizes are then fixed."""
    if trace.fixed_for_length(text):
        return hint
    return SymbolicFloat(trace, text, hint, of)


def ratio_of(value: Any) -> Rational | None:
    """The ratio of a symbolic or plain number; None if unknown."""
    if type(value) is SymbolicFloat:
        return value.ratio
    if hasattr(value, "poly"):
        return Rational(value.poly, 1)
    return plain_ratio(value)


def is_less(a: Any, b: Any, or_equal: bool = False) -> bool:
    """Whether a < b (or a <= b), with a guard: for comparisons that decide correctness."""
    if (whole := _less_of_ratios(a, b, or_equal)) is not None:
        return whole
    is_so = bool(_at_hand(a) <= _at_hand(b) if or_equal else _at_hand(a) < _at_hand(b))
    trace = next((v.trace for v in (a, b) if hasattr(v, "trace")), None)
    if trace is not None:
        sign = ("<=" if is_so else ">") if or_equal else ("<" if is_so else ">=")
        trace.guard(f"{_real_text(a)} {sign} {_real_text(b)}")
    return is_so


def _less_of_ratios(a: Any, b: Any, or_equal: bool) -> bool | None:
    """The comparison by integers, whose bounds may decide it; None if the ratios are unknown."""
    trace = next((v.trace for v in (a, b) if hasattr(v, "trace")), None)
    p, q = ratio_of(a), ratio_of(b)
    if trace is None or p is None or q is None or not (p.by == 1 or q.by == 1 or (p.is_exact and q.is_exact)):
        return None
    left, right = trace.dim(multiply(p.top, constant(q.by))), trace.dim(multiply(q.top, constant(p.by)))
    return bool(left <= right if or_equal else left < right)


def _at_hand(value: Any) -> Any:
    return getattr(value, "hint", value)
