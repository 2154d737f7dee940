"""Scales of quantised tensors, the ends of fused activations, and rescaled results."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ...expr.trace_function import Sym
from ...ir import Array, DType, Value
from ..walk.node_context import NodeContext
from .common import tensors_of, unsupported
from .fixed_point import fixed_multiplier, round_away, scaled
from .read.tensors import Quantization, TensorInfo


@dataclass(frozen=True)
class Affine:
    """Scale, in float32 as the file has it, and zero point of a whole tensor."""

    scale: np.float32
    zero: int
    dtype: DType

    @property
    def ends(self) -> tuple[int, int]:
        """Least and greatest integer."""
        info = np.iinfo(self.dtype.np)
        return int(info.min), int(info.max)

    def centred(self, q: Sym) -> Sym:
        """Return q less the zero point, in int32."""
        return q.cast(DType.INT32) - self.zero if self.zero else q.cast(DType.INT32)

    def stored(self, whole: Sym, ends: tuple[int, int] | None = None) -> Sym:
        """Return an integer without zero point as an element of the tensor, within `ends`."""
        low, high = ends or self.ends
        moved = whole + self.zero if self.zero else whole
        return moved.call("max", low).call("min", high).cast(self.dtype)


def affine(ctx: NodeContext, i: int) -> Affine:
    """Return the scale and zero point of input `i`, the same for all of it."""
    return _whole(ctx, tensors_of(ctx).inputs[i], f"input {i}")


def out_affine(ctx: NodeContext) -> Affine:
    """Return the scale and zero point of the first output, the same for all of it."""
    return _whole(ctx, tensors_of(ctx).outputs[0], "output 0")


def _whole(ctx: NodeContext, t: TensorInfo | None, which: str) -> Affine:
    levels = levels_of(ctx, t, which)
    if levels.scale.size != 1:
        raise unsupported(ctx, f"has {levels.scale.size} scales for its {which}; one is expected")
    assert t is not None
    assert t.dtype is not None
    return Affine(np.float32(levels.scale[0]), int(levels.zero_point[0]), t.dtype)


def quantization(ctx: NodeContext, i: int) -> Quantization:
    """Return the scales of input `i`, whole or by channels."""
    return levels_of(ctx, tensors_of(ctx).inputs[i], f"input {i}")


def levels_of(ctx: NodeContext, t: TensorInfo | None, which: str) -> Quantization:
    """Return a tensor's scales, which are positive numbers, and zero points, which its type holds."""
    if t is None or t.quantization is None or t.dtype is None:
        raise unsupported(ctx, f"has no scale for its {which}; scales and zero points are expected")
    levels = t.quantization
    if not (np.isfinite(levels.scale) & (levels.scale > 0)).all():
        raise unsupported(ctx, f"has the scale {levels.scale.min()} for its {which}; positive numbers are expected")
    ends = ml_dtypes.iinfo(t.dtype.np)
    low, high = int(levels.zero_point.min()), int(levels.zero_point.max())
    if low < int(ends.min) or high > int(ends.max):
        raise unsupported(ctx, f"has the zero points {low} to {high} for its {which}, beyond those of {t.dtype}")
    return levels


def activation_ends(ctx: NodeContext, out: Affine) -> tuple[int, int]:
    """Return the ends of the result's integers by the node's fused activation."""
    return ends_of(ctx, out, int(ctx.attr("fused_activation_function", 0)))


_RANGES: dict[int, tuple[float, float]] = {
    0: (-np.inf, np.inf),
    1: (0.0, np.inf),
    2: (-1.0, 1.0),
    3: (0.0, 6.0),
}


def ends_of(ctx: NodeContext, out: Affine, activation: int) -> tuple[int, int]:
    """Return the ends of the result's integers by an activation's number."""
    if activation not in _RANGES:
        raise unsupported(ctx, f"has the activation number {activation}, which has no quantised form; 0 to 3 have")
    return clipped_ends(out, *_RANGES[activation])


def clipped_ends(out: Affine, low: float, high: float) -> tuple[int, int]:
    """Return the least and greatest integer of values from low to high."""
    least, most = out.ends
    first = least if low == -np.inf else out.zero + int(round_away(np.float32(low) / out.scale))
    last = most if high == np.inf else out.zero + int(round_away(np.float32(high) / out.scale))
    return max(least, first), min(most, last)


def rescaled(ctx: NodeContext, acc: Value, factors: Array, axis: int, out: Affine, ends: tuple[int, int]) -> Value:
    """Return int32 sums times real factors as elements of the result; several factors belong to `axis`."""
    if factors.size == 1:
        return ctx.elementwise(lambda a: out.stored(scaled(a, float(factors[0])), ends), acc)
    pairs = np.array([fixed_multiplier(float(f)) for f in factors], np.int32).reshape(-1, 2)
    left, right = np.maximum(pairs[:, 1], 0), np.maximum(-pairs[:, 1], 0)
    by_channel = [ctx.along_axis(ctx.constant(a), axis, len(acc.shape)) for a in (pairs[:, 0].copy(), right)]
    if left.any():
        up = ctx.along_axis(ctx.constant(left), axis, len(acc.shape))
        acc = ctx.elementwise(lambda a, n: a.call("shl", n), acc, up)
    return ctx.elementwise(lambda a, m, r: out.stored(a.call("requantize", m, r), ends), acc, *by_channel)


def rescaled_once(ctx: NodeContext, acc: Value, factors: Array, axis: int, out: Affine, ends: tuple[int, int]) -> Value:
    """Return what `rescaled` does, rounded once, as both LiteRT's reference kernel and XNNPACK scale FULLY_CONNECTED.

    `rescaled` rounds twice, which moves one in some hundred results that are nearly halves.
    """
    pairs = np.array([fixed_multiplier(float(f)) for f in factors], np.int64).reshape(-1, 2)
    # Beyond factors of 2^30 all results but 0 are at the ends, whatever is shifted.
    multiplier, bits = pairs[:, 0].copy(), np.maximum(31 - pairs[:, 1], 1)

    def rounded(a: Sym, m: Sym | int, b: Sym | int, half: Sym | int) -> Sym:
        return out.stored((a.cast(DType.INT64) * m + half).call("shr", b).cast(DType.INT32), ends)

    half = np.left_shift(1, bits - 1)
    if factors.size == 1:
        return ctx.elementwise(lambda a: rounded(a, int(multiplier[0]), int(bits[0]), int(half[0])), acc)
    by_channel = [ctx.along_axis(ctx.constant(a), axis, len(acc.shape)) for a in (multiplier, bits, half)]
    return ctx.elementwise(rounded, acc, *by_channel)
