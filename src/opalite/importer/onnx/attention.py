"""Attention, rotary embeddings and linear attention of the default domain."""

from __future__ import annotations

import math

from ...errors import ShapeError, UnsupportedOpError
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.linear_attention import LinearAttention
from ..op_registry import onnx_op
from ..proto.decode import elem_dtype
from ..shared.attention import Visibility, additive_mask, attend, attend_decomposed, extend_cache
from ..walk.node_context import NodeContext, Result


@onnx_op("Attention", since=23)
def attention(ctx: NodeContext) -> Result:
    """Import Attention: scaled dot-product attention with masks, cache, grouped heads; fused unless scores are used."""
    q, k, v, mask = ctx.input(0), ctx.input(1), ctx.input(2), ctx.get(3)
    packed = len(q.shape) == 3
    if packed:
        heads, kv_heads = ctx.attr("q_num_heads", 0), ctx.attr("kv_num_heads", 0)
        if heads < 1 or kv_heads < 1:
            raise ShapeError(f"{ctx.label} needs q_num_heads and kv_num_heads for the packed query {q.type}")
        q, k, v = ctx.split_heads(q, heads), ctx.split_heads(k, kv_heads), ctx.split_heads(v, kv_heads)
    past, lengths = ctx.get(4), ctx.get(6)
    k, v = extend_cache(ctx, (past, ctx.get(5)), (k, v))
    offset = past.shape[2] if past is not None else None if lengths is not None else 0
    visibility = Visibility(
        causal=ctx.flag("is_causal"),
        offset=offset,
        left=ctx.attr("left_window_size", -1),
        right=ctx.attr("right_window_size", -1),
        lengths=lengths,
    )
    scale = float(ctx.attr("scale", 1 / math.sqrt(q.shape[3])))
    softcap = ctx.attr("softcap", 0.0)
    scores = None
    if ctx.uses_output(3):
        bias = additive_mask(ctx, mask, visibility, q.dtype, q.shape[2], k.shape[2])
        y, scores = _with_scores(ctx, q, k, v, bias, scale, softcap)
    else:
        y = attend(ctx, q, k, v, mask, visibility, scale, softcap)
    return [ctx.merge_heads(y) if packed else y, k, v, scores][: ctx.n_outputs]


def _with_scores(
    ctx: NodeContext, q: Value, k: Value, v: Value, bias: Value | None, scale: float, softcap: float
) -> tuple[Value, Value]:
    code = ctx.attr("softmax_precision", 0)
    steps = attend_decomposed(ctx, q, k, v, bias, scale, softcap, elem_dtype(code) if code else None)
    mode = ctx.attr("qk_matmul_output_mode", 0)
    if not 0 <= mode <= 3:
        raise UnsupportedOpError(f"{ctx.label} has qk_matmul_output_mode {mode}; known are 0 to 3")
    return steps.output, (steps.raw, steps.capped, steps.biased, steps.weights)[mode]


@onnx_op("RotaryEmbedding", since=23)
def rotary_embedding(ctx: NodeContext) -> Value:
    """Import RotaryEmbedding: rotates pairs of features by angles that depend on the position."""
    x, cos, sin, positions = ctx.input(0), ctx.input(1), ctx.input(2), ctx.get(3)
    if positions is not None:
        cos, sin = ctx.gather(cos, positions, 0), ctx.gather(sin, positions, 0)
    heads = ctx.attr("num_heads", 0)
    width = ctx.attr("rotary_embedding_dim", 0)
    return rotate(ctx, x, cos, sin, heads, width, ctx.flag("interleaved"))


def rotate(ctx: NodeContext, x: Value, cos: Value, sin: Value, heads: int, width: int, interleaved: bool) -> Value:
    """Rotate the first `width` features (0: all) of x[B,H,S,D] or x[B,S,heads*D]; cos, sin: [B or 1,S,width/2]."""
    packed = len(x.shape) == 3
    if packed:
        if heads < 1:
            raise ShapeError(f"{ctx.label} needs num_heads for the packed input {x.type}")
        b, s, hidden = x.shape
        x = ctx.reshape(x, (b, s, heads, hidden // heads))
    width = width or x.shape[3]
    half = width // 2
    if cos.shape[-1] != half or sin.shape[-1] != half:
        raise ShapeError(f"{ctx.label} turns {half} pairs, but has cosines {cos.type} and sines {sin.type}")
    axis = 2 if packed else 1  # the head axis
    cos, sin = ctx.unsqueeze(cos, (axis,)), ctx.unsqueeze(sin, (axis,))
    if interleaved:
        first, second = (ctx.slice_axis(x, 3, i, width - 1 + i, 2) for i in (0, 1))
    else:
        first, second = ctx.slice_axis(x, 3, 0, half), ctx.slice_axis(x, 3, half, width)
    real = ctx.elementwise(lambda a, b, c, s: a * c - b * s, first, second, cos, sin)
    imaginary = ctx.elementwise(lambda a, b, c, s: a * s + b * c, first, second, cos, sin)
    if interleaved:
        pairs = ctx.concat([ctx.unsqueeze(real, (4,)), ctx.unsqueeze(imaginary, (4,))], 4)
        turned = [ctx.reshape(pairs, (*x.shape[:3], width))]
    else:
        turned = [real, imaginary]
    if width < x.shape[3]:
        turned.append(ctx.slice_axis(x, 3, width, x.shape[3]))
    y = ctx.concat(turned, 3)
    return ctx.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3])) if packed else y


@onnx_op("LinearAttention", since=27)
def linear_attention(ctx: NodeContext) -> Result:
    """Import LinearAttention: S = exp(g) S + k (beta (v - S^T k))^T, y = scale q^T S; update_rule omits terms."""
    q, k, v, past = ctx.input(0), ctx.input(1), ctx.input(2), ctx.get(3)
    queries, heads = ctx.attr("q_num_heads", 0), ctx.attr("kv_num_heads", 0)
    rule = ctx.attr("update_rule", "gated_delta")
    if rule not in ("linear", "gated", "delta", "gated_delta"):
        raise UnsupportedOpError(f"{ctx.label} has update_rule '{rule}'; known are linear, gated, delta, gated_delta")
    decay, beta = ctx.get(4) if "gated" in rule else None, ctx.get(5) if "delta" in rule else None
    if ("gated" in rule and decay is None) or ("delta" in rule and beta is None) or min(queries, heads) < 1:
        raise ShapeError(f"{ctx.label} needs q_num_heads, kv_num_heads, and what '{rule}' takes of decay and beta")
    dk, dv = k.shape[2] // heads, v.shape[2] // heads
    if past is None:
        state = ctx.full(0, DType.FLOAT32, (k.shape[0], heads, dk, dv))
    else:
        state = ctx.cast(past, DType.FLOAT32)
    inputs = [None if x is None else ctx.cast(x, DType.FLOAT32) for x in (q, k, v, state, decay, beta)]
    scale = ctx.attr("scale", 0.0) or 1 / math.sqrt(dk)
    y, after = ctx.add_many(LinearAttention(queries=queries, heads=heads, scale=scale), inputs, 2)
    return [ctx.cast(y, q.dtype), ctx.cast(after, q.dtype if past is None else past.dtype)]
