"""Table of the functions in expressions, one row a function.

A row defines a function in NumPy and in OpenCL C, its result type, and its behaviour with half storage. A plain unary
function needs only a row here and its ONNX name in the importer; tests cover every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from ..ir import Array, DType


class Result(Enum):
    """Type of a function's result."""

    SAME = "same"  # as the first argument
    SECOND = "second"  # as the second argument
    BOOL = "bool"
    GIVEN = "given"  # with the instruction


class How(Enum):
    """OpenCL forms that are no plain text."""

    HELPER = "helper"  # a call of the helper of that name in kernels/codegen/opencl_functions.py
    OWN = "own"  # written by kernels/codegen/expression_code.py


@dataclass(frozen=True)
class Wrapped:
    """A C operator on integers that wraps around: signed overflow is undefined in C."""

    operator: str


Form = str | How | Wrapped
"""OpenCL C of a call: {0}, {1}... are the arguments.

{zero}, {one} and {inf} are literals of their type {t}; {i} is the signed integer type of that size. A form with a bool
result is a comparison.
"""


@dataclass(frozen=True)
class Function:
    """One row of the table.

    numpy: the definition; it gets the result's type too if that is given with the instruction. floats, integers,
    booleans: OpenCL forms for float and double, for integers, and for bool (held as int 0 or 1; by default the
    integers' form); None if the function is undefined for the type. cpu: types for which CPUs call the helper instead
    of the form, because OpenCL's library is slow on vectors there or more exact than needed. grows: the result may
    exceed half's range for ordinary arguments. bits: single bits of a float argument or result matter: such floats are
    never stored as halves.
    """

    name: str
    numpy: Callable[..., Array]
    arity: int = 1
    result: Result = Result.SAME
    floats: Form | None = None
    integers: Form | None = None
    booleans: Form | None = None
    cpu: tuple[str, ...] = ()
    grows: bool = False
    bits: bool = False

    def takes(self, dtype: DType) -> bool:
        """Whether the function is defined for a first argument of that type; NumPy decides for host-only types."""
        if dtype.is_float:
            return self.floats is not None
        if dtype is DType.BOOL and self.booleans is not None:
            return True
        return self.integers is not None if dtype.is_int or dtype is DType.BOOL else True


def find_function(name: str, arguments: int | None = None) -> Function:
    """The row called `name`; ValueError with similar names if it is unknown or takes another number of arguments."""
    try:
        row = FUNCTIONS[name]
    except KeyError:
        import difflib

        close = difflib.get_close_matches(name, FUNCTIONS, 3)
        meant = f"; is it {' or '.join(close)}?" if close else ""
        raise ValueError(f"unknown function {name!r}{meant}") from None
    if arguments not in (None, row.arity):
        raise ValueError(f"{name!r} takes {row.arity} arguments, got {arguments}")
    return row


# ---------------------------------------------------------------------------------------------------------------
# NumPy definitions of more than a name


def _is_int(a: Array) -> bool:
    return a.dtype.kind in "iu"


def _int_div(a: Array, b: Array) -> Array:
    """C's division: toward zero; a zero divisor gives zero on all devices."""
    if _is_int(a):
        safe = np.where(b == 0, 1, b).astype(b.dtype)
        return np.where(b == 0, 0, (a - np.fmod(a, safe)) // safe).astype(a.dtype)
    return np.asarray(np.divide(a, b))


def _fmod(a: Array, b: Array) -> Array:
    if _is_int(a):
        return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype)
    return np.asarray(np.fmod(a, b))


def _mod(a: Array, b: Array) -> Array:
    if _is_int(a):
        return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))).astype(a.dtype)
    return np.asarray(np.mod(a, b))


def _pow(a: Array, b: Array) -> Array:
    """Powers of integers wrap around, and their negative powers are zero unless the base is 1 or -1."""
    if not _is_int(a):
        return np.asarray(np.power(a, b))
    if not _is_int(b):
        return _cast(np.power(a.astype(np.float64), b.astype(np.float64)), DType.of(a))
    a, b = np.broadcast_arrays(a, b)
    exponent = b.astype(np.int64)
    result, square, left = np.ones_like(a), a, np.abs(exponent).astype(np.uint64)
    while np.any(left):
        result = np.where(left & np.uint64(1), result * square, result)
        square = square * square
        left = left >> np.uint64(1)
    return np.where((exponent < 0) & (a != 1) & (a != -1), 0, result).astype(a.dtype)


def _whole(fn: Callable[..., Array]) -> Callable[[Array], Array]:
    """A rounding function that leaves integers unchanged."""
    return lambda a: a if _is_int(a) else fn(a)


_erf_scalar: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[np.float64])


def _erf(a: Array) -> Array:
    return _erf_scalar(a).astype(a.dtype) if a.size else a


def _clip_to(a: Array, dtype: DType) -> Array:
    """Float64 without NaN to an integer type: truncated and saturated."""
    info = np.iinfo(dtype.np)
    low, high = a <= float(info.min), a >= float(info.max)
    inside = np.where(low | high, 0.0, a).astype(dtype.np)
    return np.where(low, info.min, np.where(high, info.max, inside)).astype(dtype.np)


def _cast(a: Array, dtype: DType) -> Array:
    """Casts as on devices.

    Float to integer truncates, and NaN is 0; int32, int64 and positive uint64 saturate, narrower types take the low
    bits of int32, uint32 and negative uint64 those of int64. Integers wrap around.
    """
    if dtype is DType.BOOL:
        return np.asarray(a != 0)
    if not dtype.is_int or _is_int(a) or a.dtype.kind == "b":
        return a.astype(dtype.np)
    wide = a.astype(np.float64)
    wide = np.where(np.isnan(wide), 0.0, wide)
    if dtype.size < 4:
        return _clip_to(wide, DType.INT32).astype(dtype.np)
    if dtype is DType.UINT32:
        return _clip_to(wide, DType.INT64).astype(dtype.np)
    if dtype is DType.UINT64:
        return np.where(wide < 0, _clip_to(wide, DType.INT64).astype(np.uint64), _clip_to(wide, dtype))
    return _clip_to(wide, dtype)


def _saturate(a: Array, dtype: DType) -> Array:
    if not (dtype.is_int or dtype.on_device):  # floats of 8 bits and fewer, host only
        import ml_dtypes

        ends = ml_dtypes.finfo(dtype.np)
        real = a if a.dtype in (np.float32, np.float64) else a.astype(np.float32)
        return np.clip(real, real.dtype.type(ends.min), real.dtype.type(ends.max)).astype(dtype.np)
    if _is_int(a):
        ends, own = np.iinfo(dtype.np), np.iinfo(a.dtype)
        return np.clip(a, max(ends.min, own.min), min(ends.max, own.max)).astype(dtype.np)
    wide = a.astype(np.float64)
    return _clip_to(np.where(np.isnan(wide), 0.0, wide), dtype)


def _bits(a: Array, dtype: DType) -> Array:
    if a.dtype.itemsize != dtype.size:
        raise ValueError(f"bits of {DType.of(a)} are not as many as those of {dtype}")
    return np.asarray(a).view(dtype.np)


def _clz(a: Array) -> Array:
    """Zero bits before the highest one, in the type's width."""
    bits = a.dtype.itemsize * 8
    u = np.asarray(a).view(np.dtype(f"u{a.dtype.itemsize}"))
    return np.sum([(u >> u.dtype.type(k)) == 0 for k in range(bits)], 0, dtype=a.dtype)


def _requantize(a: Array, multiplier: Array, bits: Array) -> Array:
    """a * multiplier / 2^31 in 32 bits, halves up, and that / 2^bits, halves away from zero; bits from 0 to 31."""
    x, m, right = (v.astype(np.int32) for v in (a, multiplier, bits))
    right = right & 31
    high = ((x.astype(np.int64) * m + (1 << 30)) >> 31).astype(np.int32)
    mask = ((np.int64(1) << right) - 1).astype(np.int32)
    up = (high & mask) > (mask >> 1) - (high >> 31)
    return np.asarray((high >> right) + up).astype(a.dtype)


def _no_coordinates(*args: Any) -> Array:
    raise ValueError("coordinates are those of an output; expr/expression.py's evaluate knows it")


# ---------------------------------------------------------------------------------------------------------------
# The table. `max` and `min` propagate NaN; `rint` rounds ties to even; `where(c, a, b)`; `cast` truncates toward zero,
# `saturate` clamps to the integer type's range, `bits` keeps every bit, `requantize(x, multiplier, bits)` scales
# by a fixed-point number in 32 bits, and `coord(k)` is the output coordinate along axis k.

_BOTH = "(({0} != {zero}) & ({1} != {zero}))"
_EITHER = "(({0} != {zero}) | ({1} != {zero}))"

_TABLE = (
    Function("abs", np.abs, floats="fabs({0})", integers=How.OWN),
    Function("neg", np.negative, floats="-{0}", integers=Wrapped("-")),
    Function("exp", np.exp, floats="exp({0})", cpu=("float",), grows=True),
    Function("log", np.log, floats="log({0})"),
    Function("log1p", np.log1p, floats="log1p({0})"),
    Function("sqrt", np.sqrt, floats="sqrt({0})"),
    Function("rsqrt", lambda a: 1 / np.sqrt(a), floats="rsqrt({0})"),
    Function("recip", lambda a: 1 / a, floats="{one} / {0}"),
    Function("sin", np.sin, floats="sin({0})", cpu=("float",)),
    Function("cos", np.cos, floats="cos({0})", cpu=("float",)),
    Function("tan", np.tan, floats=How.OWN),
    Function("asin", np.arcsin, floats="asin({0})"),
    Function("acos", np.arccos, floats="acos({0})"),
    Function("atan", np.arctan, floats="atan({0})"),
    Function("sinh", np.sinh, floats="sinh({0})", grows=True),
    Function("cosh", np.cosh, floats="cosh({0})", grows=True),
    Function("tanh", np.tanh, floats="tanh({0})", cpu=("float",)),
    Function("asinh", np.arcsinh, floats="asinh({0})"),
    Function("acosh", np.arccosh, floats="acosh({0})"),
    Function("atanh", np.arctanh, floats="atanh({0})"),
    Function("erf", _erf, floats="erf({0})", cpu=("float",)),
    Function("sigmoid", lambda a: 1 / (1 + np.exp(-a)), floats=How.OWN),
    Function("floor", _whole(np.floor), floats="floor({0})", integers="{0}"),
    Function("ceil", _whole(np.ceil), floats="ceil({0})", integers="{0}"),
    Function("rint", _whole(np.rint), floats="rint({0})", integers="{0}", cpu=("float",)),
    Function("trunc", _whole(np.trunc), floats="trunc({0})", integers="{0}"),
    Function("sign", np.sign, floats=How.HELPER, integers=How.OWN),
    Function("bitnot", np.bitwise_not, integers="~{0}", booleans="{0} ^ 1"),
    Function("not", np.logical_not, 1, Result.BOOL, "({0} == {zero})", "({0} == {zero})"),
    Function("isnan", np.isnan, 1, Result.BOOL, "({0} != {0})", "({0} != {0})"),
    Function("isinf", np.isinf, 1, Result.BOOL, "(fabs({0}) == {inf})", "({0} != {0})"),
    Function("clz", _clz, integers="clz({0})"),
    Function("add", np.add, 2, floats="{0} + {1}", integers=Wrapped("+"), booleans="{0} | {1}"),
    Function("sub", np.subtract, 2, floats="{0} - {1}", integers=Wrapped("-")),
    Function("mul", np.multiply, 2, floats="{0} * {1}", integers=Wrapped("*"), booleans="{0} & {1}"),
    Function("div", _int_div, 2, floats="{0} / {1}", integers=How.HELPER),
    Function("max", np.maximum, 2, floats=How.HELPER, integers="max({0}, {1})", booleans="{0} | {1}"),
    Function("min", np.minimum, 2, floats=How.HELPER, integers="min({0}, {1})", booleans="{0} & {1}"),
    Function("pow", _pow, 2, floats=How.OWN, integers=How.OWN, grows=True),
    Function("fmod", _fmod, 2, floats="fmod({0}, {1})", integers=How.HELPER, cpu=("float", "double")),
    Function("mod", _mod, 2, floats=How.OWN, integers=How.HELPER),
    Function("atan2", np.arctan2, 2, floats="atan2({0}, {1})"),
    Function("eq", np.equal, 2, Result.BOOL, "({0} == {1})", "({0} == {1})"),
    Function("lt", np.less, 2, Result.BOOL, "({0} < {1})", "({0} < {1})"),
    Function("le", np.less_equal, 2, Result.BOOL, "({0} <= {1})", "({0} <= {1})"),
    Function("and", np.logical_and, 2, Result.BOOL, _BOTH, _BOTH),
    Function("or", np.logical_or, 2, Result.BOOL, _EITHER, _EITHER),
    Function("xor", np.not_equal, 2, Result.BOOL, "({0} != {1})", "({0} != {1})"),
    Function("bitand", np.bitwise_and, 2, integers="{0} & {1}", booleans="{0} & {1}"),
    Function("bitor", np.bitwise_or, 2, integers="{0} | {1}", booleans="{0} | {1}"),
    Function("bitxor", np.bitwise_xor, 2, integers="{0} ^ {1}", booleans="{0} ^ {1}"),
    Function("shl", np.left_shift, 2, integers=How.OWN),
    Function("shr", np.right_shift, 2, integers=How.OWN),
    Function("requantize", _requantize, 3, integers=How.OWN),
    Function("where", np.where, 3, Result.SECOND, How.OWN, How.OWN),
    Function("cast", _cast, 1, Result.GIVEN, How.OWN, How.OWN),
    Function("saturate", _saturate, 1, Result.GIVEN, How.OWN, How.OWN),
    Function("bits", _bits, 1, Result.GIVEN, How.OWN, How.OWN, bits=True),
    Function("coord", _no_coordinates, 1, Result.GIVEN, None, How.OWN),
)

FUNCTIONS = {row.name: row for row in _TABLE}
"""The table by name."""
