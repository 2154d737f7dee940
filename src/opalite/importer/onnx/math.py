"""Arithmetic: unary functions, broadcast binary and n-ary operators, powers, remainders and clipping."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir.graph import Value
from ...ops.cumulative import Cumulative
from ..walk.emitter import MAX_OPERANDS
from ..walk.node_context import NodeContext, onnx_op

_UNARY = {
    "Abs": "abs",
    "Neg": "neg",
    "Exp": "exp",
    "Log": "log",
    "Sqrt": "sqrt",
    "Reciprocal": "recip",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "rint",
    "Sign": "sign",
    "Erf": "erf",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Tanh": "tanh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Sigmoid": "sigmoid",
    "IsNaN": "isnan",
    "Not": "not",
    "BitwiseNot": "bitnot",
}
_BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "And": "and",
    "Or": "or",
    "Xor": "xor",
    "Equal": "eq",
    "Less": "lt",
    "LessOrEqual": "le",
    "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor",
    "BitwiseXor": "bitxor",
}
_INTEGER_STAYS = frozenset({"Floor", "Ceil", "Round"})


def _register_unary(op_type: str, fn: str) -> None:
    @onnx_op(op_type, since=1)
    def convert(ctx: NodeContext) -> Value:
        x = ctx.input(0)
        return x if op_type in _INTEGER_STAYS and not x.dtype.is_float else ctx.unary(fn, x)


def _register_binary(op_type: str, fn: str) -> None:
    @onnx_op(op_type, since=1)
    def convert(ctx: NodeContext) -> Value:
        a, b = operands(ctx)
        return ctx.binary(fn, a, b)


for _op_type, _fn in _UNARY.items():
    _register_unary(_op_type, _fn)
for _op_type, _fn in _BINARY.items():
    _register_binary(_op_type, _fn)


def operands(ctx: NodeContext) -> tuple[Value, Value]:
    """Return both inputs of a binary operator; before opset 7 `broadcast` and `axis` place the second one."""
    a, b = ctx.input(0), ctx.input(1)
    if ctx.version < 7 and ctx.attr("broadcast", 0) and b.shape:
        axis = int(ctx.attr("axis", len(a.shape) - len(b.shape)))
        axis += len(a.shape) if axis < 0 else 0
        tail = len(a.shape) - axis - len(b.shape)
        if tail < 0:
            raise ShapeError(f"{b.type} does not fit into {a.type} from axis {axis}")
        b = ctx.reshape(b, (*b.shape, *(1,) * tail))
    return a, b


@onnx_op("Greater")
def greater(ctx: NodeContext) -> Value:
    """Import Greater: a > b."""
    a, b = operands(ctx)
    return ctx.binary("lt", b, a)


@onnx_op("GreaterOrEqual", since=12)
def greater_or_equal(ctx: NodeContext) -> Value:
    """Import GreaterOrEqual: a >= b."""
    return ctx.binary("le", ctx.input(1), ctx.input(0))


@onnx_op("Sum", "Max", "Min")
def sum_or_extreme(ctx: NodeContext) -> Value:
    """Import Sum, Max and Min: sum, largest or smallest of any number of broadcast inputs."""
    return ctx.chain("add" if ctx.op_type == "Sum" else ctx.op_type.lower(), ctx.present)


@onnx_op("Mean", since=1)
def mean(ctx: NodeContext) -> Value:
    """Import Mean: mean of any number of broadcast inputs."""
    values = ctx.present
    if len(values) > MAX_OPERANDS:
        total = ctx.chain("add", values)
        return ctx.elementwise(lambda x: x / len(values), total)

    def average(first: Sym, *others: Sym) -> Sym:
        for o in others:
            first = first + o
        return first / len(values)

    return ctx.elementwise(average, *values)


@onnx_op("Pow", since=1)
def pow_(ctx: NodeContext) -> Value:
    """Import Pow: a to the power of b in a's dtype; common constant exponents become products and roots."""
    a, b = operands(ctx)
    exponent = ctx.maybe_const(1)
    if a.dtype.is_float and exponent is not None and exponent.size == 1 and len(exponent.shape) <= len(a.shape):
        simple = _POWERS.get(float(exponent.reshape(())))
        if simple is not None:
            return ctx.elementwise(simple, a)
    if not a.dtype.is_float and exponent is not None and exponent.size == 1 and exponent.reshape(()) in (2, 3):
        return ctx.elementwise(lambda x, y: x.call("pow", y.cast(x.dtype)), a, b)  # wraps around
    if not a.dtype.is_float and b.dtype.is_float:
        return ctx.elementwise(_int_to_float_power, a, b)
    return ctx.elementwise(lambda x, y: x.call("pow", y.cast(x.dtype)), a, b)


_POWERS: dict[float, Callable[[Sym], Sym]] = {
    -1.0: lambda x: x.call("recip"),
    -0.5: lambda x: x.call("rsqrt"),
    0.5: lambda x: x.call("sqrt"),
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
}


def _int_to_float_power(x: Sym, y: Sym) -> Sym:
    """Return the truncated power; near integers are rounded, because a device's pow() may be some ulp too small."""
    power = x.cast(y.dtype).call("pow", y)
    whole = power.call("rint")
    near = (power - whole).call("abs") <= power.call("abs") * 1e-5
    return where(near, whole, power).cast(x.dtype)


@onnx_op("Mod", since=10)
def mod(ctx: NodeContext) -> Value:
    """Import Mod: remainder with the divisor's sign, or C's fmod with fmod=1."""
    return ctx.binary("fmod" if ctx.attr("fmod", 0) else "mod", ctx.input(0), ctx.input(1))


@onnx_op("BitShift", since=11)
def bit_shift(ctx: NodeContext) -> Value:
    """Import BitShift: shift by the second input's bits to the LEFT or RIGHT."""
    fn = "shl" if ctx.attr("direction", "LEFT") == "LEFT" else "shr"
    return ctx.binary(fn, ctx.input(0), ctx.input(1))


@onnx_op("IsInf", since=10)
def is_inf(ctx: NodeContext) -> Value:
    """Import IsInf: whether elements are infinite, of the requested signs."""
    negative, positive = ctx.attr("detect_negative", True), ctx.attr("detect_positive", True)

    def detect(x: Sym) -> Sym:
        infinite = x.call("isinf")
        if negative and positive:
            return infinite
        return infinite.call("and", (x < 0 if negative else x > 0) if negative or positive else False)

    return ctx.elementwise(detect, ctx.input(0))


@onnx_op("Clip")
def clip(ctx: NodeContext) -> Value:
    """Import Clip: min(max(x, lo), hi) with optional bounds, since opset 11 scalar inputs; if lo > hi, it is hi."""
    if ctx.version < 11:
        low, high = ctx.attr("min"), ctx.attr("max")
    else:
        known = [ctx.maybe_const(i) for i in (1, 2)]
        low, high = (ctx.get(i) if k is None else k.reshape(()).item() for i, k in enumerate(known, 1))

    def clipped(v: Sym, least: Sym | None, most: Sym | None) -> Sym:
        for fn, given, traced in (("max", low, least), ("min", high, most)):
            if given is not None:
                v = v.call(fn, given if traced is None else traced)
        return v

    bounds = (ctx.reshape(b, ()) if isinstance(b, Value) else None for b in (low, high))
    return ctx.elementwise(clipped, ctx.input(0), *bounds)


@onnx_op("CumSum", since=11)
@onnx_op("CumProd", since=26)
def cumulative(ctx: NodeContext) -> Value:
    """Import CumSum and CumProd: running sum or product along an axis given as an input."""
    x = ctx.input(0)
    axis = int(ctx.const_scalar(1))
    if not -len(x.shape) <= axis < len(x.shape):
        raise ShapeError(f"axis {axis} is outside {x.type}")
    return ctx.add(
        Cumulative(
            kind="sum" if ctx.op_type == "CumSum" else "prod",
            axis=axis % len(x.shape),
            exclusive=ctx.attr("exclusive", False),
            reverse=ctx.attr("reverse", False),
        ),
        [x],
    )
