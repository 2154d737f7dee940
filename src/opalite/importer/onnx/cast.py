"""Element types: casts, selection by a condition, and identity."""

from __future__ import annotations

from ...errors import ShapeError, UnsupportedOpError
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.tensor_type import TensorType
from ..op_registry import onnx_op
from ..proto.decode import elem_code, elem_dtype
from ..walk.node_context import NodeContext, Result

_OLD_NAMES = {
    "FLOAT": DType.FLOAT32,
    "DOUBLE": DType.FLOAT64,
    "FLOAT16": DType.FLOAT16,
    **{d.name: d for d in DType if d.is_int or d in (DType.BOOL, DType.STRING)},
}
_HELD_OTHERWISE = (DType.FLOAT16, DType.BFLOAT16, DType.BOOL)
FLOAT8 = (DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ)


@onnx_op("Cast", since=1)
def cast_named(ctx: NodeContext) -> Result:
    """Import Cast: to a type given by name, before opset 6."""
    to = ctx.attr("to", "")
    if to not in _OLD_NAMES:
        raise UnsupportedOpError(f"{ctx.label} casts to {to!r}, which is not an element type")
    return _cast(ctx, _OLD_NAMES[to])


@onnx_op("Cast", since=6)
def cast(ctx: NodeContext) -> Result:
    """Import Cast: to the type number `to`."""
    return _cast(ctx, elem_dtype(ctx.attr("to", 0)))


@onnx_op("CastLike", since=15)
def cast_like(ctx: NodeContext) -> Result:
    """Import CastLike: to the dtype of the second input."""
    return _cast(ctx, ctx.input(1).dtype)


@onnx_op("BitCast", since=26)
def bit_cast(ctx: NodeContext) -> Result:
    """Import BitCast: the bits as another dtype of equal size; on the host if a device stores a dtype in other bits."""
    x, dtype = ctx.input(0), elem_dtype(ctx.attr("to", 0))
    if x.dtype.size != dtype.size:
        raise ShapeError(f"an element of {x.type} has {8 * x.dtype.size} bits, one of {dtype} {8 * dtype.size}")
    if any(not d.on_device or d in _HELD_OTHERWISE for d in (x.dtype, dtype)):
        types, reason = [TensorType(dtype, x.shape)], "devices hold one of the types in other bits"
        return ctx.add_host("BitCast", [x], types, reason, to=elem_code(dtype))
    return x if x.dtype is dtype else ctx.elementwise(lambda v: v.typed("bits", dtype), x)


def _cast(ctx: NodeContext, dtype: DType) -> Value:
    """Cast input 0 to `dtype`; on the host for types that devices lack (strings, float8e8m0)."""
    x = ctx.input(0)
    if x.dtype is dtype:
        return x
    if DType.STRING in (x.dtype, dtype):
        reason = "numbers are written and read as text on the host"
        return ctx.add_host("Cast", [x], [TensorType(dtype, x.shape)], reason, to=elem_code(dtype))[0]
    saturates = ctx.attr("saturate", True)
    if dtype is DType.FLOAT8E8M0:
        types, reason = [TensorType(dtype, x.shape)], "no device holds powers of two in 8 bits"
        how = {"saturate": int(saturates), "round_mode": ctx.attr("round_mode", "up")}
        return ctx.add_host("Cast", [x], types, reason, to=elem_code(dtype), **how)[0]
    if dtype in FLOAT8 and saturates:
        return ctx.elementwise(lambda v: v.typed("saturate", dtype), x)
    return ctx.cast(x, dtype)


@onnx_op("Where", since=9)
def where_(ctx: NodeContext) -> Value:
    """Import Where: the second input where the condition is true, else the third."""
    cond, a, b = ctx.input(0), ctx.input(1), ctx.input(2)
    return ctx.elementwise(lambda c, x, y: c.call("where", x, y), cond, a, b)


@onnx_op("Identity", since=1)
def identity(ctx: NodeContext) -> Value:
    """Import Identity: the input."""
    return ctx.input(0)
