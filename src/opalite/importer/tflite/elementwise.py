"""Importers of functions of each element: arithmetic, comparisons, logic, activations, selection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from ..onnx.activation import gelu_exact, gelu_tanh, leaky_relu
from ..walk.node_context import NodeContext
from .common import activated, clamp, is_complex, tflite_op, unsupported
from .fixed_point import number
from .fourier import complex_product

_UNARY = {
    "ABS": "abs",
    "CEIL": "ceil",
    "COS": "cos",
    "EXP": "exp",
    "FLOOR": "floor",
    "LOG": "log",
    "LOGICAL_NOT": "not",
    "LOGISTIC": "sigmoid",
    "NEG": "neg",
    "ROUND": "rint",
    "RSQRT": "rsqrt",
    "SIGN": "sign",
    "SIN": "sin",
    "SQRT": "sqrt",
    "TANH": "tanh",
}
_BINARY = {
    "ADD": "add",
    "SUB": "sub",
    "MUL": "mul",
    "DIV": "div",
    "MAXIMUM": "max",
    "MINIMUM": "min",
    "POW": "pow",
    "ATAN2": "atan2",
    "FLOOR_MOD": "mod",
    "LOGICAL_AND": "and",
    "LOGICAL_OR": "or",
    "EQUAL": "eq",
    "LESS": "lt",
    "LESS_EQUAL": "le",
    "BITWISE_XOR": "bitxor",
    "RIGHT_SHIFT": "shr",
}
_ACTIVATIONS: dict[str, Callable[[Sym], Sym]] = {
    "RELU": lambda x: clamp(x, 0, None),
    "RELU6": lambda x: clamp(x, 0, 6),
    "RELU_N1_TO_1": lambda x: clamp(x, -1, 1),
    "RELU_0_TO_1": lambda x: clamp(x, 0, 1),
    "ELU": lambda x: where(x < 0, x.call("exp") - 1, x),
    "HARD_SWISH": lambda x: x * clamp(x + 3, 0, 6) * (1 / 6),
    "SQUARE": lambda x: x * x,
}


@tflite_op(*_UNARY)
def unary(ctx: NodeContext) -> Value:
    """Import a function of each element."""
    return ctx.unary(_UNARY[ctx.op_type], ctx.input(0))


@tflite_op(*_ACTIVATIONS)
def activation(ctx: NodeContext) -> Value:
    """Import an activation."""
    return ctx.elementwise(_ACTIVATIONS[ctx.op_type], ctx.input(0))


@tflite_op(*_BINARY, pairs=True)
def binary(ctx: NodeContext) -> Value:
    """Import a function of two broadcast operands, with a fused activation if it has one."""
    if is_complex(ctx):
        if ctx.op_type != "MUL":
            raise unsupported(ctx, "has complex numbers")
        return complex_product(ctx, ctx.input(0), ctx.input(1))
    return activated(ctx, ctx.binary(_BINARY[ctx.op_type], ctx.input(0), ctx.input(1)))


@tflite_op("GREATER", "GREATER_EQUAL")
def greater(ctx: NodeContext) -> Value:
    """Import GREATER and GREATER_EQUAL: the other comparisons with operands exchanged."""
    return ctx.binary("lt" if ctx.op_type == "GREATER" else "le", ctx.input(1), ctx.input(0))


@tflite_op("NOT_EQUAL")
def not_equal(ctx: NodeContext) -> Value:
    """Import NOT_EQUAL."""
    return ctx.elementwise(lambda a, b: a.eq(b).call("not"), ctx.input(0), ctx.input(1))


@tflite_op("SQUARED_DIFFERENCE")
def squared_difference(ctx: NodeContext) -> Value:
    """Import SQUARED_DIFFERENCE: (a - b)^2."""
    return ctx.elementwise(lambda a, b: (a - b) * (a - b), ctx.input(0), ctx.input(1))


@tflite_op("FLOOR_DIV")
def floor_div(ctx: NodeContext) -> Value:
    """Import FLOOR_DIV: the quotient rounded down."""

    def divide(a: Sym, b: Sym) -> Sym:
        if a.dtype.is_float:
            return (a / b).call("floor")
        # C's quotient goes toward zero.
        rest = a.call("mod", b)
        exact = rest.eq(0).call("or", (rest < 0).eq(a < 0))
        return a / b - where(exact, number(a, 0), number(a, 1))

    return ctx.elementwise(divide, ctx.input(0), ctx.input(1))


@tflite_op("ADD_N")
def add_n(ctx: NodeContext) -> Value:
    """Import ADD_N: the sum of all inputs."""
    return ctx.chain("add", ctx.present)


@tflite_op("GELU")
def gelu(ctx: NodeContext) -> Value:
    """Import GELU, exact or by tanh."""
    return ctx.elementwise(gelu_tanh if ctx.attr("approximate", False) else gelu_exact, ctx.input(0))


@tflite_op("LEAKY_RELU")
def leaky(ctx: NodeContext) -> Value:
    """Import LEAKY_RELU: x, or alpha * x below zero."""
    alpha = ctx.attr("alpha", 0.0)
    return ctx.elementwise(lambda x: leaky_relu(x, alpha), ctx.input(0))


@tflite_op("PRELU")
def prelu(ctx: NodeContext) -> Value:
    """Import PRELU: x, or slope * x below zero; the slope broadcasts."""
    return ctx.elementwise(leaky_relu, ctx.input(0), ctx.input(1))


@tflite_op("SELECT_V2", moves=True)
def select_v2(ctx: NodeContext) -> Value:
    """Import SELECT_V2: x where the condition holds, else y; all broadcast."""
    return ctx.elementwise(lambda c, x, y: c.call("where", x, y), ctx.input(0), ctx.input(1), ctx.input(2))


@tflite_op("SELECT", moves=True)
def select(ctx: NodeContext) -> Value:
    """Import SELECT: as SELECT_V2, but a vector chooses rows."""
    c, x = ctx.input(0), ctx.input(1)
    if c.type.count == 1:
        c = ctx.reshape(c, ())
    elif len(c.shape) == 1 and len(x.shape) > 1:
        c = ctx.reshape(c, (*c.shape, *(1,) * (len(x.shape) - 1)))
    return ctx.elementwise(lambda c, x, y: c.call("where", x, y), c, x, ctx.input(2))


@tflite_op("ZEROS_LIKE")
def zeros_like(ctx: NodeContext) -> Value:
    """Import ZEROS_LIKE."""
    x = ctx.input(0)
    return ctx.full(0, x.dtype, x.shape)


@tflite_op("BUCKETIZE")
def bucketize(ctx: NodeContext) -> Value:
    """Import BUCKETIZE: the number of boundaries that are at most x."""
    x, bounds = ctx.input(0), tuple(ctx.attr("boundaries", ()))
    if list(bounds) != sorted(bounds):
        raise ShapeError(f"{ctx.label} has boundaries {bounds}, which must be sorted")
    edges = ctx.constant(np.asarray(bounds, np.float32))
    apart = ctx.unsqueeze(ctx.cast(x, DType.FLOAT32), (len(x.shape),))
    above = ctx.elementwise(lambda v, e: (e <= v).cast(DType.INT32), apart, edges)
    return ctx.reduce(above, "sum", (len(x.shape),), keepdims=False)
