"""KV caches of GroupQueryAttention: append of new rows, int8 quantisation, sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import coord
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.data_movement import Pad
from ...ops.gather import GatherElements
from ..onnx.index import write_rows
from ..walk.node_context import NodeContext


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
    """Multiply queries or results [B,H,S,D] by the scales of the keys or values."""
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
    if past is None or ctx.is_growable_cache(past) or past.shape[2] < size:
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
