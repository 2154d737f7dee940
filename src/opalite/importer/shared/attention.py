"""Scaled dot-product attention: additive mask, fused operator, and a decomposition into single operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.attention import Attention
from ...ops.data_movement import Pad
from ...ops.operator import broadcast_shape
from ..walk.node_context import NodeContext

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
    inputs = [ctx.scalar(0, dtype) if mask is None else mask]
    shape: tuple[int, ...] = (1, 1, queries, keys)
    if visibility.lengths is not None:
        inputs.append(ctx.reshape(ctx.cast(visibility.lengths, DType.INT64), (visibility.lengths.type.count, 1, 1, 1)))
        shape = (visibility.lengths.type.count, 1, queries, keys)
    if mask is not None:
        shape = broadcast_shape([shape, mask.shape])

    def masked(m: Sym, *lengths: Sym) -> Sym:
        return where(_seen(m, visibility, lengths[0] if lengths else None, queries), _bias(m, dtype), LOWEST)

    return ctx.elementwise(masked, *inputs, shape=shape)


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


def extend_cache(
    ctx: NodeContext, past: Sequence[Value | None], fresh: Sequence[Value], axis: int = 2
) -> tuple[Value, Value]:
    """Concatenate past and new keys, and past and new values."""
    k, v = (new if old is None else ctx.concat([old, new], axis) for old, new in zip(past, fresh, strict=True))
    return k, v
