"""Importers of functions of each element: arithmetic, comparisons, casts."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from .common import PaddleNode, paddle_op

_SAME = "abs acos acosh asin asinh atan atanh ceil cos cosh exp erf floor log log1p rsqrt sigmoid sign sin sinh sqrt"
_UNARY = {name: name for name in (*_SAME.split(), "tan", "tanh", "trunc", "neg")}
_UNARY |= {"reciprocal": "recip", "negative": "neg", "logical_not": "not", "bitwise_not": "bitnot"}
_WHOLE = frozenset(("ceil", "floor", "trunc", "round", "abs", "neg", "negative", "sign", "bitwise_not", "logical_not"))


@paddle_op(*_UNARY)
def unary(n: PaddleNode) -> Value:
    """Import a function of each element; integers give float32, where Paddle computes a real function of them."""
    x = n.value("x")
    if not x.dtype.is_float and n.op_type not in _WHOLE:
        x = n.cast(x, DType.FLOAT32)
    return n.unary(_UNARY[n.op_type], x)


_EXPRESSIONS: dict[str, Callable[[Sym], Sym]] = {
    "square": lambda x: x * x,
    "expm1": lambda x: x.call("exp") - 1,
    "log2": lambda x: x.call("log") * (1 / math.log(2)),
    "log10": lambda x: x.call("log") * (1 / math.log(10)),
    "isnan_v2": lambda x: x.call("isnan"),
    "isinf_v2": lambda x: x.call("isinf"),
    "isfinite_v2": lambda x: x.call("isnan").call("or", x.call("isinf")).call("not"),
}
_EXPRESSIONS |= {name: _EXPRESSIONS[f"{name}_v2"] for name in ("isnan", "isinf", "isfinite")}


@paddle_op(*_EXPRESSIONS)
def expression(n: PaddleNode) -> Value:
    """Import a function of each element that is an expression of others."""
    return n.elementwise(_EXPRESSIONS[n.op_type], n.value("x"))


@paddle_op("round")
def round_(n: PaddleNode) -> Value:
    """Import round: halves away from zero, after `decimals` digits."""
    x, digits = n.value("x"), int(n.number("decimals", default=0))
    if not x.dtype.is_float:
        return x
    factor = 10.0**digits

    def away(v: Sym) -> Sym:
        v = v * factor if digits else v
        whole = ((v.call("abs") + 0.5).call("floor") * v.call("sign")).cast(v.dtype)
        return whole * (1 / factor) if digits else whole

    return n.elementwise(away, x)


@paddle_op("logit")
def logit(n: PaddleNode) -> Value:
    """Import logit: log(x / (1 - x)), of x clipped to eps."""
    eps = float(n.number("eps", default=1e-6))

    def fn(x: Sym) -> Sym:
        x = x.call("max", eps).call("min", 1 - eps) if eps else x
        return (x / (1 - x)).call("log")

    return n.elementwise(fn, n.value("x"))


# Two operands

_BINARY = {"add": "add", "subtract": "sub", "multiply": "mul", "maximum": "max", "minimum": "min", "pow": "pow"}
_NAMES = {"subtract": "sub", "multiply": "mul", "maximum": "max", "minimum": "min"}
_BINARY |= {f"elementwise_{_NAMES.get(name, name)}": fn for name, fn in _BINARY.items()}
del _BINARY["pow"]  # by a number
_BINARY |= {name: name.removeprefix("logical_") for name in ("logical_and", "logical_or", "logical_xor")}
_BINARY |= {f"bitwise_{name}": f"bit{name}" for name in ("and", "or", "xor")}
_BINARY |= {"atan2": "atan2", "equal": "eq", "less_than": "lt", "less_equal": "le"}


def operands(n: PaddleNode) -> tuple[Value, Value]:
    """Return two operands of one type; `axis` places the second one in the first."""
    x, y = n.value("x", "x1", "input"), n.value("y", "x2", "other")
    axis = int(n.number("axis", default=-1))
    if axis >= 0 and len(y.shape) and len(x.shape) > len(y.shape):
        tail = len(x.shape) - axis - len(y.shape)
        if tail < 0:
            raise ShapeError(f"{n.label} places {y.type} at axis {axis} of {x.type}, which lacks axes for it")
        y = n.reshape(y, (*y.shape, *(1,) * tail))
    return promoted(n, x, y)


def promoted(n: PaddleNode, x: Value, y: Value) -> tuple[Value, Value]:
    """Cast operands of different types to one: the float, or the wider one."""
    if x.dtype is y.dtype:
        return x, y
    rank = [(v.dtype.is_float, v.dtype is not DType.BOOL, v.dtype.size) for v in (x, y)]
    wide = x.dtype if rank[0] >= rank[1] else y.dtype
    return n.cast(x, wide), n.cast(y, wide)


@paddle_op(*_BINARY, operands="x y")
def binary(n: PaddleNode) -> Value:
    """Import a function of two broadcast operands."""
    return n.binary(_BINARY[n.op_type], *operands(n))


@paddle_op("greater_than", "greater_equal", operands="x y")
def greater(n: PaddleNode) -> Value:
    """Import a comparison with the operands exchanged."""
    x, y = operands(n)
    return n.binary("lt" if n.op_type == "greater_than" else "le", y, x)


@paddle_op("not_equal", operands="x y")
def not_equal(n: PaddleNode) -> Value:
    """Import not_equal."""
    return n.elementwise(lambda a, b: a.eq(b).call("not"), *operands(n))


@paddle_op("equal_all", operands="x y")
def equal_all(n: PaddleNode) -> Value:
    """Import equal_all: whether all elements are equal."""
    return _all(n, n.binary("eq", *operands(n)))


@paddle_op("allclose", "isclose", operands="x y rtol atol")
def close(n: PaddleNode) -> Value:
    """Import isclose, |x - y| <= atol + rtol |y|, and allclose."""
    relative, absolute = float(n.number("rtol", default=1e-5)), float(n.number("atol", default=1e-8))
    equal_nan = n.is_set("equal_nan")

    def near(a: Sym, b: Sym) -> Sym:
        found = (a - b).call("abs") <= b.call("abs") * relative + absolute
        found = found.call("or", a.eq(b))
        return found.call("or", a.call("isnan").call("and", b.call("isnan"))) if equal_nan else found

    found = n.elementwise(near, *operands(n))
    return found if n.op_type == "isclose" else _all(n, found)


def _all(n: PaddleNode, v: Value) -> Value:
    found = n.reduce(n.cast(v, DType.UINT8), "min", range(len(v.shape)), keepdims=False)
    return n.cast(found, DType.BOOL)


@paddle_op("divide", "elementwise_div", operands="x y")
def divide(n: PaddleNode) -> Value:
    """Import divide; integers of PIR programs give floats."""
    x, y = operands(n)
    if n.op_type == "divide" and not x.dtype.is_float:
        x, y = n.cast(x, DType.FLOAT32), n.cast(y, DType.FLOAT32)
    return n.binary("div", x, y)


@paddle_op("floor_divide", "elementwise_floordiv", operands="x y")
def floor_divide(n: PaddleNode) -> Value:
    """Import floor_divide: the quotient rounded down."""

    def down(a: Sym, b: Sym) -> Sym:
        if a.dtype.is_float:
            return (a / b).call("floor")
        return ((a - a.call("mod", b)) / b).cast(a.dtype)

    return n.elementwise(down, *operands(n))


@paddle_op("remainder", "elementwise_mod", operands="x y")
def remainder(n: PaddleNode) -> Value:
    """Import remainder: of the sign of the divisor."""

    def rest(a: Sym, b: Sym) -> Sym:
        if not a.dtype.is_float:
            return a.call("mod", b)
        found = a.call("fmod", b)
        wrong = found.eq(0).call("not").call("and", (found * b) < 0)
        return where(wrong, found + b, found)

    return n.elementwise(rest, *operands(n))


@paddle_op("fmax", "fmin", "elementwise_fmax", "elementwise_fmin", operands="x y")
def without_nan(n: PaddleNode) -> Value:
    """Import fmax and fmin: the larger or smaller operand that is no NaN."""
    fn = n.op_type[-3:]

    def choose(a: Sym, b: Sym) -> Sym:
        return where(a.call("isnan"), b, where(b.call("isnan"), a, a.call(fn, b)))

    return n.elementwise(choose, *operands(n))


@paddle_op("pow", "elementwise_pow_scalar", operands="x y")
def power(n: PaddleNode) -> Value:
    """Import pow: of a number that is an attribute, or a tensor of one element."""
    x = n.value("x")
    exponent = float(n.number("factor_tensor", "factor", "y", default=1.0))
    if not x.dtype.is_float and exponent != int(exponent):
        x = n.cast(x, DType.FLOAT32)
    return n.emit("Pow", [x, n.scalar(exponent, x)])


@paddle_op("lerp", operands="x y weight")
def lerp(n: PaddleNode) -> Value:
    """Import lerp: x + weight (y - x)."""
    return n.elementwise(lambda a, b, w: a + w * (b - a), n.value("x"), n.value("y"), n.value("weight"))


# Numbers as parameters


@paddle_op("scale", operands="x scale")
def scale(n: PaddleNode) -> Value:
    """Import scale: x * scale + bias, or (x + bias) * scale; integers stay integers."""
    x = n.value("x")
    bias, last = n.number("bias_tensor", "bias", default=0.0), n.is_set("bias_after_scale", default=True)
    tensor = n.maybe("scale_tensor", "scale")
    known = None if tensor is None else tensor.data
    if tensor is not None and known is None:
        factor = n.reshape(n.cast(tensor, x.dtype), ())
        return n.elementwise(lambda v, f: v * f + bias if last else (v + bias) * f, x, factor)
    by = float(n.attr("scale", 1.0) if known is None else known.reshape(-1)[0])

    def scaled(v: Sym) -> Sym:
        if not v.dtype.is_float:
            whole = v if by == 1 else (v.cast(DType.FLOAT64) * by).cast(v.dtype) if by != int(by) else v * int(by)
            if last or by == 1:
                return whole + int(bias) if bias else whole
            return (v + int(bias)) * int(by)
        if not last:
            return (v + bias) * by if bias else v * by
        v = v if by == 1 else v * by
        return v + bias if bias else v

    return n.elementwise(scaled, x)


@paddle_op("clip", operands="x min max")
def clip(n: PaddleNode) -> Value:
    """Import clip: between bounds that are numbers or tensors of one element."""
    x = n.value("x")
    bounds: list[Value | None] = []
    for name in ("min", "max"):
        tensor = n.maybe(name)
        if tensor is not None and tensor.data is None:
            bounds.append(n.reshape(n.cast(tensor, x.dtype), ()))
        else:
            given = n.attr(name) if tensor is None or tensor.data is None else tensor.data.reshape(-1)[0]
            bounds.append(None if given is None else n.scalar(given, x))

    def clipped(v: Sym, low: Sym | None, high: Sym | None) -> Sym:
        v = v if low is None else v.call("max", low)
        return v if high is None else v.call("min", high)

    return n.elementwise(clipped, x, *bounds)


@paddle_op("increment")
def increment(n: PaddleNode) -> Value:
    """Import increment: x + step."""
    step = float(n.number("step", "value", default=1.0))
    return n.elementwise(lambda v: v + (step if v.dtype.is_float else int(step)), n.value("x"))


@paddle_op("cast")
def cast(n: PaddleNode) -> Value:
    """Import cast to another element type."""
    x = n.value("x")
    dtype = n.dtype("out_dtype", "dtype", default=x.dtype)
    if not dtype.on_device:
        raise n.refuse(f"casts to {dtype}, which devices do not hold")
    return n.cast(x, dtype)


@paddle_op("assign", "share_data", "memcpy_d2h", "memcpy_h2d", "print", "depend", "assign_out", "copy_to")
def assign(n: PaddleNode) -> Value:
    """Import assign: the input."""
    return n.value("x", "input", "in")


@paddle_op("where", operands="condition x y")
def where_(n: PaddleNode) -> Value:
    """Import where: x where the condition holds, else y."""
    x, y = promoted(n, n.value("x"), n.value("y"))
    return n.elementwise(lambda c, a, b: where(c, a, b), n.value("condition"), x, y)


@paddle_op("add_n", operands="inputs")
def add_n(n: PaddleNode) -> Value:
    """Import add_n: sum of any number of tensors."""
    return n.chain("add", n.values("inputs", "x"))


@paddle_op("masked_fill", operands="x mask value")
def masked_fill(n: PaddleNode) -> Value:
    """Import masked_fill: `value` where the mask holds."""
    x = n.value("x")
    value = n.cast(n.value("value"), x.dtype)
    return n.elementwise(lambda v, m, f: where(m, f, v), x, n.value("mask"), value)


@paddle_op("label_smooth", operands="label prior_dist")
def label_smooth(n: PaddleNode) -> Value:
    """Import label_smooth: (1 - epsilon) label + epsilon / classes, or epsilon times a given distribution."""
    x, eps, prior = n.value("label", "x"), float(n.number("epsilon", default=0.0)), n.maybe("prior_dist")
    if prior is None:
        return n.elementwise(lambda v: v * (1 - eps) + eps / x.shape[-1], x)
    return n.elementwise(lambda v, p: v * (1 - eps) + p * eps, x, prior)
