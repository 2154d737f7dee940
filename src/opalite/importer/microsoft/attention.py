"""Attention operators of domain com.microsoft: projections, biases and masks, then the canonical operator."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, Value
from ...ir.symbols import int_or_symbolic
from ...ops.data_movement import Pad
from ...ops.gather import GatherElements
from ..onnx.attention import Visibility, additive_mask, attend, attend_decomposed, extend_cache, rotate
from ..onnx.index import write_rows
from ..onnx.norm import normalize_trailing
from ..walk.node_context import NodeContext, Result, onnx_op
from .unfuse import MS, refuse


def _scale(ctx: NodeContext, size: int) -> float:
    """Return the attribute `scale`, or 1 / sqrt(head size) if it is absent or 0."""
    return ctx.attr("scale", 0.0) or 1 / math.sqrt(size)


@onnx_op("Attention", domain=MS)
def attention(ctx: NodeContext) -> Result:
    """Import Attention: projects x to queries, keys and values; then attention with mask, bias and past."""
    x, weights, bias = ctx.input(0), ctx.input(1), ctx.get(2)
    return attend_projection(ctx, ctx.plus(ctx.matmul(x, weights), bias), ctx.get(3), ctx.get(5), ctx.get(4))


def attend_projection(
    ctx: NodeContext, joint: Value, mask: Value | None, bias: Value | None, past: Value | None
) -> Result:
    """Emit attention on a projection [B,S,queries + keys + values], for Attention and QAttention: y and present."""
    refuse(ctx, do_rotary=ctx.attr("do_rotary", 0), past_present_share_buffer=ctx.attr("past_present_share_buffer", 0))
    heads, third = ctx.attr("num_heads", 1), joint.shape[2] // 3
    sizes = [int(s) for s in ctx.attr("qkv_hidden_sizes", ()) or (third, third, third)]
    q, k, v = (ctx.split_heads(p, heads) for p in ctx.split_axis(joint, 2, sizes))
    earlier: tuple[Value | None, Value | None] = (None, None)
    if past is not None:
        first, second = (ctx.squeeze(p, (0,)) for p in ctx.split_axis(past, 0, (1, 1)))
        earlier = (first, second)
    k, v = extend_cache(ctx, earlier, (k, v))
    mask = _combine_masks(ctx, mask, bias, q, k.shape[2])
    y, _ = _attend(ctx, q, k, v, mask, ctx.attr("unidirectional", False), False)
    if ctx.n_outputs < 2:
        return ctx.merge_heads(y)
    return [ctx.merge_heads(y), ctx.concat([ctx.unsqueeze(k, (0,)), ctx.unsqueeze(v, (0,))], 0)]


@onnx_op("MultiHeadAttention", domain=MS)
def multi_head_attention(ctx: NodeContext) -> Result:
    """Import MultiHeadAttention: attention of projected queries, keys and values, packed or separate."""
    refuse(ctx, past_sequence_length=ctx.get(8), cache_indirection=ctx.get(9))
    heads = ctx.attr("num_heads", 1)
    q, k, v = _projections(ctx, heads)
    k, v = extend_cache(ctx, (ctx.get(6), ctx.get(7)), (k, v))
    mask = _combine_masks(ctx, ctx.get(4), ctx.get(5), q, k.shape[2])
    y, weights = _attend(ctx, q, k, v, mask, ctx.attr("unidirectional", False), ctx.uses_output(3))
    return [ctx.merge_heads(y), k, v, weights][: ctx.n_outputs]


def _projections(ctx: NodeContext, heads: int) -> tuple[Value, Value, Value]:
    """Return queries, keys and values [B,H,S,D] with their biases added."""
    query, key, value, bias = ctx.input(0), ctx.get(1), ctx.get(2), ctx.get(3)
    if len(query.shape) == 5:  # [B,S,H,3,D]
        parts = _unpacked(ctx, query)
    elif key is not None and len(key.shape) == 5:  # [B,T,H,2,D]
        parts = [ctx.split_heads(query, heads), *_unpacked(ctx, key)]
    elif key is None or value is None:
        raise ShapeError(f"{ctx.label} has a query {query.type}, but no key or value")
    else:
        parts = [p if len(p.shape) == 4 else ctx.split_heads(p, heads) for p in (query, key, value)]
    if bias is not None:
        sizes = [heads * p.shape[3] for p in parts]
        shaped = [ctx.reshape(b, (heads, 1, b.shape[0] // heads)) for b in ctx.split_axis(bias, 0, sizes)]
        parts = [ctx.plus(p, b) for p, b in zip(parts, shaped, strict=True)]
    q, k, v = parts
    return q, k, v


def _unpacked(ctx: NodeContext, joint: Value) -> list[Value]:
    """Split [B,S,H,n,D] into n tensors [B,H,S,D]."""
    pieces = ctx.split_axis(joint, 3, (1,) * joint.shape[3])
    return [ctx.transpose(ctx.squeeze(p, (3,)), (0, 2, 1, 3)) for p in pieces]


def _attend(
    ctx: NodeContext, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, wants_weights: bool
) -> tuple[Value, Value | None]:
    """Return output and, if wanted, softmax weights; causal queries belong to the last keys."""
    scale, queries, keys = _scale(ctx, q.shape[3]), q.shape[2], k.shape[2]
    visibility = Visibility(causal=causal, offset=keys - queries)
    if wants_weights:
        bias = additive_mask(ctx, mask, visibility, q.dtype, queries, keys)
        steps = attend_decomposed(ctx, q, k, v, bias, scale, 0.0, None)
        return steps.output, steps.weights
    return attend(ctx, q, k, v, mask, visibility, scale), None


def _combine_masks(ctx: NodeContext, mask: Value | None, bias: Value | None, q: Value, keys: int) -> Value | None:
    """Return the sum of padding mask and attention bias, as an additive mask."""
    return bias if mask is None else ctx.plus(_padding_mask(ctx, mask, q, keys), bias)


def _padding_mask(ctx: NodeContext, mask: Value, q: Value, keys: int) -> Value:
    """Convert 0/1 masks, lengths, or ends and starts to [B,1,1 or S,T] of 0 and mask_filter_value."""
    batch, queries = q.shape[0], q.shape[2]
    hidden = ctx.attr("mask_filter_value", -10000.0)
    shape = mask.shape
    if shape == (batch,) or shape == (2 * batch,):
        ends = ctx.reshape(ctx.slice_axis(mask, 0, 0, batch), (batch, 1, 1, 1))
        starts = None
        if shape[0] != batch:
            starts = ctx.reshape(ctx.slice_axis(mask, 0, batch, 2 * batch), (batch, 1, 1, 1))

        def between(end: Sym, start: Sym | None) -> Sym:
            j = coord(end.builder, 3)
            inside = j < end.cast(DType.INT64)
            if start is not None:
                inside = inside.call("and", j >= start.cast(DType.INT64))
            return where(inside, j.cast(q.dtype) * 0, hidden)

        return ctx.elementwise(between, ends, starts, shape=(batch, 1, 1, keys))
    if shape == (batch, keys):
        mask = ctx.reshape(mask, (batch, 1, 1, keys))
    elif shape == (batch, queries, keys):
        mask = ctx.reshape(mask, (batch, 1, queries, keys))
    elif len(shape) == 4 and shape[2] >= keys and shape[3] >= keys:
        # A square mask over all positions: cut to the rows of these queries and the columns of their keys.
        mask = ctx.slice_axis(ctx.slice_axis(mask, 2, keys - queries, keys), 3, 0, keys)
    else:
        raise UnsupportedOpError(
            f"{ctx.label} has a mask {mask.type} for {batch} rows of {keys} keys; supported are [batch], [2*batch], "
            "[batch, keys], [batch, queries, keys] and [batch, 1, max, max]"
        )
    return ctx.elementwise(lambda m: where(m > 0, m.cast(q.dtype) * 0, hidden), mask)


@onnx_op("RotaryEmbedding", domain=MS)
def rotary_embedding(ctx: NodeContext) -> Value:
    """Import RotaryEmbedding: rotates pairs of features; positions are given, or count from one offset."""
    refuse(ctx, is_packed_batching=ctx.attr("is_packed_batching", 0), scale=ctx.attr("scale", 1.0) != 1.0)
    x, positions, cos, sin = ctx.input(0), ctx.input(1), ctx.input(2), ctx.input(3)
    packed = len(x.shape) == 3
    steps = x.shape[1] if packed else x.shape[2]
    if positions.type.count == 1 and (len(positions.shape) < 2 or steps > 1):
        start = ctx.reshape(positions, (1, 1))
        positions = ctx.elementwise(lambda p: p + coord(p.builder, 1).cast(p.dtype), start, shape=(1, steps))
    width = ctx.attr("rotary_embedding_dim", 0)
    heads = ctx.attr("num_heads", 0)
    if packed and not heads:
        heads = x.shape[2] // (2 * cos.shape[1])
    cos, sin = ctx.gather(cos, positions, 0), ctx.gather(sin, positions, 0)
    return rotate(ctx, x, cos, sin, heads, width, ctx.attr("interleaved", False))


@onnx_op("GroupQueryAttention", domain=MS)
def group_query_attention(ctx: NodeContext) -> Result:
    """Import GroupQueryAttention: causal attention with a KV cache; new keys are appended to each row's past.

    total_sequence_length must be known at import; it usually depends on shapes only.
    """
    refuse(
        ctx, query_seqlens=ctx.get(16), bidirectional_attention=not ctx.attr("causal", 1), qk_output=ctx.uses_output(3)
    )
    heads, kv_heads = ctx.attr("num_heads", 1), ctx.attr("kv_num_heads", 1)
    q, k, v = _grouped(ctx, heads, kv_heads)
    batch, steps = q.shape[0], q.shape[2]
    total = int_or_symbolic(ctx.const_scalar(6))
    ends = ctx.reshape(ctx.cast(ctx.input(5), DType.INT64), (batch, 1))
    # The first prompt starts at 0 whatever its padding. Later, the new tokens are the last ones of each row.
    first = ctx.elementwise(lambda n: (n + 1 - steps).call("max", 0) if total != steps else n * 0, ends)
    if ctx.attr("do_rotary", 0):
        q, k = _rotated(ctx, q, k, first)
    scales_of = [cache_scales(ctx, name, 12 + i, heads, kv_heads) for i, name in enumerate("kv")]
    held = [quantised(ctx, new, by) for new, by in zip((k, v), scales_of, strict=True)]
    window_cache, begin = find_window(ctx, ctx.get(3)), first
    if window_cache is None:
        presents = rows = [append_to_cache(ctx, ctx.get(3 + i), new, first, total) for i, new in enumerate(held)]
    else:
        refuse(ctx, **{"attention_bias with sliding_window_cache": ctx.get(10)})
        begin = window_cache.valid_rows(ctx, first)  # of the new rows, among the rows held
        after = window_cache.valid_rows(ctx, ctx.elementwise(lambda n: n + 1, ends))
        gone = ctx.elementwise(lambda b, f, n, a: b - f + n + 1 - a, begin, first, ends, after)
        rows = [window_cache.append(ctx, ctx.input(3 + i), new, begin) for i, new in enumerate(held)]
        presents = [window_cache.drop_front(ctx, x, gone) for x in rows]
    k, v = (x if x.dtype.is_float else ctx.cast(x, q.dtype) for x in rows)
    window = ctx.attr("local_window_size", -1)  # number of visible keys, including the query's own
    visibility = Visibility(
        causal=True,
        offset=None,
        left=window - 1 if window > 0 else -1,
        lengths=ctx.elementwise(lambda n: n + steps, begin),
    )
    # The scales of int8 keys and values multiply queries and results instead, so that the cache is read as int8.
    q = scaled(ctx, q, scales_of[0])
    softcap = ctx.attr("softcap", 0.0)
    y = attend(ctx, q, k, v, ctx.get(10), visibility, _scale(ctx, q.shape[3]), softcap, _sinks(ctx, heads, q.dtype))
    return [ctx.merge_heads(scaled(ctx, y, scales_of[1])), *presents][: ctx.n_outputs]


def _sinks(ctx: NodeContext, heads: int, dtype: DType) -> Value | None:
    """Return the sink scores of each head: head_sink, or zeros with smooth_softmax (adds 1 to each softmax sum)."""
    given = ctx.get(11)
    if given is not None and given.shape != (heads,):
        raise ShapeError(f"{ctx.label} has head_sink {given.type}; expected one for each of {heads} heads")
    if given is None and ctx.attr("smooth_softmax", 0) > 0:
        return ctx.full(0.0, dtype, (heads,))
    return given


def _grouped(ctx: NodeContext, heads: int, kv_heads: int) -> tuple[Value, Value, Value]:
    """Return queries [B,H,S,D], keys and values [B,Hkv,S,D], from one packed tensor or three tensors."""
    query, key, value = ctx.input(0), ctx.get(1), ctx.get(2)
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * kv_heads)
        query, key, value = ctx.split_axis(query, 2, (heads * size, kv_heads * size, kv_heads * size))
    q, k, v = ctx.split_heads(query, heads), ctx.split_heads(key, kv_heads), ctx.split_heads(value, kv_heads)
    if ctx.get(14) is not None:
        both = ctx.attr("qk_norm_epsilon", 1e-6)
        q = normalize_trailing(ctx, "rms", q, ctx.input(14), None, 3, ctx.attr("q_norm_epsilon", both))
        k = normalize_trailing(ctx, "rms", k, ctx.input(15), None, 3, ctx.attr("k_norm_epsilon", both))
    return q, k, v


def _rotated(ctx: NodeContext, q: Value, k: Value, first: Value) -> tuple[Value, Value]:
    positions = ctx.get(9)
    if positions is None:
        shape = (q.shape[0], q.shape[2])
        positions = ctx.elementwise(lambda f: f + coord(f.builder, 1), first, shape=shape)
    cos, sin = (ctx.gather(ctx.input(i), positions, 0) for i in (7, 8))
    width, interleaved = 2 * cos.shape[-1], ctx.flag("rotary_interleaved")
    return rotate(ctx, q, cos, sin, 0, width, interleaved), rotate(ctx, k, cos, sin, 0, width, interleaved)


# KV caches of GroupQueryAttention: append of new rows, int8 quantisation, sliding windows


def cache_scales(ctx: NodeContext, name: str, i: int, heads: int, kv_heads: int) -> tuple[Value, Value] | None:
    """Return the scales of cache `name` ('k' or 'v') from input `i`, for kv_heads and for heads; None for float caches.

    Each is [1,1,1,1] or [1,H,1,D].

    UnsupportedOpError for caches other than 8 bits, ShapeError for scales of another shape.
    """
    kind = ctx.attr(f"{name}_quant_type", "NONE")
    if kind == "NONE":
        if ctx.get(i) is not None:
            raise UnsupportedOpError(
                f"{ctx.label} has {name}_scale, but {name}_quant_type is NONE: export it set, or not"
            )
        return None
    bits = ctx.attr("kv_cache_bit_width", 8)
    if bits != 8 or kind not in ("PER_TENSOR", "PER_CHANNEL") or ctx.get(i) is None:
        raise UnsupportedOpError(
            f"{ctx.label} keeps {name} in {bits} bits, {kind}, {name}_scale {'given' if ctx.get(i) else 'missing'}; "
            "caches are kept in 8 bits, PER_TENSOR or PER_CHANNEL, with scales: export kv_cache_bit_width=8"
        )
    scale = ctx.cast(ctx.input(i), DType.FLOAT32)
    if kind == "PER_TENSOR":
        if scale.type.count != 1:
            raise ShapeError(f"{ctx.label} has {name}_scale {scale.type}: PER_TENSOR is one scale")
        one = ctx.reshape(scale, (1, 1, 1, 1))
        return one, one
    if scale.type.count % kv_heads:
        raise ShapeError(f"{ctx.label} has {name}_scale {scale.type} for {kv_heads} heads: PER_CHANNEL is one for each")
    own = ctx.reshape(scale, (1, kv_heads, 1, scale.type.count // kv_heads))
    if heads == kv_heads:
        return own, own
    return own, ctx.take(own, np.repeat(np.arange(kv_heads), heads // kv_heads), 1)


def quantised(ctx: NodeContext, new: Value, steps: tuple[Value, Value] | None) -> Value:
    """Quantise new keys or values like the cache."""
    if steps is None:
        return new
    return ctx.elementwise(
        lambda x, s: (x.cast(DType.FLOAT32) / s).call("rint").typed("saturate", DType.INT8), new, steps[0]
    )


def scaled(ctx: NodeContext, x: Value, steps: tuple[Value, Value] | None) -> Value:
    """Multiply `x` by the scales in `steps`: queries by those of the keys, or results by those of the values."""
    return x if steps is None else ctx.elementwise(lambda a, s: a * s.cast(a.dtype), x, steps[1])


@dataclass(frozen=True)
class SlidingWindow:
    """Sliding-window cache of `capacity` rows for a window of `size` keys (`sliding_window_cache`).

    After T tokens its first L(T) rows hold the last tokens: as many as fit, reduced in steps of capacity - size + 1
    (onnxruntime's contract for GroupQueryAttention).
    """

    capacity: int
    size: int

    def valid_rows(self, ctx: NodeContext, count: Value) -> Value:
        """Return L(T) for token counts [B,1]."""
        room, step = self.capacity, self.capacity - self.size + 1
        return ctx.elementwise(lambda t: t - ((t - room + step - 1).call("max", 0) / step) * step, count)

    def append(self, ctx: NodeContext, past: Value, new: Value, start: Value) -> Value:
        """Append `new` to the start[b] valid rows: [B,H,capacity + S,D]."""
        steps = new.shape[2]
        padded = ctx.add(Pad(pads=(0, 0, 0, 0, 0, 0, steps, 0), mode="constant", value=0), [past])
        return write_rows(ctx, padded, new, start, 2)

    def drop_front(self, ctx: NodeContext, rows: Value, gone: Value) -> Value:
        """Drop the first gone[b] rows: [B,H,capacity,D]."""
        batch, heads, length, width = rows.shape
        gone = ctx.reshape(gone, (batch, 1, 1, 1))
        shape = (batch, heads, self.capacity, width)
        at = ctx.elementwise(lambda g: (coord(g.builder, 2) + g).call("min", length - 1), gone, shape=shape)
        return ctx.add(GatherElements(axis=2), [rows, at])


def find_window(ctx: NodeContext, past: Value | None) -> SlidingWindow | None:
    """Return the sliding window of a GroupQueryAttention; None if its cache holds the whole past.

    A growable cache has no window, and neither has one shorter than the window. ShapeError if the node lacks a window
    size.
    """
    if not ctx.attr("sliding_window_cache", 0):
        return None
    size = ctx.attr("local_window_size", -1)
    if size <= 0:
        raise ShapeError(
            f"{ctx.label} has a sliding_window_cache, but local_window_size is {size}: it must be the window's size"
        )
    if past is not None and ctx.is_growable_cache(past):
        ctx.refuse_arrays("the model's caches keep a window of positions")
        return None
    if past is None or past.shape[2] < size:
        return None
    return SlidingWindow(past.shape[2], size)


def append_to_cache(ctx: NodeContext, past: Value | None, new: Value, first: Value, total: int) -> Value:
    """Write `new` from position first[b] on into the past: [B,H,max(past, total),D]."""
    batch, heads, steps, size = new.shape
    held = 0 if past is None else past.shape[2]
    if held == 0 and total == steps:
        return new
    if past is not None and batch == 1 and held + steps == total:
        return ctx.concat([past, new], 2)
    old = ctx.full(0, new.dtype, (batch, heads, 0, size)) if past is None else past
    length = max(held, total)
    if length > held:
        old = ctx.add(Pad(pads=(0, 0, 0, 0, 0, 0, length - held, 0), mode="constant", value=0), [old])
    return write_rows(ctx, old, new, first, 2)
