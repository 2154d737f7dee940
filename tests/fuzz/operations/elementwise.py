"""Element by element: functions, arithmetic, comparison, selection."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation

SMOOTH = ("Relu", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSigmoid", "Neg", "Abs")
SMOOTH += (
    "Sin",
    "Cos",
    "Atan",
    "Asinh",
    "Erf",
    "Identity",
    "Celu",
    "ThresholdedRelu",
    "Shrink",
    "Mish",
    "HardSwish",
    "Swish",
)
STEPS = ("Floor", "Ceil", "Round", "Sign")
NEEDS = {  # the range of what they are given
    "Log": (0.1, 8.0),
    "Sqrt": (0.0, 9.0),
    "Reciprocal": (0.3, 5.0),
    "Acosh": (1.1, 6.0),
    "Asin": (-0.9, 0.9),
    "Acos": (-0.9, 0.9),
    "Atanh": (-0.9, 0.9),
    "Exp": (-4.0, 4.0),
    "Sinh": (-3.0, 3.0),
    "Cosh": (-3.0, 3.0),
    "Tan": (-1.2, 1.2),
}
ALPHAS = {
    "LeakyRelu": ("alpha",),
    "Elu": ("alpha",),
    "Celu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Shrink": ("lambd", "bias"),
    "Swish": ("alpha",),
}


@operation("elementwise", 5)
def function(b: Builder) -> None:
    d = b.draw
    op = d.pick(SMOOTH + SMOOTH + STEPS + tuple(NEEDS))
    if not b.has(op):
        raise Rejected(op)
    attrs = {a: round(d.between(1, 15) / 10, 3) for a in ALPHAS.get(op, ()) if d.chance(0.6)}
    x = b.real()
    if op in NEEDS and (not b.special or d.chance(0.5)):
        x = b.within(x, *NEEDS[op])
    b.emit(op, [x], **attrs)


@operation("elementwise", 0.6)
def gelu(b: Builder) -> None:
    if not b.has("Gelu"):
        raise Rejected("Gelu")
    b.emit("Gelu", [b.real()], approximate=b.draw.pick(["none", "tanh"]))


@operation("elementwise", 0.5)
def gelu_written_out(b: Builder) -> None:
    """x * 0.5 * (1 + erf(x / sqrt(2))), as exporters write it."""
    if not b.has("Erf"):
        raise Rejected("Erf")
    x = b.real()
    t = b.dtype.type
    inner = b.emit("Erf", [b.emit("Div", [x, b.const(t(2**0.5), 0.0)])])
    outer = b.emit("Mul", [x, b.emit("Add", [inner, b.const(t(1), 0.0)])])
    b.emit("Mul", [outer, b.const(t(0.5), 0.0)])


@operation("elementwise", 0.6)
def gated(b: Builder) -> None:
    """x * sigmoid(x) and its like."""
    x = b.real()
    gate = b.emit(b.draw.pick(["Sigmoid", "HardSigmoid", "Tanh"]), [x])
    b.emit("Mul", [x, gate] if b.draw.chance(0.5) else [gate, x])


@operation("elementwise", 1)
def clip(b: Builder) -> None:
    d, x = b.draw, b.real()
    low, high = -d.between(0, 20) / 10, d.between(1, 60) / 10
    if b.opset < 11:
        b.emit("Clip", [x], min=low if d.chance(0.8) else None, max=high if d.chance(0.8) else None)
        return
    lows = b.const(b.dtype.type(low)) if d.chance(0.8) else ""
    highs = b.const(b.dtype.type(high)) if d.chance(0.8) else ""
    b.emit("Clip", [x, lows, highs] if highs else [x, lows] if lows else [x])


@operation("elementwise", 5)
def arithmetic(b: Builder) -> None:
    d, x = b.draw, b.real()
    op = d.pick(["Add", "Add", "Mul", "Mul", "Sub", "Div"])
    if op == "Div":
        y = b.partner(x) if b.special else b.partner(x, low=0.5, high=3)
        b.emit(op, [x, y])
        return
    y = b.partner(x)
    b.emit(op, [x, y] if d.chance(0.6) else [y, x])


@operation("elementwise", 0.8)
def power(b: Builder) -> None:
    d, x = b.draw, b.real()
    if d.chance(0.6):
        values = [2.0, 0.5, 3.0, -1.0, 1.5, 0.25, 0.0, 1.0, 4.0]
        exponent = b.const(d.pick([np.asarray(v, b.dtype) for v in values]))
        if b.opset >= 12 and d.chance(0.2):
            exponent = b.const(d.pick([np.int64(2), np.int32(3)]))
    else:
        exponent = b.partner(x, low=-2, high=3)
    if not np.all(b[exponent] == np.round(b[exponent])) or (b[exponent] < 0).any():
        x = b.within(x, 0.2, 6.0)
    b.emit("Pow", [x, exponent])


@operation("elementwise", 0.3)
def integer_power(b: Builder) -> None:
    """Of integers, by integers or by floats; some results lie beyond the type."""
    if b.opset < 12:
        raise Rejected("Pow")
    d = b.draw
    if d.chance(0.4):
        high = d.pick([9, 1000, 70_000])
        x = b.input(d.array(d.shape(most=300), d.pick(["i4", "i8"]), -high, high))
    else:
        x = b.tensor(["i4", "i8"], where=lambda a: bool((np.abs(a) < 100_000).all()))
    b.emit("Pow", [x, b.const(np.asarray(d.pick([1, 2, 2, 3, 3]), d.pick(["f4", "f4", "i4", "i8"])))])


@operation("elementwise", 0.5)
def float_modulo(b: Builder) -> None:
    if not b.has("Mod"):
        raise Rejected("Mod")
    x = b.real()
    b.emit("Mod", [x, b.partner(x, low=0.5, high=3)], fmod=1)


@operation("elementwise", 0.6)
def prelu(b: Builder) -> None:
    d, x = b.draw, b.real()
    shape = [1 if d.chance(0.4) else n for n in b[x].shape]
    b.emit("PRelu", [x, b.weight(shape[d.between(0, len(shape)) if d.chance(0.5) else 0 :])])


@operation("elementwise", 1)
def variadic(b: Builder) -> None:
    d = b.draw
    x = b.real(finite=True)
    b.emit(d.pick(["Min", "Max", "Sum", "Mean"]), [x, *(b.partner(x) for _ in range(d.between(0, 3)))])


@operation("elementwise", 0.8)
def compare(b: Builder) -> None:
    d = b.draw
    ops = [o for o in ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual") if b.has(o)]
    x = b.real() if d.chance(0.7) else b.tensor(["i8", "i4"])
    b.emit(d.pick(ops), [x, b.partner(x)])


@operation("elementwise", 0.6)
def logic(b: Builder) -> None:
    d, x = b.draw, b.tensor(["?"])
    op = d.pick(["And", "Or", "Xor", "Not"])
    b.emit(op, [x] if op == "Not" else [x, b.partner(x)])


@operation("elementwise", 0.9)
def where(b: Builder) -> None:
    if not b.has("Where"):
        raise Rejected("Where")
    d = b.draw
    x = b.tensor([b.dtype, b.dtype, "i8", "i4"])
    condition, other = b.partner(x, "?"), b.partner(x)
    b.emit("Where", [condition, x, other] if d.chance(0.6) else [condition, other, x])


@operation("elementwise", 0.3)
def is_special(b: Builder) -> None:
    d = b.draw
    op = d.pick(["IsNaN", "IsInf"])
    if not b.has(op):
        raise Rejected(op)
    attrs = {"detect_negative": d.between(0, 1), "detect_positive": d.between(0, 1)} if op == "IsInf" else {}
    b.emit(op, [b.real()], **attrs)


@operation("elementwise", 0.3)
def dropout(b: Builder) -> None:
    b.emit("Dropout", [b.real()])
