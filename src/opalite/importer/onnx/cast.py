"""Element types: casts, selection by a condition, identity, and strings."""

from __future__ import annotations

from ...errors import ShapeError, UnsupportedOpError
from ...ir import DType, TensorType, Value
from ...ops.operator import broadcast_shape
from ..host.onnx_reference import NeedTask
from ..host.regex import Pattern
from ..proto.decode import elem_code, elem_dtype
from ..walk.node_context import NodeContext, Result, onnx_op

_OLD_NAMES = {
    "FLOAT": DType.FLOAT32,
    "DOUBLE": DType.FLOAT64,
    "FLOAT16": DType.FLOAT16,
    **{d.name: d for d in DType if d.is_int or d in (DType.BOOL, DType.STRING)},
}
_HELD_OTHERWISE = (DType.FLOAT16, DType.BFLOAT16, DType.BOOL)
FLOAT8 = (DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ)


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


@onnx_op("Cast")
@onnx_op("CastLike", since=15)
def cast(ctx: NodeContext) -> Value:
    """Import Cast, to the type number `to`, and CastLike, to the dtype of input 1; before opset 6, `to` is a name.

    The host casts types that devices lack (strings, float8e8m0).
    """
    x = ctx.input(0)
    if ctx.op_type == "CastLike":
        dtype = ctx.input(1).dtype
    elif ctx.version >= 6:
        dtype = elem_dtype(ctx.attr("to", 0))
    elif (to := ctx.attr("to", "")) in _OLD_NAMES:
        dtype = _OLD_NAMES[to]
    else:
        raise UnsupportedOpError(f"{ctx.label} casts to {to!r}, which is not an element type")
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


# Strings: the host runs their operators; output shapes are set here if known at import


_STRINGS = "strings are the host's"


@onnx_op("StringNormalizer", since=10)
def string_normalizer(ctx: NodeContext) -> Result:
    """Import StringNormalizer: without stop words the shape is unchanged; else it depends on data."""
    x = ctx.input(0)
    if ctx.attr("stopwords", None) or len(x.shape) not in (1, 2) or (len(x.shape) == 2 and x.shape[0] != 1):
        raise NeedTask
    return ctx.host_as([TensorType(DType.STRING, x.shape)], _STRINGS)


@onnx_op("StringConcat", since=20)
def string_concat(ctx: NodeContext) -> Result:
    """Import StringConcat: joins strings elementwise."""
    shape = broadcast_shape([ctx.input(0).shape, ctx.input(1).shape])
    return ctx.host_as([TensorType(DType.STRING, shape)], _STRINGS)


@onnx_op("RegexFullMatch", since=20)
def regex_full_match(ctx: NodeContext) -> Result:
    """Import RegexFullMatch: whether each string matches; an invalid pattern is reported at load time."""
    ctx.memo("pattern", lambda attrs: Pattern(str(attrs["pattern"]), ctx.label))
    return ctx.host_as([TensorType(DType.BOOL, ctx.input(0).shape)], _STRINGS)


@onnx_op("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(ctx: NodeContext) -> Result:
    """Import TfIdfVectorizer: one column per n-gram of the pool."""
    x = ctx.input(0)
    if len(x.shape) not in (1, 2):
        raise ShapeError(f"{ctx.label} takes [C] or [N,C], got {x.type}")
    size = max(ctx.attr("ngram_indexes", ()), default=-1) + 1
    types = [TensorType(DType.FLOAT32, (*x.shape[:-1], size))]
    return ctx.host_as(types, "it looks for its n-grams in tables")


@onnx_op("Tokenizer", domain="com.microsoft")
@onnx_op("StringSplit", since=20)
def tokens(ctx: NodeContext) -> Value:
    """Import StringSplit and Tokenizer: the number of columns is the largest token count of a row."""
    raise NeedTask
