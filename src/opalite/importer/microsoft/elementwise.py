"""Small operators of domain com.microsoft: gates, sums, integers, complex numbers, Fourier, data movement."""

from __future__ import annotations

import math

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym
from ...ir import DType, Value
from ...ops.conv import ConvTranspose
from ...ops.operator import normalize_axis
from ..onnx.activation import gelu_tanh, swish_of
from ..onnx.affine_quantization import minus_zero_point
from ..onnx.conv import plain_window
from ..onnx.fourier import transform
from ..onnx.shape import pad
from ..walk.emitter import positive_axes
from ..walk.node_context import NodeContext, Result, onnx_op
from .unfuse import MS, normalize_groups, refuse

# Gates and activations


@onnx_op("ScaledSiLU", domain=MS)
def scaled_silu(ctx: NodeContext) -> Value:
    """Import ScaledSiLU: z * sigmoid(z) of z = scale * x; without scale, the attribute `alpha`."""
    scale, alpha = ctx.get(1), ctx.attr("alpha", 1.0)
    if scale is None:
        return ctx.elementwise(lambda x: swish_of(x * alpha, 1.0), ctx.input(0))
    one = ctx.reshape(scale, ())
    return ctx.elementwise(lambda x, s: swish_of((x.cast(s.dtype) * s).cast(x.dtype), 1.0), ctx.input(0), one)


@onnx_op("SwiGLU", domain=MS)
def swiglu(ctx: NodeContext) -> Value:
    """Import SwiGLU: g * sigmoid(alpha * g) * (l + beta) of gate g and l, both clamped if `limit` is positive.

    With one input, g and l are its halves.
    """
    gate, up = ctx.input(0), ctx.get(1)
    if up is None:
        half = gate.shape[-1] // 2
        gate, up = ctx.split_axis(gate, len(gate.shape) - 1, (half, half))
    alpha, beta = ctx.attr("activation_alpha", 1.0), ctx.attr("activation_beta", 0.0)
    limit = ctx.attr("limit", 0.0)

    def gated(a: Sym, b: Sym) -> Sym:
        g, u = (v.cast(DType.FLOAT32) for v in (a, b))
        if limit > 0:
            g, u = g.call("min", limit), u.call("max", -limit).call("min", limit)
        product = swish_of(g, alpha)
        return (product * (u + beta if beta else u)).cast(a.dtype)

    return ctx.elementwise(gated, gate, up)


@onnx_op("GemmFastGelu", domain=MS)
def gemm_fast_gelu(ctx: NodeContext) -> Value:
    """Import GemmFastGelu: GELU (tanh form) of x W + bias."""
    y = ctx.matmul(ctx.input(0), ctx.input(1))
    return ctx.elementwise(lambda a, b: gelu_tanh(a if b is None else a + b), y, ctx.get(2))


@onnx_op("SkipGroupNorm", domain=MS)
def skip_group_norm(ctx: NodeContext) -> Result:
    """Import SkipGroupNorm: group normalisation of x + skip + bias, optional SiLU; the sum is the second output."""
    x, skip, bias, last = ctx.input(0), ctx.input(3), ctx.get(4), ctx.attr("channels_last", True)
    wide = (1, 1) if len(skip.shape) == 2 else ()
    skip = ctx.reshape(skip, (skip.shape[0], *wide, skip.shape[1]) if last else (*skip.shape, *wide)) if wide else skip
    if bias is not None and not last:
        bias = ctx.reshape(bias, (bias.shape[0], 1, 1))
    total = ctx.chain("add", [x, skip, bias])
    return [normalize_groups(ctx, total), total][: ctx.n_outputs]


@onnx_op("BiasDropout", "BitmaskBiasDropout", domain=MS)
def bias_dropout(ctx: NodeContext) -> Value:
    """Import BiasDropout: x + bias + residual; inference drops nothing."""
    training = ctx.maybe_const(4)
    refuse(ctx, training_mode=ctx.get(4) is not None and (training is None or bool(training.any())))
    return ctx.chain("add", [ctx.input(0), ctx.input(1), ctx.get(2)])


@onnx_op("GemmaRotaryEmbedding", domain=MS)
def gemma_rotary_embedding(ctx: NodeContext) -> Result:
    """Import GemmaRotaryEmbedding: x * cos(emb) + x_rot * sin(emb), x: queries and keys [B,H,S,D]; emb [B,S,D]."""
    angle = ctx.unsqueeze(ctx.input(0), (1,))

    def turned(e: Sym, x: Sym, y: Sym) -> Sym:
        return x * e.call("cos").cast(x.dtype) + y * e.call("sin").cast(x.dtype)

    return [ctx.elementwise(turned, angle, ctx.input(i), ctx.input(i + 1)) for i in (1, 3)]


@onnx_op("RelativePositionBias", domain=MS)
def relative_position_bias(ctx: NodeContext) -> Value:
    """Import RelativePositionBias: T5's bias [1,heads,queries,keys], from a table [buckets,heads] by distance."""
    table, queries, keys = ctx.input(0), int(ctx.const_scalar(1)), int(ctx.const_scalar(2))
    buckets, most, both = table.shape[0], ctx.attr("max_distance", 128), ctx.attr("is_bidirectional", False)
    behind = np.arange(queries)[:, None] - np.arange(keys)[None, :]
    place = np.zeros((queries, keys), np.int64)
    if both:
        buckets //= 2
        place += np.where(behind < 0, buckets, 0)
        behind = np.abs(behind)
    behind = np.maximum(behind, 0)
    exact = buckets // 2
    with np.errstate(divide="ignore"):
        far = np.log(behind / exact) / math.log(most / exact) * (buckets - exact)
    far = np.where(behind > 0, far, 0)
    place += np.where(behind < exact, behind, np.minimum(exact + far.astype(np.int64), buckets - 1))
    return ctx.unsqueeze(ctx.transpose(ctx.gather(table, ctx.constant(place), 0), (2, 0, 1)), (0,))


# Integers


@onnx_op("MulInteger", domain=MS)
def mul_integer(ctx: NodeContext) -> Value:
    """Import MulInteger: (a - a_zero) * (b - b_zero) in int32."""
    a, a_zero, b, b_zero = ctx.input(0), ctx.get(1), ctx.input(2), ctx.get(3)

    def whole(v: Value, zero: Value | None) -> Value:
        return minus_zero_point(ctx, v, None if zero is None else ctx.reshape(zero, ()))

    return ctx.elementwise(lambda x, y: x * y, whole(a, a_zero), whole(b, b_zero))


@onnx_op("ReduceSumInteger", domain=MS)
def reduce_sum_integer(ctx: NodeContext) -> Value:
    """Import ReduceSumInteger: sum over axes in 32 bits."""
    x = ctx.input(0)
    wide = DType.UINT32 if x.dtype in (DType.UINT8, DType.UINT16) else DType.INT32
    axes = positive_axes(ctx.ints("axes", range(len(x.shape))), len(x.shape))
    return ctx.reduce(ctx.cast(x, wide), "sum", axes, ctx.attr("keepdims", True))


@onnx_op("MatMulInteger16", domain=MS)
def matmul_integer16(ctx: NodeContext) -> Value:
    """Import MatMulInteger16: product of 16-bit integers in 32 bits."""
    a, b = ctx.input(0), ctx.input(1)
    wide = DType.UINT32 if a.dtype is DType.UINT16 and b.dtype is DType.UINT16 else DType.INT32
    return ctx.matmul(ctx.cast(a, wide), ctx.cast(b, wide))


@onnx_op("IsAllFinite", domain=MS)
def is_all_finite(ctx: NodeContext) -> Value:
    """Import IsAllFinite: whether no input element is infinite or NaN; isinf_only, isnan_only test one of these."""
    infinite, nan = ctx.attr("isinf_only", False), ctx.attr("isnan_only", False)

    def wrong(x: Sym) -> Sym:
        if infinite:
            return x.call("isinf").cast(DType.INT32)
        found = x.call("isnan")
        return (found if nan else found.call("or", x.call("isinf"))).cast(DType.INT32)

    counts = [ctx.reduce(ctx.elementwise(wrong, v), "max", range(len(v.shape)), keepdims=False) for v in ctx.present]
    return ctx.elementwise(lambda n: n.eq(0), ctx.chain("max", counts))


# Complex numbers and transforms


@onnx_op("ComplexMul", "ComplexMulConj", domain=MS)
def complex_mul(ctx: NodeContext) -> Value:
    """Import ComplexMul, a b, and ComplexMulConj, a conj(b); the last axis holds real and imaginary part."""
    a, b = ctx.input(0), ctx.input(1)
    if a.shape[-1:] != (2,) or b.shape[-1:] != (2,):
        raise ShapeError(f"{ctx.label} needs pairs of real and imaginary parts, got {a.type} and {b.type}")
    parts = [ctx.slice_axis(v, len(v.shape) - 1, i, i + 1) for v in (a, b) for i in (0, 1)]
    if ctx.op_type == "ComplexMul":
        real = ctx.elementwise(lambda p, q, r, s: p * r - q * s, *parts)
        imaginary = ctx.elementwise(lambda p, q, r, s: p * s + q * r, *parts)
    else:
        real = ctx.elementwise(lambda p, q, r, s: p * r + q * s, *parts)
        imaginary = ctx.elementwise(lambda p, q, r, s: q * r - p * s, *parts)
    return ctx.concat([real, imaginary], len(real.shape) - 1)


@onnx_op("Rfft", "Irfft", domain=MS)
def real_transform(ctx: NodeContext) -> Value:
    """Import Rfft and Irfft: transform [...,n/2+1,2] of a real signal [...,n] along the last axis, or its inverse."""
    x, inverse = ctx.input(0), ctx.op_type == "Irfft"
    if ctx.attr("signal_ndim", 1) != 1 or not ctx.attr("onesided", 1) or ctx.attr("normalized", 0):
        raise UnsupportedOpError(f"{ctx.label} is a transform of several axes, of both sides or normalised")
    if inverse:
        length = 2 * (x.shape[-2] - 1)
        y = transform(ctx, x, length, inverse=True, onesided=True)
        return ctx.reshape(y, y.shape[:-1]) if y.shape[-1] == 1 else y
    return transform(ctx, ctx.unsqueeze(x, (len(x.shape),)), x.shape[-1], inverse=False, onesided=True)


@onnx_op("ConvTransposeWithDynamicPads", domain=MS)
def conv_transpose_with_dynamic_pads(ctx: NodeContext) -> Value:
    """Import ConvTransposeWithDynamicPads: transposed convolution with pads as an input."""
    x, w = ctx.input(0), ctx.input(1)
    rank = len(x.shape) - 2
    window = plain_window(ctx, rank, w.shape[2:])
    pads = window.pads if ctx.get(2) is None else tuple(int(p) for p in ctx.const(2).reshape(-1))
    if len(pads) != 2 * rank or ctx.attr("auto_pad", "NOTSET") != "NOTSET":
        raise UnsupportedOpError(f"{ctx.label} has pads {pads} for {rank} axes, or auto_pad")
    op = ConvTranspose(
        strides=window.strides,
        pads=pads,
        dilations=window.dilations,
        group=ctx.attr("group", 1),
        output_padding=ctx.ints("output_padding", (0,) * rank),
    )
    return ctx.add(op, [x, w, ctx.get(3)])


# Data movement

onnx_op("Pad", domain=MS)(pad)


@onnx_op("ExpandDims", domain=MS)
def expand_dims(ctx: NodeContext) -> Value:
    """Import ExpandDims: inserts an axis of size 1; the position is an input."""
    return ctx.unsqueeze(ctx.input(0), (int(ctx.const_scalar(1)),))


@onnx_op("UnfoldTensor", domain=MS)
def unfold_tensor(ctx: NodeContext) -> Value:
    """Import UnfoldTensor: all windows of `size` elements along an axis, at distance `step`, as a new last axis."""
    x, size, step = ctx.input(0), ctx.attr("size", 0), ctx.attr("step", 1)
    rank = len(x.shape)
    axis = normalize_axis(ctx.attr("dim", -1), rank, "dim")
    if size < 1 or step < 1 or size > x.shape[axis]:
        raise ShapeError(f"{ctx.label} has size {size} and step {step} for axis {axis} of {x.type}")
    count = (x.shape[axis] - size) // step + 1
    places = np.arange(int(count))[:, None] * step + np.arange(size)
    found = ctx.take(x, places, axis)
    return ctx.transpose(found, (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1))


@onnx_op("TorchEmbedding", domain=MS)
def torch_embedding(ctx: NodeContext) -> Value:
    """Import TorchEmbedding: rows of a table; other inputs are for training."""
    return ctx.gather(ctx.input(0), ctx.input(1), 0)


@onnx_op("SampleOp", "BitmaskDropout", domain=MS)
def unchanged(ctx: NodeContext) -> Value:
    """Import an operator that returns x unchanged in inference."""
    return ctx.input(0)
