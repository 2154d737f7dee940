"""Attention: masks, the fused operator and its decomposition; rotary embeddings; linear attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ops.attention import Attention
from ...ops.data_movement import Pad
from ...ops.linear_attention import LinearAttention
from ...ops.operator import broadcast_shape
from ..proto.decode import elem_dtype
from ..walk.node_context import NodeContext, Result, onnx_op

LOWEST = -math.inf


@dataclass(frozen=True)
class Visibility:
    """Visibility of keys j for query i. The query is at position p = i + offset among the keys.

    causal: j <= p. left, right: p - left <= j <= p + right (-1: no bound). offset: a number, or None for `lengths` - S
    (S: number of queries). lengths[B]: keys from this index on are padding.
    """

    causal: bool = False
    offset: int | None = 0
    left: int = -1
    right: int = -1
    lengths: Value | None = None

    def may_hide(self, keys: int) -> bool:
        """Whether the position may hide any of `keys` keys; a query after all keys (decoding) sees them all."""
        causal = self.causal and (self.offset is None or self.offset < keys - 1)
        return causal or self.left >= 0 or self.right >= 0 or self.lengths is not None


def additive_mask(
    ctx: NodeContext, mask: Value | None, visibility: Visibility, dtype: DType, queries: int, keys: int
) -> Value | None:
    """Return the mask added to the scores [B,H,S,T]: 0 or the mask's value for visible keys, -inf for hidden ones.

    In a boolean mask, true means visible. Keys beyond the end of a shorter mask are hidden.
    """
    if mask is not None:
        mask = _full_rank(ctx, mask, keys)
    if not visibility.may_hide(keys):
        if mask is None:
            return None
        return ctx.elementwise(lambda m: _bias(m, dtype), mask)
    lengths, rows = visibility.lengths, 1
    if lengths is not None:
        rows = lengths.type.count
        lengths = ctx.reshape(ctx.cast(lengths, DType.INT64), (rows, 1, 1, 1))
    shape = broadcast_shape([(rows, 1, queries, keys), () if mask is None else mask.shape])

    def masked(m: Sym, n: Sym | None) -> Sym:
        return where(_seen(m, visibility, n, queries), _bias(m, dtype), LOWEST)

    return ctx.elementwise(masked, ctx.scalar(0, dtype) if mask is None else mask, lengths, shape=shape)


def _full_rank(ctx: NodeContext, mask: Value, keys: int) -> Value:
    if len(mask.shape) > 4:
        raise ShapeError(f"{ctx.label} has a mask {mask.type} of more than four axes")
    mask = ctx.reshape(mask, (*(1,) * (4 - len(mask.shape)), *mask.shape))
    short = keys - mask.shape[3]
    if short <= 0 or mask.shape[3] == 1:
        return mask
    hidden = False if mask.dtype is DType.BOOL else LOWEST if mask.dtype.is_float else 0
    return ctx.add(Pad(pads=(0,) * 7 + (short,), mode="constant", value=hidden), [mask])


def _bias(mask: Sym, dtype: DType) -> Sym:
    if mask.dtype is DType.BOOL:
        number = mask.cast(dtype)
        return where(mask, number * 0, LOWEST)
    return mask.cast(dtype)


def _seen(any_sym: Sym, visibility: Visibility, lengths: Sym | None, queries: int) -> Sym:
    i, j = coord(any_sym.builder, 2), coord(any_sym.builder, 3)
    conditions: list[Sym] = []
    if visibility.causal or visibility.left >= 0 or visibility.right >= 0:
        if visibility.offset is not None:
            place = i + visibility.offset
        else:
            assert lengths is not None
            place = i + (lengths - queries)
        if visibility.causal:
            conditions.append(j <= place)
        if visibility.left >= 0:
            conditions.append(place - j <= visibility.left)
        if visibility.right >= 0:
            conditions.append(j - place <= visibility.right)
    if lengths is not None:
        conditions.append(j < lengths)
    result = conditions[0]
    for c in conditions[1:]:
        result = result.call("and", c)
    return result


def attend(
    ctx: NodeContext,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    visibility: Visibility,
    scale: float,
    softcap: float = 0.0,
    sinks: Value | None = None,
) -> Value:
    """Emit the fused operator on q[B,H,S,D], k[B,Hkv,T,D], v[B,Hkv,T,Dv]; return [B,H,S,Dv].

    If query i is at position i, the operator hides later keys itself; otherwise the mask does. sinks[H] are scores of
    one more key per head, visible to all queries, with value zero; they need the decomposition.
    """
    queries, keys = q.shape[2], k.shape[2]
    if sinks is not None:
        bias = additive_mask(ctx, mask, visibility, q.dtype, queries, keys)
        return attend_decomposed(ctx, q, k, v, bias, scale, softcap, None, sinks).output
    own = visibility == Visibility(causal=True)
    bias = additive_mask(ctx, mask, Visibility() if own else visibility, q.dtype, queries, keys)
    return ctx.add(Attention(scale=scale, causal=own, softcap=softcap), [q, k, v, bias])


@dataclass(frozen=True)
class AttentionSteps:
    """Intermediate results of attention, each [B,H,S,T], and its output [B,H,S,Dv]."""

    raw: Value
    capped: Value
    biased: Value
    weights: Value
    output: Value


def attend_decomposed(
    ctx: NodeContext,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    scale: float,
    softcap: float,
    precision: DType | None,
    sinks: Value | None = None,
) -> AttentionSteps:
    """Emit attention as separate products and a softmax (in `precision`), with all intermediate results."""
    b, heads, s, d = q.shape
    kv_heads, t = k.shape[1], k.shape[2]
    rows = heads // kv_heads * s
    grouped = ctx.reshape(q, (b, kv_heads, rows, d))
    raw = ctx.reshape(ctx.matmul(grouped, k, trans_b=True), (b, heads, s, t))
    raw = ctx.elementwise(lambda x: x * scale, raw)
    capped = raw if softcap == 0 else ctx.elementwise(lambda x: (x / softcap).call("tanh") * softcap, raw)
    biased = capped if mask is None else ctx.elementwise(lambda x, m: x + m.cast(x.dtype), capped, mask)
    logits = biased if precision is None else ctx.cast(biased, precision)
    if sinks is not None:
        column = ctx.expand(ctx.reshape(ctx.cast(sinks, logits.dtype), (1, heads, 1, 1)), (b, heads, s, 1))
        weights = ctx.slice_axis(ctx.softmax(ctx.concat([logits, column], 3)), 3, 0, t)
    else:
        weights = ctx.softmax(logits)
    if mask is not None and sinks is None:
        # A query that sees no key has zero weights, not 0/0.
        blind = ctx.reduce(mask, "max", (3,))
        weights = ctx.elementwise(lambda w, m: where(m.eq(LOWEST), 0, w), weights, blind)
    weights = ctx.cast(weights, q.dtype)
    output = ctx.matmul(ctx.reshape(weights, (b, kv_heads, rows, t)), v)
    return AttentionSteps(raw, capped, biased, weights, ctx.reshape(output, (b, heads, s, v.shape[3])))


def extend_cache(ctx: NodeContext, past: Sequence[Value | None], fresh: Sequence[Value]) -> tuple[Value, Value]:
    """Concatenate past and new keys, and past and new values, along the axis of tokens."""
    k, v = (new if old is None else ctx.concat([old, new], 2) for old, new in zip(past, fresh, strict=True))
    return k, v


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
    rule = ctx.choice("update_rule", "gated_delta", ("linear", "gated", "delta", "gated_delta"))
    decay, beta = ctx.get(4) if "gated" in rule else None, ctx.get(5) if "delta" in rule else None
    if ("gated" in rule and decay is None) or ("delta" in rule and beta is None) or min(queries, heads) < 1:
        raise ShapeError(f"{ctx.label} needs q_num_heads, kv_num_heads, and what '{rule}' takes of decay and beta")
    dk, dv = k.shape[2] // heads, v.shape[2] // heads
    state = ctx.full(0, DType.FLOAT32, (k.shape[0], heads, dk, dv)) if past is None else past
    inputs = [None if x is None else ctx.cast(x, DType.FLOAT32) for x in (q, k, v, state, decay, beta)]
    scale = ctx.attr("scale", 0.0) or 1 / math.sqrt(dk)
    y, after = ctx.add_many(LinearAttention(queries=queries, heads=heads, scale=scale), inputs, 2)
    return [ctx.cast(y, q.dtype), ctx.cast(after, q.dtype if past is None else past.dtype)]
