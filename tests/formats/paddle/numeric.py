"""Elementwise functions, and products."""

from __future__ import annotations

import numpy as np
import paddle
from case import IMAGE, Lazy, X, bools, case, ints, positive, real
from paddle import nn
from paddle.nn import functional as F

# Elementwise functions of one argument
for _name in [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "log",
    "log2",
    "log10",
    "log1p",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "acosh",
    "asinh",
    "atanh",
    "neg",
    "trunc",
    "logit",
]:
    _shift = 1.2 if _name == "acosh" else 0.0
    _fn = getattr(paddle, _name, None) or getattr(F, _name)
    if _name in ("acos", "asin", "atanh", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "logit"):
        case(_name, _fn, np.minimum(positive(2, 3, 4), 0.9))
    elif _shift:
        case(_name, _fn, positive(2, 3, 4) + np.float32(_shift))
    else:
        case(_name, _fn, X)
for _name in [
    "relu",
    "relu6",
    "elu",
    "selu",
    "gelu",
    "silu",
    "mish",
    "softplus",
    "softsign",
    "swish",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "leaky_relu",
    "hardshrink",
    "softshrink",
    "tanhshrink",
    "thresholded_relu",
    "log_sigmoid",
    "celu",
]:
    case(_name, getattr(F, _name), 3 * X)
case("gelu_tanh", lambda x: F.gelu(x, approximate=True), X)
case("softplus_beta", lambda x: F.softplus(x, beta=2.0, threshold=3.0), 3 * X)
case("logical_not", paddle.logical_not, bools(2, 3))
case("bitwise_not", paddle.bitwise_not, ints(0, 9, 2, 3))
for _name in ("isnan", "isinf", "isfinite"):
    case(_name, getattr(paddle, _name), np.array([1, np.nan, np.inf, -np.inf], np.float32))
case("scale", lambda x: paddle.scale(x, 2.0, 1.0), X)
case("scale_before", lambda x: paddle.scale(x, 2.0, 1.0, bias_after_scale=False), X)
case("scale_int", lambda x: x * 3 + 1, ints(0, 9, 2, 3))
case("clip", lambda x: paddle.clip(x, -0.5, 0.5), X)
case("clip_int", lambda x: paddle.clip(x, 2, 5), ints(0, 9, 2, 3))
case("pow", lambda x: paddle.pow(x, 3), X)
case("pow_tensor", lambda x, y: paddle.pow(x, y), positive(2, 3), positive(2, 3))
case("stanh", paddle.stanh, X)
case("prelu_all", lambda x: F.prelu(x, paddle.to_tensor(np.float32([0.2]))), IMAGE)
case("prelu_channel", Lazy(lambda: nn.PReLU(4)), IMAGE)
case("cast", lambda x: paddle.cast(x, "int32"), 5 * X)
case("cast_bool", lambda x: paddle.cast(x, "bool"), ints(0, 2, 5))
case("increment", lambda x: paddle.increment(x, 2), np.float32([3]))

# Of two arguments
for _name in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin"]:
    case(_name, getattr(paddle, _name), X, positive(3, 1))
for _name in ["remainder", "floor_divide"]:
    case(_name, getattr(paddle, _name), 5 * X, positive(3, 1))
    case(f"{_name}_int", getattr(paddle, _name), ints(-9, 9, 2, 3), ints(1, 5, 3))
case("divide_int", paddle.divide, ints(-9, 9, 2, 3), ints(1, 5, 3))
case("atan2", paddle.atan2, X, real(2, 3, 4))
for _name in ["equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"]:
    case(_name, getattr(paddle, _name), ints(0, 3, 4, 5), ints(0, 3, 5))
for _name in ["logical_and", "logical_or", "logical_xor"]:
    case(_name, getattr(paddle, _name), bools(4, 5), bools(5))
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    case(_name, getattr(paddle, _name), ints(0, 30, 4, 5), ints(0, 30, 5))
case("where", paddle.where, bools(2, 3), real(2, 3), real(2, 3))
case("lerp", paddle.lerp, real(2, 3), real(2, 3), positive(2, 3))
case("add_n", lambda a, b, c: paddle.add_n([a, b, c]), X, X, X)
case("dot", paddle.dot, real(5), real(5))
case("cross", lambda x, y: paddle.cross(x, y, axis=1), real(2, 3), real(2, 3))
case("equal_all", paddle.equal_all, ints(0, 2, 3), ints(0, 2, 3))
case("allclose", paddle.allclose, X, X)

# Products
case("matmul", paddle.matmul, real(2, 3, 4), real(4, 5))
case("matmul_t", lambda x, y: paddle.matmul(x, y, transpose_y=True), real(2, 3, 4), real(5, 4))
case("matmul_tx", lambda x, y: paddle.matmul(x, y, transpose_x=True), real(2, 4, 3), real(2, 4, 5))
case("matmul_vector", paddle.matmul, real(4), real(4, 5))
case("bmm", paddle.bmm, real(2, 3, 4), real(2, 4, 5))
case("mm", paddle.mm, real(3, 4), real(4, 5))
case("mv", paddle.mv, real(3, 4), real(4))
case("addmm", lambda i, x, y: paddle.addmm(i, x, y, alpha=2.0, beta=0.5), real(3, 5), real(3, 4), real(4, 5))
case("linear", Lazy(lambda: nn.Linear(4, 5)), real(2, 3, 4))
case("einsum", lambda x, y: paddle.einsum("bij,bjk->bik", x, y), real(2, 3, 4), real(2, 4, 5))
case("bilinear", Lazy(lambda: nn.Bilinear(3, 4, 5)), real(2, 3), real(2, 4))
case("outer", paddle.outer, real(3), real(4))
