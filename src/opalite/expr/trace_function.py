"""Expr construction by tracing a Python function: trace(lambda x: x * x.call("sigmoid"), DType.FLOAT32)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.dtype import DType
from ..ir.symbols import is_symbolic
from .expression import Expr, In, Instr, Lit, Ref, Tmp, dtype_of, instruction_values, result_dtype


class Builder:
    """Collector of instructions, which merges equal ones and folds those of literals.

    sizes: symbolic numbers that become operands after the given ones, with their dtypes; None if such numbers are fixed
    instead.
    """

    def __init__(self, dtypes: Sequence[DType], sizes: list[tuple[Any, DType]] | None = None) -> None:
        self.dtypes = tuple(dtypes)
        self.sizes = sizes
        self.instrs: list[Instr] = []
        self._seen: dict[Any, Ref] = {}

    def dtype(self, ref: Ref) -> DType:
        """Element type of a reference."""
        return dtype_of(ref, self.dtypes, self.instrs)

    def emit(self, fn: str, args: Sequence[Ref], dtype: DType | None = None) -> Ref:
        """Add one instruction (or find an equal one) and return its reference."""
        dtype = dtype or result_dtype(fn, [self.dtype(a) for a in args])
        if fn == "cast" and self.dtype(args[0]) is dtype:
            return args[0]
        key = (fn, tuple(a.key() if isinstance(a, Lit) else a for a in args), dtype)
        if key in self._seen:
            return self._seen[key]
        # A Python number cannot hold a NaN's bits.
        known = fn not in ("coord", "bits") and all(isinstance(a, Lit) for a in args)
        if known and dtype is not DType.BFLOAT16:
            (value,) = instruction_values(Expr((Instr(fn, tuple(args), dtype),), ()), (), ())
            ref: Ref = Lit(value.item(), dtype)
        else:
            self.instrs.append(Instr(fn, tuple(args), dtype))
            ref = Tmp(len(self.instrs) - 1)
        self._seen[key] = ref
        return ref

    def size(self, number: Any, dtype: DType) -> Ref | None:
        """The operand with a symbolic number; None if it becomes a literal."""
        if self.sizes is None or not is_symbolic(number) or dtype is DType.BOOL:
            return None
        key = ("size", number.text, dtype)
        if key not in self._seen:
            self.sizes.append((number, dtype))
            self._seen[key] = In(len(self.dtypes))
            self.dtypes = (*self.dtypes, dtype)
        return self._seen[key]

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
        """The Expr that returns `result`, which becomes the last instruction; dead instructions are removed."""
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


def _operator(fn: str) -> Callable[[Sym, Sym | float], Sym]:
    """Return the method that calls `fn`."""
    return lambda self, o: self.call(fn, o)


class Sym:
    """A traced value: arithmetic on it adds instructions. Python numbers get the other side's dtype."""

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
        if (operand := self.builder.size(other, dtype)) is not None:
            return operand
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

    __add__ = __radd__ = _operator("add")
    __mul__ = __rmul__ = _operator("mul")
    __sub__, __truediv__ = _operator("sub"), _operator("div")
    __lt__, __le__ = _operator("lt"), _operator("le")

    def eq(self, o: Sym | float) -> Sym:
        """Elementwise equality."""
        return self.call("eq", o)

    def _swapped(self, fn: str, o: Sym | float) -> Sym:
        return Sym(self.builder, self.builder.emit(fn, [self.lift(o), self.ref]))

    def __rsub__(self, o: float) -> Sym:
        return self._swapped("sub", o)

    def __rtruediv__(self, o: float) -> Sym:
        return self._swapped("div", o)

    def __neg__(self) -> Sym:
        return self.call("neg")

    def __gt__(self, o: Sym | float) -> Sym:
        return self._swapped("lt", o)

    def __ge__(self, o: Sym | float) -> Sym:
        return self._swapped("le", o)


def where(cond: Sym, a: Sym | float, b: Sym | float) -> Sym:
    """a where cond holds, else b; at least one of a and b is traced."""
    like = a if isinstance(a, Sym) else b
    assert isinstance(like, Sym)
    return Sym(cond.builder, cond.builder.emit("where", [cond.ref, like.lift(a), like.lift(b)]))


def trace(fn: Callable[..., Sym], *dtypes: DType) -> Expr:
    """The Expr computed by `fn` when called with one Sym for each of `dtypes`."""
    b = Builder(dtypes)
    return b.finish(fn(*(Sym(b, In(i)) for i in range(len(dtypes)))).ref)


def trace_with_sizes(fn: Callable[..., Sym], *dtypes: DType) -> tuple[Expr, list[tuple[Any, DType]]]:
    """`trace`, with symbolic numbers as one-element operands after those of `dtypes`."""
    sizes: list[tuple[Any, DType]] = []
    b = Builder(dtypes, sizes)
    return b.finish(fn(*(Sym(b, In(i)) for i in range(len(dtypes)))).ref), sizes


def coord(builder: Builder, axis: int) -> Sym:
    """The output coordinate along `axis`, as int64."""
    return Sym(builder, builder.emit("coord", [Lit(axis, DType.INT64)], DType.INT64))


def call(fn: str, *dtypes: DType) -> Expr:
    """The Expr of one function applied to its operands in order."""
    b = Builder(dtypes)
    return b.finish(b.emit(fn, [In(i) for i in range(len(dtypes))]))


def bind(expr: Expr, values: Mapping[int, Lit]) -> Expr:
    """`expr` with operands replaced by constants. Operands keep their numbers; bound ones are unused."""
    b = Builder(expr.dtypes)
    return b.finish(b.inline(expr, [values.get(i, In(i)) for i in range(len(expr.dtypes))]))


def cast_expr(src: DType, dst: DType) -> Expr:
    """The Expr that casts its operand."""
    return trace(lambda x: x.cast(dst), src)
