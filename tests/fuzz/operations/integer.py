"""Integer arithmetic and bits."""

from __future__ import annotations

from ..builder import Builder, Rejected
from ..registry import operation

WIDE = ("i8", "i4")
ALL = ("i8", "i4", "i1", "u1", "i2", "u2", "u4", "u8")


@operation("integer", 1.2)
def integer_arithmetic(b: Builder) -> None:
    d, x = b.draw, b.tensor(WIDE if b.draw.chance(0.85) else ALL)
    op = d.pick(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg", "Abs", "Sign", "Relu"])
    if not b.has(op):
        raise Rejected(op)
    if op in ("Div", "Mod"):
        shape = [1 if d.chance(0.4) else n for n in b[x].shape][d.between(0, b[x].ndim) :]
        y = b.const(d.array(shape, b[x].dtype, 1, 7), 0.0)  # never a divisor of zero, which ends the process
        b.emit(op, [x, y], fmod=d.pick([None, 0, 1]) if op == "Mod" else None)
    elif op in ("Neg", "Abs", "Sign", "Relu"):
        b.emit(op, [x])
    else:
        b.emit(op, [x, b.partner(x)])


@operation("integer", 0.4)
def bitwise(b: Builder) -> None:
    d = b.draw
    op = d.pick(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
    if not b.has(op):
        raise Rejected(op)
    x = b.tensor(ALL)
    b.emit(op, [x] if op == "BitwiseNot" else [x, b.partner(x)])


@operation("integer", 0.3)
def bit_shift(b: Builder) -> None:
    if not b.has("BitShift"):
        raise Rejected("BitShift")
    x = b.tensor(["u1", "u4", "u8"])
    b.emit("BitShift", [x, b.partner(x, low=0, high=6)], direction=b.draw.pick(["LEFT", "RIGHT"]))


@operation("integer", 0.4)
def range_(b: Builder) -> None:
    if not b.has("Range"):
        raise Rejected("Range")
    d = b.draw
    dtype = d.pick(["i8", "i4", "f4"])
    step = d.pick([1, 2, 3, -1, -2])
    start = d.between(-5, 5)
    stop = start + step * d.between(0, 12) + d.between(0, 1)
    b.emit("Range", [b.const(d.array([], dtype, v, v)) for v in (start, stop, step)])
