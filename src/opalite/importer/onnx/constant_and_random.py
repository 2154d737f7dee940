"""Constants, ranges, windows, filter banks and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord
from ...ir import Array, DType, Value
from ...ir.rng_seed import next_seed
from ...ir.symbols import is_symbolic, is_symbolic_int
from ...ops.random import Random
from ...ops.reduce import ArgReduce
from ..proto.decode import elem_dtype
from ..walk.node_context import NodeContext, onnx_op
from ..walk.shape_propagation import MOST_ELEMENTS

MOST_NUMBERS = 1 << 31
"""Largest Range in elements: kernels index with 32 bits."""


@onnx_op("ConstantOfShape", since=9)
def constant_of_shape(ctx: NodeContext) -> Value:
    """Import ConstantOfShape: tensor of the given shape, filled with the element of `value` (default: float32 0)."""
    value = ctx.attr("value", None)
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    if fill.size != 1:
        raise ShapeError(f"{ctx.label} needs one element in `value`, got {fill.size}")
    shape = ctx.const_ints(0)
    if any(d < 0 for d in shape):
        raise ShapeError(f"{ctx.label} has shape {list(shape)}; sizes must not be negative")
    if is_symbolic(shape):
        return ctx.expand(ctx.constant(fill.reshape(())), shape)
    return ctx.constant(np.full(shape, fill[0], fill.dtype))


@onnx_op("Range", since=11)
@onnx_op("Range", domain="com.microsoft")
def range_(ctx: NodeContext) -> Value:
    """Import Range: start, start + delta, ... before limit; each element is start + i * delta, delta 1 if absent."""
    dtype, has_delta = ctx.input(0).dtype, not ctx.domain or ctx.get(2) is not None
    numbers = [*(ctx.const_scalar(i) for i in (0, 1)), ctx.const_scalar(2) if has_delta else 1]
    if is_symbolic(numbers) and (whole := _whole_numbers(numbers)) is not None:
        return _range_of_sizes(ctx, dtype, *whole)
    wide = np.float64 if dtype.is_float else np.int64
    start, limit = (ctx.const(i).reshape(()).astype(wide) for i in (0, 1))
    delta = ctx.const(2).reshape(()).astype(wide) if has_delta else wide(1)
    if delta == 0:
        raise ShapeError(f"{ctx.label} has delta 0")
    with np.errstate(all="ignore"):
        steps = float(np.ceil((limit - start) / delta))
    if not steps < MOST_NUMBERS:
        raise ShapeError(f"{ctx.label} goes from {start} to {limit} by {delta}, which is too many numbers to hold")
    count = max(0, int(steps))
    return ctx.constant((start + np.arange(count) * delta).astype(dtype.np))


def _whole_numbers(numbers: Sequence[Any]) -> list[Any] | None:
    """Return start, limit and delta as integers; None if one is no integer, or delta is symbolic or zero."""
    found = [v if is_symbolic_int(v) else int(v) if not is_symbolic(v) and v == int(v) else None for v in numbers]
    return None if None in found or is_symbolic_int(found[2]) or found[2] == 0 else found


def _range_of_sizes(ctx: NodeContext, dtype: DType, start: Any, limit: Any, delta: int) -> Value:
    """Return a range with a symbolic length: expressions for few elements, else computed from positions."""
    count = -(-(limit - start) // delta) if delta > 0 else -(-(start - limit) // -delta)
    if count <= 0:
        return ctx.constant(np.zeros(0, dtype.np))
    if not is_symbolic(count) and count <= MOST_ELEMENTS:
        return ctx.shape_tensor([start + i * delta for i in range(count)], dtype)
    first = ctx.shape_tensor([start], dtype, ())
    return ctx.elementwise(lambda s: s + coord(s.builder, 0).cast(s.dtype) * delta, first, shape=(count,))


@onnx_op("EyeLike", since=9)
def eye_like(ctx: NodeContext) -> Value:
    """Import EyeLike: 1 on diagonal k of a matrix of the input's shape, 0 elsewhere."""
    x = ctx.input(0)
    if len(x.shape) != 2:
        raise ShapeError(f"{ctx.label} needs a matrix, got {x.type}")
    dtype = _dtype(ctx, x.dtype)
    if is_symbolic(x.shape):
        zero = ctx.scalar(ctx.attr("k", 0), DType.INT64)
        place = lambda k: (coord(k.builder, 1) - coord(k.builder, 0)).eq(k)  # noqa: E731
        return ctx.cast(ctx.elementwise(place, zero, shape=x.shape), dtype)
    return ctx.constant(np.eye(*x.shape, k=ctx.attr("k", 0)).astype(dtype.np))


def _dtype(ctx: NodeContext, default: DType) -> DType:
    code = int(ctx.attr("dtype", 0))
    return elem_dtype(code) if code else default


# Windows and filter banks of signal processing

_WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@onnx_op(*_WINDOWS, since=17)
def window(ctx: NodeContext) -> Value:
    """Import a window: a - b cos(2 pi n / N) + c cos(4 pi n / N); N is the size, or size - 1 if not periodic."""
    size, (a, b, c) = int(ctx.const_scalar(0)), _WINDOWS[ctx.op_type]
    period = size if ctx.attr("periodic", 1) else size - 1
    with np.errstate(invalid="ignore"):  # one element that is not periodic: NaN
        angle = 2 * np.pi * np.arange(size) / period
    numbers = a - b * np.cos(angle) + c * np.cos(2 * angle)
    return ctx.constant(numbers.astype(elem_dtype(ctx.attr("output_datatype", 1)).np))


@onnx_op("MelWeightMatrix", since=17)
def mel_weight_matrix(ctx: NodeContext) -> Value:
    """Import MelWeightMatrix: [dft_length // 2 + 1, bins] triangular filters, even in mel = 2595 log10(1 + f / 700)."""
    bins, length, rate = (int(ctx.const_scalar(i)) for i in range(3))
    low, high = (float(ctx.const_scalar(i)) for i in (3, 4))
    edges = np.linspace(_mel(low), _mel(high), bins + 3)[: bins + 2]
    points = np.floor((length + 1) * (700 * (10 ** (edges / 2595) - 1)) / rate).astype(np.int64)
    matrix = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        _add_triangle(matrix[:, i], *(int(p) for p in points[i : i + 3]))
    return ctx.constant(matrix.astype(elem_dtype(ctx.attr("output_datatype", 1)).np))


def _mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def _add_triangle(column: Array, left: int, centre: int, right: int) -> None:
    if centre == left:
        column[centre] = 1
    for j in range(left, centre + 1 if centre > left else left):
        column[j] = (j - left) / (centre - left)
    for j in range(centre, right):
        column[j] = (right - j) / (right - centre)


# Random numbers


def _seed(ctx: NodeContext) -> int:
    """Return the node's seed as an integer; by default a new one for each import (see `opalite.set_seed`)."""
    seed = ctx.attr("seed", None)
    return next_seed() if seed is None else int(np.float32(seed).view(np.uint32)) & 0x7FFFFFFF


def _random(ctx: NodeContext, kind: str, shape: Sequence[int], dtype: DType, chances: Value | None = None) -> Value:
    # float16 and bfloat16 are rounded from float32, so that all types share one generator.
    made = DType.FLOAT32 if dtype.size == 2 else dtype
    out = ctx.add(
        Random(
            kind=kind,
            shape=tuple(shape),
            low=ctx.attr("low", 0.0),
            high=ctx.attr("high", 1.0),
            mean=ctx.attr("mean", 0.0),
            scale=ctx.attr("scale", 1.0),
            seed=_seed(ctx),
            dtype=made,
        ),
        [] if chances is None else [chances],
    )
    return ctx.cast(out, dtype)


@onnx_op("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def random(ctx: NodeContext) -> Value:
    """Import RandomUniform, RandomNormal: numbers of a shape (an attribute), or Like the input in shape and dtype."""
    kind = "uniform" if "Uniform" in ctx.op_type else "normal"
    if not ctx.op_type.endswith("Like"):
        return _random(ctx, kind, ctx.ints("shape", ()), _dtype(ctx, DType.FLOAT32))
    return _random(ctx, kind, ctx.input(0).shape, _dtype(ctx, ctx.input(0).dtype))


@onnx_op("Bernoulli", since=15)
def bernoulli(ctx: NodeContext) -> Value:
    """Import Bernoulli: 1 with the probability in the input, else 0."""
    x = ctx.input(0)
    return ctx.cast(_random(ctx, "bernoulli", x.shape, x.dtype, x), _dtype(ctx, x.dtype))


@onnx_op("Multinomial", since=7)
def multinomial(ctx: NodeContext) -> Value:
    """Import Multinomial: samples classes by log probabilities x[B,C]: argmax of x - log(-log(u)), u uniform."""
    x, count = ctx.input(0), ctx.attr("sample_size", 1)
    batch, classes = x.shape
    uniform = _random(ctx, "uniform", (batch, count, classes), DType.FLOAT32)

    def noisy(u: Sym, logits: Sym) -> Sym:
        # 2^-24 keeps the logarithm finite if u is 0.
        return logits.cast(DType.FLOAT32) - (-(u.call("max", 2.0**-24).call("log"))).call("log")

    scores = ctx.elementwise(noisy, uniform, ctx.reshape(x, (batch, 1, classes)))
    drawn = ctx.add(ArgReduce(kind="max", axis=2, keepdims=False, select_last=False), [scores])
    return ctx.cast(drawn, _dtype(ctx, DType.INT32))
