"""Shape propagation: small tensors whose elements are expressions of sizes, and operators evaluated on them.

Models compute few numbers from Shape and Size, by few operators: data movement, which NumPy does on object arrays,
reductions, and elementwise expressions. Integers and booleans stay exact; floats are rounded at each step as NumPy
rounds them. `evaluate` returns None for operators without symbolic evaluation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...expr.expression import Expr, In, Lit, Tmp
from ...ir import Array, DType, TensorType
from ...ir.symbols import SymbolicFloat, SymbolicInt, hint_of, is_less, is_symbolic, symbolic_max, symbolic_min
from ...ops.cumulative import Cumulative
from ...ops.data_movement import Concat, Pad, Reshape, Slice, Transpose
from ...ops.elementwise import Elementwise
from ...ops.gather import Gather, GatherElements, GatherND
from ...ops.operator import Op
from ...ops.reduce import Reduce
from ...ops.scatter import ScatterElements, ScatterND

MOST_ELEMENTS = 256
"""Largest number of elements of a tensor that is evaluated symbolically."""

_EXACT = {DType.FLOAT32: 24, DType.FLOAT64: 53}
"""Number of bits up to which each float type holds every integer."""

_MOVES = (Concat, Reshape, Slice, Transpose, ScatterElements, ScatterND)
_READS = (Gather, GatherElements, GatherND)


class _NotCovered(Exception):  # noqa: N818  (a signal to `evaluate`, not an error)
    """An operator or operand has no symbolic evaluation."""


def has_symbols(array: Array) -> bool:
    """Whether an element depends on sizes."""
    return array.dtype.hasobject and any(is_symbolic(v) for v in array.reshape(-1).tolist())


def to_objects(array: Array) -> Array:
    """Convert `array` to an object array of Python numbers."""
    if array.dtype.hasobject:
        return array
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = array.reshape(-1).tolist()
    return made


def to_array(array: Array, dtype: DType) -> Array:
    """Convert an object array to `dtype`; sizes of symbolic elements become static."""
    flat = [v.fix() if is_symbolic(v) else v for v in array.reshape(-1).tolist()]
    return np.array(flat, dtype.np).reshape(array.shape)


def evaluate(op: Op, inputs: Sequence[Array | None], types: Sequence[TensorType]) -> list[Array] | None:
    """Evaluate `op` on object arrays; return outputs of `types`, or None if that is not possible."""
    read = inputs[:1] if isinstance(op, _READS) else inputs
    if any(a is not None and a.size > MOST_ELEMENTS for a in read):
        return None
    if any(is_symbolic(t.shape) or t.count > MOST_ELEMENTS or _kind(t.dtype) is None for t in types):
        return None
    try:
        found = _evaluate(op, inputs, types)
    except _NotCovered:
        return None
    return [_shaped(a, t) for a, t in zip(found, types, strict=False)]


def _shaped(array: Any, t: TensorType) -> Array:
    made = np.empty(t.shape, object)
    made.reshape(-1)[:] = np.asarray(array, object).reshape(-1).tolist()
    return made


def _kind(dtype: DType) -> str | None:
    if dtype is DType.BOOL:
        return "bool"
    return "int" if dtype.is_int else "float" if dtype in _EXACT else None


def _evaluate(op: Op, inputs: Sequence[Array | None], types: Sequence[TensorType]) -> list[Any]:
    given = [None if a is None else to_objects(a) for a in inputs]
    match op:
        case Elementwise(expr=expr):
            return [_elementwise(expr, [a for a in given if a is not None], types[0])]
        case Reduce():
            assert given[0] is not None
            return [_reduce(op, given[0], types[0].dtype)]
        case Cumulative(kind="sum"):
            assert given[0] is not None
            return [_cumulative_sum(op, given[0], types[0].dtype)]
        case Pad(mode="constant") if not is_symbolic(op.pads):
            assert given[0] is not None
            rank = given[0].ndim
            widths = list(zip(op.pads[:rank], op.pads[rank:], strict=True))
            return [np.pad(given[0], widths, constant_values=op.value)]
        case _ if isinstance(op, _READS):
            if inputs[1] is None or has_symbols(inputs[1]):
                raise _NotCovered
            return op.reference([given[0], inputs[1]])
        case _ if isinstance(op, _MOVES) and not any(is_symbolic(getattr(op, n)) for n in op.__dataclass_fields__):
            if isinstance(op, ScatterElements | ScatterND):
                if op.reduction != "none" or inputs[1] is None or has_symbols(inputs[1]):
                    raise _NotCovered
                return op.reference([given[0], inputs[1], given[2]])
            return op.reference(given)
    raise _NotCovered


# Reductions


def _reduce(op: Reduce, x: Array, dtype: DType) -> Array:
    axes = tuple(op.axes)
    rest = [i for i in range(x.ndim) if i not in axes]
    rows = x.transpose((*rest, *axes)).reshape(math.prod(x.shape[i] for i in rest), -1)
    found = np.empty(len(rows), object)
    for i, row in enumerate(rows.tolist()):
        found[i] = _reduce_row(op.kind, row, dtype)
    return found


def _reduce_row(kind: str, row: list[Any], dtype: DType) -> Any:
    integers = dtype.is_int
    if not row or (not integers and len(row) > 8):  # NumPy sums more floats in another order
        raise _NotCovered
    match kind:
        case "sum" if integers:
            return _in_range(sum(row), dtype)
        case "prod":  # floats are multiplied in float64 and rounded once
            total = row[0]
            for v in row[1:]:
                total = _float_step("mul", total, v, DType.FLOAT64) if not integers else total * v
            return _in_range(total, dtype)
        case "max" | "min":
            return _min_or_max(kind, row, dtype)
    raise _NotCovered


def _cumulative_sum(op: Cumulative, x: Array, dtype: DType) -> Array:
    if op.exclusive or op.reverse or not dtype.is_int:
        raise _NotCovered
    rows = np.moveaxis(x, op.axis, -1)
    found = np.empty(rows.shape, object)
    for at in np.ndindex(rows.shape[:-1]):
        total: Any = 0
        for i, v in enumerate(rows[at].tolist()):
            total = _in_range(total + v, dtype)
            found[(*at, i)] = total
    return np.moveaxis(found, -1, op.axis)


# Expressions


def _elementwise(expr: Expr, inputs: Sequence[Array], t: TensorType) -> Array:
    wide = [np.broadcast_to(a, t.shape) for a in inputs]
    found = np.empty(t.shape, object)
    for at in itertools.product(*map(range, t.shape)):
        found[at] = _element(expr, [a[at] for a in wide], at)
    return found


def _element(expr: Expr, operands: Sequence[Any], at: tuple[int, ...]) -> Any:
    results: list[Any] = []

    def value(ref: In | Tmp | Lit) -> Any:
        if isinstance(ref, In):
            return operands[ref.i]
        return results[ref.k] if isinstance(ref, Tmp) else ref.value

    for step in expr.instrs:
        if step.fn == "coord":
            axis = step.args[0]
            assert isinstance(axis, Lit)
            results.append(at[int(axis.value)])
            continue
        args = [value(a) for a in step.args]
        kinds = [expr.ref_dtype(a) for a in step.args]
        results.append(_step(step.fn, args, kinds, step.dtype))
    return results[-1] if results else operands[0]


def _step(fn: str, args: Sequence[Any], kinds: Sequence[DType], dtype: DType) -> Any:
    if any(_kind(k) is None for k in (*kinds, dtype)):
        raise _NotCovered
    if fn == "cast":
        return _cast(args[0], kinds[0], dtype)
    if fn == "where":
        return args[1] if _as_bool(args[0]) else args[2]
    if fn in _LOGIC:
        return _LOGIC[fn](*map(_as_bool, args))
    if fn in ("eq", "lt", "le"):
        return _compare(fn, args[0], args[1])
    of = kinds[0]
    if of is DType.BOOL:
        raise _NotCovered
    if fn in ("max", "min"):
        return _min_or_max(fn, args, dtype)
    table = _INTEGERS if of.is_int else _FLOATS
    if fn in table:
        return _in_range(table[fn](*args), dtype)
    if not of.is_int and fn in ("add", "sub", "mul", "div"):
        return _float_step(fn, args[0], args[1], dtype)
    raise _NotCovered


def _as_bool(v: Any) -> bool:
    return v if isinstance(v, bool) else not _compare("eq", v, 0)


def _compare(fn: str, a: Any, b: Any) -> bool:
    if fn == "eq":
        return bool(a == b)
    if _is_float(a) or _is_float(b):
        return is_less(a, b, or_equal=fn == "le")
    return bool(a < b if fn == "lt" else a <= b)


def _is_float(v: Any) -> bool:
    return isinstance(v, float)


def _min_or_max(kind: str, values: Sequence[Any], dtype: DType) -> Any:
    if dtype.is_int:
        return symbolic_max(values) if kind == "max" else symbolic_min(values)
    whole = [_as_integer(v) for v in values]
    if any(type(v) is SymbolicInt for v in values) and None not in whole:
        return _rounded((symbolic_max if kind == "max" else symbolic_min)(whole), dtype)
    best = values[0]
    for v in values[1:]:
        if not (_is_number(best) and _is_number(v)):
            raise _NotCovered
        if _compare("lt", best, v) == (kind == "max"):
            best = v
    return best


def _as_integer(v: Any) -> Any:
    """Return a number that is an integer for all sizes as an integer; None for other numbers."""
    return v if type(v) is SymbolicInt else int(v) if not is_symbolic(v) and float(v).is_integer() else None


def _is_number(v: Any) -> bool:
    return is_symbolic(v) or not math.isnan(v)


def _int_quotient(a: Any, b: Any) -> Any:
    """Divide toward zero; division by zero gives 0."""
    if b == 0:
        return 0
    return abs(a) // abs(b) if (a >= 0) == (b > 0) else -(abs(a) // abs(b))


def _int_remainder(a: Any, b: Any) -> Any:
    return 0 if b == 0 else a % b


def _int_power(a: Any, b: Any) -> Any:
    if type(b) is not int or not 0 <= b <= 4:
        raise _NotCovered
    return a**b


def _sign(a: Any) -> Any:
    return 0 if a == 0 else 1 if a > 0 else -1


_LOGIC: dict[str, Callable[..., bool]] = {
    "not": lambda a: not a,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}
_INTEGERS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _int_quotient,
    "mod": _int_remainder,
    "fmod": lambda a, b: 0 if b == 0 else a - b * _int_quotient(a, b),
    "pow": _int_power,
    "neg": lambda a: -a,
    "abs": abs,
    "sign": _sign,
    "floor": lambda a: a,
    "ceil": lambda a: a,
    "rint": lambda a: a,
    "trunc": lambda a: a,
}
_FLOATS: dict[str, Callable[..., Any]] = {
    "neg": lambda a: -a,
    "abs": lambda a: a if is_less(0.0, a, or_equal=True) else -a,
    "floor": lambda a: _round_float(math.floor, a),
    "ceil": lambda a: _round_float(math.ceil, a),
    "rint": lambda a: _round_float(round, a),
    "trunc": lambda a: _round_float(_truncate, a),
}


def _round_float(fn: Callable[[Any], Any], a: Any) -> Any:
    """Round to an integer: a SymbolicInt if `a` depends on sizes."""
    if not is_symbolic(a):
        if not math.isfinite(a):
            raise _NotCovered
        return float(fn(a))
    return _round_symbolic(fn, a)


def _truncate(a: Any) -> Any:
    return _round_symbolic(math.floor if is_less(0.0, a, or_equal=True) else math.ceil, a)


def _round_symbolic(fn: Callable[[Any], Any], a: Any) -> Any:
    """Round a number that depends on sizes by `fn`."""
    if not math.isfinite(hint_of(a)):
        raise _NotCovered
    return fn(a)


# Rounding and range


def _in_range(v: Any, dtype: DType) -> Any:
    """Return `v` rounded to `dtype`; not covered if `dtype` cannot represent it."""
    kind = _kind(dtype)
    if kind == "float":
        return _rounded(v, dtype)
    if kind == "int" and dtype not in (DType.INT64, DType.UINT64):
        ends = np.iinfo(dtype.np)
        if not int(ends.min) <= v <= int(ends.max):  # overflow would wrap around
            raise _NotCovered
    if kind == "int" and dtype is DType.UINT64 and not v >= 0:
        raise _NotCovered
    if kind == "int" and abs(hint_of(v)) >= 1 << 63:  # overflow would wrap around
        raise _NotCovered
    return v


def _rounded(v: Any, dtype: DType) -> Any:
    if type(v) is SymbolicInt:  # an integer in a float: exact while the type can represent it
        if not -(1 << _EXACT[dtype]) <= v <= 1 << _EXACT[dtype]:
            raise _NotCovered
        return v
    if type(v) is SymbolicFloat:
        if v.ratio is not None and v.ratio.by == 1:
            return _rounded(v.trace.dim(v.ratio.top), dtype)
        return v.float32_where_exact() if dtype is DType.FLOAT32 else v
    return float(np.float32(v)) if dtype is DType.FLOAT32 else float(v)


def _float_step(fn: str, a: Any, b: Any, dtype: DType) -> Any:
    """Compute one float operation; sums and products of integers (SymbolicInts) stay integers."""
    if type(a) is SymbolicInt or type(b) is SymbolicInt:
        whole = [_as_integer(v) for v in (a, b)]
        if None not in whole and fn != "div":
            return _rounded(_INTEGERS[fn](*whole), dtype)
        if None not in whole and whole[1] != 0:
            quotient, rest = divmod(whole[0], whole[1])
            if not is_symbolic(rest) and rest == 0:
                return _rounded(quotient, dtype)
    match fn:
        case "add":
            found = a + b
        case "sub":
            found = a - b
        case "mul":
            found = a * b
        case _:
            if b == 0:
                raise _NotCovered
            found = a / b
    return _rounded(found, dtype)


def _cast(v: Any, source: DType, dtype: DType) -> Any:
    if dtype is DType.BOOL:
        return _as_bool(v)
    if dtype.is_int:
        if source.is_int or source is DType.BOOL:
            return _in_range(int(v) if isinstance(v, bool) else v, dtype)
        if not is_symbolic(v):
            if not math.isfinite(v) or abs(v) >= 2**31:
                raise _NotCovered
            return _in_range(math.trunc(v), dtype)
        return _in_range(v if type(v) is SymbolicInt else _truncate(v), dtype)
    if isinstance(v, bool):
        return float(v)
    return _rounded(v if is_symbolic(v) else float(v), dtype)
