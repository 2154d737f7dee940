"""Expr: an elementwise computation as data. Chains of elementwise operators fuse by joining their Exprs.

An Expr is a list of instructions in single-assignment form over operands $0, $1... Its text form is what the
graph's text form shows:

    mul($0, $1); add(%0, 1.0:f32)

%k is the result of instruction k; the last instruction is the result; an Expr without instructions returns $0.
Each instruction carries its dtype. What the functions mean, in NumPy (`evaluate`) and in OpenCL C (emitted by
kernels/codegen/generate.py), one table says: functions.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.dtype import DType
from .functions import FUNCTIONS, Result, find_function

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class In:
    """Operand number `i`."""

    i: int

    def __str__(self) -> str:
        return f"${self.i}"


@dataclass(frozen=True)
class Tmp:
    """Result of instruction `k`."""

    k: int

    def __str__(self) -> str:
        return f"%{self.k}"


@dataclass(frozen=True)
class Lit:
    """A constant."""

    value: float | int | bool
    dtype: DType

    def __str__(self) -> str:
        return f"{self.value!r}:{self.dtype.short}"

    def key(self) -> tuple[str, DType]:
        """Identity that tells -0.0 from 0.0 and NaN equal to itself."""
        return (repr(self.value), self.dtype)


Ref = In | Tmp | Lit


@dataclass(frozen=True)
class Instr:
    """One function call; `dtype` is the result's."""

    fn: str
    args: tuple[Ref, ...]
    dtype: DType

    def __str__(self) -> str:
        suffix = f"<{self.dtype.short}>" if find_function(self.fn).result is Result.GIVEN else ""
        return f"{self.fn}{suffix}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Expr:
    """Instructions over operands of types `dtypes`; `result` is the last instruction (or operand 0)."""

    instrs: tuple[Instr, ...]
    dtypes: tuple[DType, ...]

    @property
    def result(self) -> Ref:
        """Reference to the value of the expression."""
        return Tmp(len(self.instrs) - 1) if self.instrs else In(0)

    @property
    def dtype(self) -> DType:
        """Element type of the result."""
        return self.instrs[-1].dtype if self.instrs else self.dtypes[0]

    def ref_dtype(self, ref: Ref) -> DType:
        """Element type of a reference."""
        if isinstance(ref, In):
            return self.dtypes[ref.i]
        return self.instrs[ref.k].dtype if isinstance(ref, Tmp) else ref.dtype

    @property
    def uses_coords(self) -> bool:
        """Whether the value depends on the position in the output."""
        return any(i.fn == "coord" for i in self.instrs)

    def __str__(self) -> str:
        return "; ".join(map(str, self.instrs)) if self.instrs else "$0"

    def __len__(self) -> int:
        return len(self.instrs)


def result_dtype(fn: str, args: Sequence[DType]) -> DType:
    """Result type of a function whose result is not given. ValueError for unknown functions and those."""
    match find_function(fn, len(args)).result:
        case Result.BOOL:
            return DType.BOOL
        case Result.GIVEN:
            raise ValueError(f"the type of {fn!r} is to be given: {fn}<i32>(...)")
        case Result.SECOND:
            return args[1]
    return args[0]


def evaluate(expr: Expr, arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """The value of `expr` in NumPy, broadcast to `shape`.

    As in kernels, what is stored in 16 bits is computed in float32 and rounded where the model casts, and at the end.
    """
    results: list[Array] = []

    def value(ref: Ref) -> Array:
        if isinstance(ref, In):
            return _widened(arrays[ref.i])
        return results[ref.k] if isinstance(ref, Tmp) else _widened(np.asarray(ref.value, ref.dtype.np))

    with np.errstate(all="ignore"):
        for ins in expr.instrs:
            if ins.fn == "coord":
                axis = ins.args[0]
                assert isinstance(axis, Lit)
                view = [1] * len(shape)
                view[int(axis.value)] = -1
                out = np.arange(shape[int(axis.value)]).reshape(view)
            else:
                given = (ins.dtype,) if FUNCTIONS[ins.fn].result is Result.GIVEN else ()
                out = FUNCTIONS[ins.fn].numpy(*(value(a) for a in ins.args), *given)
            held = np.float32 if ins.dtype in _WIDENED else ins.dtype.np
            results.append(np.asarray(out).astype(held, copy=False))
        final = results[-1].astype(expr.dtype.np, copy=False) if results else arrays[0]
    return np.array(np.broadcast_to(final, shape))


_WIDENED = (DType.FLOAT16, DType.BFLOAT16)


def _widened(a: Array) -> Array:
    return a.astype(np.float32) if a.dtype in (_WIDENED[0].np, _WIDENED[1].np) else a


# ---------------------------------------------------------------------------------------------------------------
# Building by tracing: E.g. trace(lambda x: x * sigmoid(x), DType.FLOAT32)


class Builder:
    """Collects instructions, sharing equal ones and evaluating those whose arguments are all literals."""

    def __init__(self, dtypes: Sequence[DType]) -> None:
        self.dtypes = tuple(dtypes)
        self.instrs: list[Instr] = []
        self._seen: dict[Any, Ref] = {}

    def dtype(self, ref: Ref) -> DType:
        """Element type of a reference."""
        if isinstance(ref, In):
            return self.dtypes[ref.i]
        return self.instrs[ref.k].dtype if isinstance(ref, Tmp) else ref.dtype

    def emit(self, fn: str, args: Sequence[Ref], dtype: DType | None = None) -> Ref:
        """Add one instruction (or find an equal one) and return its reference."""
        dtype = dtype or result_dtype(fn, [self.dtype(a) for a in args])
        if fn == "cast" and self.dtype(args[0]) is dtype:
            return args[0]
        key = (fn, tuple(a.key() if isinstance(a, Lit) else a for a in args), dtype)
        if key in self._seen:
            return self._seen[key]
        known = fn not in ("coord", "bits") and all(isinstance(a, Lit) for a in args)  # a number has no bits of NaN
        if known and dtype is not DType.BFLOAT16:
            value = evaluate(Expr((Instr(fn, tuple(args), dtype),), ()), (), ())
            ref: Ref = Lit(value.item(), dtype)
        else:
            self.instrs.append(Instr(fn, tuple(args), dtype))
            ref = Tmp(len(self.instrs) - 1)
        self._seen[key] = ref
        return ref

    def inline(self, expr: Expr, operands: Sequence[Ref]) -> Ref:
        """Add a whole Expr with `operands` in place of its $0, $1...; returns its result."""
        done: list[Ref] = []

        def moved(ref: Ref) -> Ref:
            if isinstance(ref, In):
                return operands[ref.i]
            return done[ref.k] if isinstance(ref, Tmp) else ref

        for ins in expr.instrs:
            done.append(self.emit(ins.fn, [moved(a) for a in ins.args], ins.dtype))
        return moved(expr.result)

    def finish(self, result: Ref) -> Expr:
        """The Expr that returns `result`: dead instructions go, and the result becomes the last one."""
        live: set[int] = set()
        stack = [result]
        while stack:
            ref = stack.pop()
            if isinstance(ref, Tmp) and ref.k not in live:
                live.add(ref.k)
                stack.extend(self.instrs[ref.k].args)
        order = sorted(live)
        index = {k: i for i, k in enumerate(order)}

        def moved(ref: Ref) -> Ref:
            return Tmp(index[ref.k]) if isinstance(ref, Tmp) else ref

        instrs = [Instr(i.fn, tuple(map(moved, i.args)), i.dtype) for i in (self.instrs[k] for k in order)]
        if isinstance(result, Lit) or (isinstance(result, In) and result.i != 0):
            instrs.append(Instr("cast", (result,), self.dtype(result)))
        return Expr(tuple(instrs), self.dtypes)


class Sym:
    """A traced value: arithmetic on it adds instructions. Python numbers take the other side's dtype."""

    def __init__(self, builder: Builder, ref: Ref) -> None:
        self.builder = builder
        self.ref = ref

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.builder.dtype(self.ref)

    def lift(self, other: Sym | float | int | bool) -> Ref:
        """A number as a literal of this value's dtype."""
        if isinstance(other, Sym):
            return other.ref
        dtype = self.dtype
        value = float(other) if dtype.is_float else bool(other) if dtype is DType.BOOL else int(other)
        return Lit(value, dtype)

    def call(self, fn: str, *others: Sym | float) -> Sym:
        """fn(self, *others)."""
        return Sym(self.builder, self.builder.emit(fn, [self.ref, *(self.lift(o) for o in others)]))

    def typed(self, fn: str, dtype: DType) -> Sym:
        """cast, saturate or bits to `dtype`."""
        return Sym(self.builder, self.builder.emit(fn, [self.ref], dtype))

    def cast(self, dtype: DType) -> Sym:
        """This value as `dtype`."""
        return self.typed("cast", dtype)

    def __add__(self, o: Sym | float) -> Sym:
        return self.call("add", o)

    def __sub__(self, o: Sym | float) -> Sym:
        return self.call("sub", o)

    def __mul__(self, o: Sym | float) -> Sym:
        return self.call("mul", o)

    def __truediv__(self, o: Sym | float) -> Sym:
        return self.call("div", o)

    def _swapped(self, fn: str, o: float) -> Sym:
        return Sym(self.builder, self.builder.emit(fn, [self.lift(o), self.ref]))

    def __radd__(self, o: float) -> Sym:
        return self.call("add", o)

    def __rmul__(self, o: float) -> Sym:
        return self.call("mul", o)

    def __rsub__(self, o: float) -> Sym:
        return self._swapped("sub", o)

    def __rtruediv__(self, o: float) -> Sym:
        return self._swapped("div", o)

    def __neg__(self) -> Sym:
        return self.call("neg")

    def __lt__(self, o: Sym | float) -> Sym:
        return self.call("lt", o)

    def __le__(self, o: Sym | float) -> Sym:
        return self.call("le", o)

    def __gt__(self, o: Sym | float) -> Sym:
        return Sym(self.builder, self.builder.emit("lt", [self.lift(o), self.ref]))

    def __ge__(self, o: Sym | float) -> Sym:
        return Sym(self.builder, self.builder.emit("le", [self.lift(o), self.ref]))

    def eq(self, o: Sym | float) -> Sym:
        """Elementwise equality."""
        return self.call("eq", o)


def where(cond: Sym, a: Sym | float, b: Sym | float) -> Sym:
    """a where cond holds, else b; at least one of a and b is traced."""
    like = a if isinstance(a, Sym) else b
    assert isinstance(like, Sym)
    return Sym(cond.builder, cond.builder.emit("where", [cond.ref, like.lift(a), like.lift(b)]))


def trace(fn: Callable[..., Sym], *dtypes: DType) -> Expr:
    """The Expr computed by `fn` when called with one Sym for each of `dtypes`."""
    b = Builder(dtypes)
    return b.finish(fn(*(Sym(b, In(i)) for i in range(len(dtypes)))).ref)


def coord(builder: Builder, axis: int) -> Sym:
    """The output coordinate along `axis`, as int64."""
    return Sym(builder, builder.emit("coord", [Lit(axis, DType.INT64)], DType.INT64))


def call(fn: str, *dtypes: DType) -> Expr:
    """The Expr of one function applied to its operands in order."""
    b = Builder(dtypes)
    return b.finish(b.emit(fn, [In(i) for i in range(len(dtypes))]))


def bind(expr: Expr, values: Mapping[int, Lit]) -> Expr:
    """`expr` with operands replaced by constants. Operands keep their numbers; the bound ones are no longer read."""
    b = Builder(expr.dtypes)
    return b.finish(b.inline(expr, [values.get(i, In(i)) for i in range(len(expr.dtypes))]))


def cast_expr(src: DType, dst: DType) -> Expr:
    """The Expr that casts its operand."""
    return trace(lambda x: x.cast(dst), src)


# ---------------------------------------------------------------------------------------------------------------
# Text form

_CALL = re.compile(r"\s*(\w+)(?:<(\w+)>)?\((.*)\)\s*$")


def parse_expr(text: str, dtypes: Sequence[DType]) -> Expr:
    """The Expr written as `text`; ValueError says what is wrong with it."""
    instrs: list[Instr] = []
    for part in [p for p in text.split(";") if p.strip() and p.strip() != "$0"]:
        m = _CALL.match(part)
        if m is None:
            raise ValueError(f"not an instruction: {part!r}")
        fn, given, inner = m.groups()
        so_far = Expr(tuple(instrs), tuple(dtypes))
        args = tuple(_parse_ref(a.strip()) for a in inner.split(","))
        find_function(fn, len(args))
        dtype = DType.parse(given) if given else result_dtype(fn, [so_far.ref_dtype(a) for a in args])
        instrs.append(Instr(fn, args, dtype))
    return Expr(tuple(instrs), tuple(dtypes))


def _parse_ref(text: str) -> Ref:
    if text.startswith("$"):
        return In(int(text[1:]))
    if text.startswith("%"):
        return Tmp(int(text[1:]))
    value, _, short = text.partition(":")
    dtype = DType.parse(short or "f32")
    if dtype is DType.BOOL:
        return Lit(value == "True", dtype)
    return Lit(float(value) if dtype.is_float else int(value), dtype)
