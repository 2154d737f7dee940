"""Operations of the expression interpreter (expression_interpreter.cl): their OpenCL C, and a compiler to its code.

An operation is a function on fixed element types. Its OpenCL C is generated as for optimized kernels (kernels/codegen),
so that both tiers agree. There are two programs: one for floats and conditions, which most models need alone, and one
for all types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...expr.expression import Expr, In, Instr, Lit, Ref, Tmp
from ...expr.trace_function import Builder
from ...ir.device.device_family import SHALLOW_FLOW
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.precision import NARROW
from ..codegen.expression_code import generate
from ..codegen.vector_types import Vec, compute_type
from ..launch import Array

REGISTERS = 16  # limits of expression_interpreter.cl
_F, _I, _B, _U8, _I8 = DType.FLOAT32, DType.INT32, DType.BOOL, DType.UINT8, DType.INT8
HELD = {_F: 0, _I: 0, _B: 1, _U8: 1, _I8: 2}
"""Element types of operands and results, and how elementwise.cl is told that they are stored."""

Operation = tuple[str, tuple[DType, ...], DType]
"""Function, element types of its arguments, and of its result."""


def _same(names: str, dtype: DType, arity: int, result: DType | None = None) -> list[Operation]:
    return [(name, (dtype,) * arity, result or dtype) for name in names.split()]


FLOATS: tuple[Operation, ...] = (
    *_same("abs neg exp log sqrt rsqrt recip tanh erf sigmoid floor ceil rint", _F, 1),
    *_same("add sub mul div max min", _F, 2),
    *_same("eq lt le", _F, 2, _B),
    *_same("and or xor eq", _B, 2),
    ("not", (_B,), _B),
    ("where", (_B, _F, _F), _F),
    ("cast", (_B,), _F),
    ("cast", (_F,), _B),
)
"""Operations of most models: on floats, and conditions on them."""

MORE: tuple[Operation, ...] = (
    *_same("trunc sign sin cos log1p tan asin acos atan sinh cosh", _F, 1),
    *_same("isnan isinf", _F, 1, _B),
    *_same("pow fmod mod", _F, 2),
    *_same("abs neg", _I, 1),
    *_same("add sub mul max min", _I, 2),
    *_same("eq lt le", _I, 2, _B),
    ("where", (_B, _I, _I), _I),
    ("where", (_B, _B, _B), _B),
    *(("cast", (a,), b) for a in (_F, _I, _U8, _I8) for b in (_F, _I, _U8, _I8) if a is not b),
    *(("cast", (_B,), b) for b in (_I, _U8, _I8)),
    *(("cast", (a,), _B) for a in (_I, _U8, _I8)),
    *(("saturate", (a,), b) for a in (_F, _I) for b in (_U8, _I8)),
    ("saturate", (_F,), _I),
)
"""Further operations, on integers and for rarer functions."""

_FEW = 32  # most cases per switch on devices with a limit
_NUMBERS = {operation: k for k, operation in enumerate((*FLOATS, *MORE), 1)}


@dataclass(frozen=True)
class Code:
    """An expression compiled for the interpreter. table: int32, five numbers per step. result: its register.

    is_float: whether the operations of FLOATS suffice.
    """

    table: Array
    steps: int
    result: int
    is_float: bool


def compile_expression(expr: Expr) -> Code | str:
    """Compiles `expr` for the interpreter, or returns the reason why it cannot.

    16-bit floats are computed as float32.
    """
    if any(d in NARROW for d in (*expr.dtypes, *(ins.dtype for ins in expr.instrs))):
        wide = _widened(expr)
        if isinstance(wide, str):
            return wide
        expr = wide
    for dtype in (*expr.dtypes, expr.dtype):
        if dtype not in HELD:
            return f"the general kernel holds no {dtype}"
    return _Assembler(expr).assemble()


def _widened(expr: Expr) -> Expr | str:
    """`expr` with float32 in place of 16-bit floats, or the reason why results would differ."""

    def wide(dtype: DType) -> DType:
        return _F if dtype in NARROW else dtype

    b = Builder([wide(d) for d in expr.dtypes])
    made: list[Ref] = []

    def ref(r: Ref) -> Ref:
        return made[r.k] if isinstance(r, Tmp) else Lit(r.value, wide(r.dtype)) if isinstance(r, Lit) else r

    for ins in expr.instrs:
        if ins.fn in ("cast", "saturate") and ins.dtype in NARROW and expr.ref_dtype(ins.args[0]) is not _B:
            return f"the general kernel rounds nothing to {ins.dtype}"
        made.append(b.emit(ins.fn, [ref(a) for a in ins.args], wide(ins.dtype)))
    return b.finish(ref(expr.result))


class _Assembler:
    """Register allocator: a value has a register from its computation to its last use."""

    def __init__(self, expr: Expr) -> None:
        self.expr = expr
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.free = list(range(REGISTERS - 1, len(expr.dtypes) - 1, -1))
        self.register: dict[Any, int] = {In(i): i for i in range(len(expr.dtypes))}
        self.last: dict[Any, int] = {}
        for k, ins in enumerate(expr.instrs):
            for a in ins.args:
                self.last[_key(a)] = k
        self.last[_key(expr.result)] = len(expr.instrs)

    def assemble(self) -> Code | str:
        """The code, or the reason why there is none."""
        highest = 0
        for k, ins in enumerate(self.expr.instrs):
            operation = (ins.fn, tuple(self.expr.ref_dtype(a) for a in ins.args), ins.dtype)
            number, args = _NUMBERS.get(operation), list(ins.args)
            if number is None and (power := _POWERS.get(_exponent(ins))) is not None:
                number, args = _NUMBERS[power, (_F,) * (2 if power == "mul" else 1), _F], [args[0]] * 2
            if number is None:
                return f"the general kernel has no {ins.fn} of {', '.join(map(str, operation[1]))} to {ins.dtype}"
            highest = max(highest, number)
            found = [self.find(a) for a in args]
            for a in {_key(a) for a in ins.args}:
                if self.last.get(a) == k and a in self.register:
                    self.free.append(self.register.pop(a))
            if None in found or not self.free:
                return f"the expression needs more than {REGISTERS} registers"
            self.register[Tmp(k)] = self.free.pop()
            a, b, c = (*(r or 0 for r in found), 0, 0)[:3]
            self.rows.append((number, self.register[Tmp(k)], a, b, c))
        table = np.array(self.rows or [(0,) * 5], np.int32)
        return Code(table, len(self.rows), self.register[_key(self.expr.result)], highest <= len(FLOATS))

    def find(self, ref: Ref) -> int | None:
        """The register of a value, loading literals; None if all registers are in use."""
        key = _key(ref)
        if key not in self.register:
            if not self.free:
                return None
            assert isinstance(ref, Lit)
            self.register[key] = self.free.pop()
            self.rows.append((0, self.register[key], _bits(ref), 0, 0))
        return self.register[key]


_POWERS = {2.0: "mul", 0.5: "sqrt", -1.0: "recip", -0.5: "rsqrt"}
"""Powers by literals that other operations compute."""


def _bits(literal: Lit) -> int:
    """The 32 bits of a literal."""
    if literal.dtype is not _F:
        return int(literal.value)
    with np.errstate(over="ignore"):  # overflow of float32 becomes infinity
        return int(np.float32(literal.value).view(np.int32))


def _exponent(ins: Instr) -> float:
    """The literal exponent of a float power; NaN for any other instruction."""
    exponent = ins.args[1] if ins.fn == "pow" and ins.dtype is _F else None
    return float(exponent.value) if isinstance(exponent, Lit) else math.nan


def _key(ref: Ref) -> Any:
    return ref.key() if isinstance(ref, Lit) else ref


@cache
def program_of(is_float: bool, pack: int, device: DeviceInfo) -> str:
    """The prelude of expression_interpreter.cl: helpers, and OPERATIONS in vectors of `pack`.

    Devices with a case limit get several switches in sequence.
    """
    helpers: dict[str, str] = {}
    cases = []
    for operation in FLOATS if is_float else (*FLOATS, *MORE):
        fn, dtypes, result = operation
        names = [f"x{i}" for i in range(len(dtypes))]
        made = generate(
            Expr((Instr(fn, tuple(map(In, range(len(dtypes)))), result),), dtypes), pack, names, device=device
        )
        helpers |= made.helpers
        reads = [_read(name, d, register, pack) for name, d, register in zip(names, dtypes, "abc", strict=False)]
        statements = " ".join((*reads, *made.statements, _write(made.result, result, pack)))
        cases.append(f"case {_NUMBERS[operation]}: {{ {statements} }} break;")
    if SHALLOW_FLOW in device.quirks:
        cases = [f"{'' if i % _FEW or not i else '} switch (step_code[0]) { '}{case}" for i, case in enumerate(cases)]
    return "\n".join((*helpers.values(), "#define OPERATIONS \\\n    " + " \\\n    ".join(cases)))


def _read(name: str, dtype: DType, register: str, pack: int) -> str:
    """The statement that loads an argument from its register."""
    t = compute_type(dtype, pack)
    if t.is_float:
        return f"const {t} {name} = FLOAT({register});"
    text = f"INT({register})"
    return f"const {t} {name} = {text if t.base == 'int' else t.convert(text)};"


def _write(name: str, dtype: DType, pack: int) -> str:
    """The statement that stores the result to its register."""
    t = compute_type(dtype, pack)
    if t.is_float:
        return f"SET_FLOAT({name})"
    return f"SET_INT({name if t.base == 'int' else Vec('int', pack).convert(name)})"
