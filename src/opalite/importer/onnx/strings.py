"""String operators: the host runs them; output shapes are set here if known at import."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.tensor_type import TensorType
from ...ops.operator import broadcast_shape
from ..host.onnx_reference import NeedTask
from ..host.regex import Pattern
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext

Result = Sequence[Value | None]
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
