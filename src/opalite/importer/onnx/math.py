"""Arithmetic: unary functions, broadcast binary and n-ary operators, powers, remainders and clipping."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir.graph import Value
from ...ops.cumulative import Cumulative
from ..walk.emitter import MAX_OPERANDS
from ..walk.node_context import NodeContext, onnx_op

_NAMES = "Abs Neg Exp Log Sqrt Floor Ceil Sign Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid"
_UNARY = {name: name.lower() for name in (*_NAMES.split(), "IsNaN", "Not")}
_UNARY |= {"BitwiseNot": "bitnot", "Reciprocal": "recip", "Round": "rint"}
_BINARY = {name: name.lower() for name in ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor")}
_BINARY |= {"Equal": "eq", "Less": "lt", "LessOrEqual": "le"}
_BINARY |= {"BitwiseAnd": "bitand", "BitwiseOr": "bitor", "BitwiseXor": "bitxor"}
_INTEGER_STAYS = frozenset({"Floor", "Ceil", "Round"})


@onnx_op(*_UNARY)
def unary(ctx: NodeContext) -> Value:
    """Import a function of each element."""
    x = ctx.input(0)
    return x if ctx.op_type in _INTEGER_STAYS and not x.dtype.is_float else ctx.unary(_UNARY[ctx.op_type], x)


@onnx_op(*_BINARY)
def binary(ctx: NodeContext) -> Value:
    """Import a function of two broadcast operands."""
    return ctx.binary(_BINARY[ctx.op_type], *operands(ctx))


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
@onnx_op("GreaterOrEqual", since=12)
def greater(ctx: NodeContext) -> Value:
    """Import Greater and GreaterOrEqual: a > b or a >= b."""
    a, b = operands(ctx)
    return ctx.binary("lt" if ctx.op_type == "Greater" else "le", b, a)


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
