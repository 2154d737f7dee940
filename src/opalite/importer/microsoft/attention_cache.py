"""Caches of GroupQueryAttention: what is new behind what was, in int8 where the model keeps them so."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.movement import Pad
from ..onnx.index import write_rows
from ..shared.helpers import concat, full, take
from ..walk.context import NodeContext


def cache_steps(ctx: NodeContext, name: str, i: int, heads: int, kv_heads: int) -> tuple[Value, Value] | None:
    """What a step of the cache `name` ('k' or 'v') is, of the scales that are input `i`: [1,1,1,1] or [1,H,1,D], for
    kv_heads and for heads. None for a cache of floats.

    UnsupportedOpError for caches of other widths than 8 bits, ShapeError for scales that fit neither form.
    """
    kind = str(ctx.attr(f"{name}_quant_type", "NONE"))
    if kind == "NONE":
        if ctx.get(i) is not None:
            raise UnsupportedOpError(
                f"{ctx.label} has {name}_scale, but {name}_quant_type is NONE: export it set, or not"
            )
        return None
    bits = int(ctx.attr("kv_cache_bit_width", 8))
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
    return own, take(ctx, own, np.repeat(np.arange(kv_heads), heads // kv_heads), 1)


def quantised(ctx: NodeContext, new: Value, steps: tuple[Value, Value] | None) -> Value:
    """New keys or values as the cache holds them."""
    if steps is None:
        return new
    return ctx.elementwise(
        lambda x, s: (x.cast(DType.FLOAT32) / s).call("rint").typed("saturate", DType.INT8), new, steps[0]
    )


def scaled(ctx: NodeContext, x: Value, steps: tuple[Value, Value] | None) -> Value:
    """Queries or results [B,H,S,D] times the steps of the keys or values that they stand for."""
    return x if steps is None else ctx.elementwise(lambda a, s: a * s.cast(a.dtype), x, steps[1])


def extended(ctx: NodeContext, past: Value | None, new: Value, first: Value, total: int) -> Value:
    """[B,H,max(past, total),D] with `new` written from position first[b] on."""
    batch, heads, steps, size = new.shape
    held = 0 if past is None else past.shape[2]
    if held == 0 and total == steps:
        return new
    if past is not None and batch == 1 and held + steps == total:
        return concat(ctx, [past, new], 2)
    old = full(ctx, 0, new.dtype, (batch, heads, 0, size)) if past is None else past
    length = max(held, total)
    if length > held:
        old = ctx.add(Pad(pads=(0, 0, 0, 0, 0, 0, length - held, 0), mode="constant", value=0), [old])
    return write_rows(ctx, old, new, first, 2)
