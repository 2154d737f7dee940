"""Expr: an elementwise computation as data. Chains of elementwise operators fuse by joining their Exprs.

An Expr is a list of instructions in single-assignment form over operands $0, $1.... Its text form:

    mul($0, $1); add(%0, 1.0:f32)

%k is the result of instruction k; the last instruction is the result; an Expr without instructions returns $0. Each
instruction carries its dtype. function_table.py defines each function in NumPy (`evaluate`) and in OpenCL C (emitted by
kernels/codegen/expression_code.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import Array, DType
from ..lazy_dataclass import dataclass
from .function_table import FUNCTIONS, Result, find_function

Evaluator = Callable[[Sequence[Array], tuple[int, ...]], Array]
"""(operands, shape) -> value of an expression."""


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
        """Identity in which -0.0 and 0.0 differ and NaN equals itself."""
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
        return dtype_of(ref, self.dtypes, self.instrs)

    @property
    def uses_coords(self) -> bool:
        """Whether the value depends on the position in the output."""
        return any(i.fn == "coord" for i in self.instrs)

    def __str__(self) -> str:
        return "; ".join(map(str, self.instrs)) if self.instrs else "$0"

    def __len__(self) -> int:
        return len(self.instrs)


def dtype_of(ref: Ref, operands: Sequence[DType], instrs: Sequence[Instr]) -> DType:
    """Element type of a reference to operands or instructions."""
    if isinstance(ref, In):
        return operands[ref.i]
    return instrs[ref.k].dtype if isinstance(ref, Tmp) else ref.dtype


def result_dtype(fn: str, args: Sequence[DType]) -> DType:
    """Result type of a function that infers it; ValueError for other functions."""
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

    As in kernels, 16-bit values are computed in float32 and rounded at the model's casts and at the end; literals are
    not rounded.
    """
    with np.errstate(all="ignore"):
        final = evaluator(expr)(arrays, shape)
    return np.array(np.broadcast_to(final, shape))


def evaluator(expr: Expr) -> Evaluator:
    """`evaluate` prepared for repeated calls. The result is not broadcast and may be one of the arrays.

    The caller suppresses NumPy's warnings.
    """
    if not expr.instrs:
        return lambda arrays, shape: arrays[0]
    results, dtype = _results(expr), expr.dtype.np
    return lambda arrays, shape: results(arrays, shape)[-1].astype(dtype, copy=False)


def instruction_values(expr: Expr, arrays: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    """The value of each instruction of `expr` as later instructions see it: 16-bit values in float32."""
    with np.errstate(all="ignore"):
        return _results(expr)(arrays, shape)


def _results(expr: Expr) -> Callable[[Sequence[Array], tuple[int, ...]], list[Array]]:
    """(operands, shape) -> the value of each instruction."""
    # All arguments of instructions in one list: constants, the shape, instruction values, operands.
    constants: list[Any] = [np.asarray(a.value, _held(a.dtype)) for i in expr.instrs for a in i.args if type(a) is Lit]
    constants += [ins.dtype for ins in expr.instrs]
    count, first = len(expr.instrs), len(constants) + 1
    literals = iter(range(len(constants) - count))

    def place(ref: Ref) -> int:
        if isinstance(ref, Lit):
            return next(literals)
        return first + ref.k if isinstance(ref, Tmp) else first + count + ref.i

    steps: list[tuple[int, Callable[..., Any], list[int], np.dtype[Any]]] = []
    for k, ins in enumerate(expr.instrs):
        function, places = FUNCTIONS[ins.fn], [place(a) for a in ins.args]
        if ins.fn == "coord":
            places.append(first - 1)
        elif function.result is Result.GIVEN:
            places.append(first - 1 - count + k)
        call = _coordinates if ins.fn == "coord" else function.numpy
        steps.append((first + k, call, places, np.dtype(_held(ins.dtype))))
    blank = [None] * count

    def results(arrays: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
        values: list[Any] = [*constants, shape, *blank, *map(_widened, arrays)]
        for at, call, places, dtype in steps:
            out = call(*[values[i] for i in places])
            fits = type(out) is np.ndarray and out.dtype == dtype
            values[at] = out if fits else np.asarray(out).astype(dtype, copy=False)
        return values[first : first + count]

    return results


def _coordinates(axis: Array, shape: tuple[int, ...]) -> Array:
    """The position along an axis, at every position of `shape`."""
    view = [1] * len(shape)
    view[int(axis)] = -1
    return np.arange(shape[int(axis)]).reshape(view)


def _held(dtype: DType) -> Any:
    """NumPy type in which values of `dtype` are computed."""
    return np.float32 if dtype in _WIDENED else dtype.np


_WIDENED = (DType.FLOAT16, DType.BFLOAT16)


def _widened(a: Array) -> Array:
    dtype = a.dtype
    return a.astype(np.float32) if dtype.itemsize == 2 and dtype in (_WIDENED[0].np, _WIDENED[1].np) else a
