"""Fused operators of domain com.microsoft, which onnxruntime's optimiser writes, as separate operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym
from ...ir import DType, Value
from ...ops.normalize import Normalize
from ..onnx.activation import ACTIVATIONS, gelu_exact, gelu_tanh, register_activation, swish_of
from ..onnx.conv import convolve, global_pool, pool, pool_
from ..onnx.image import emit_resize, grid_sample
from ..onnx.index import gather_nd, trilu
from ..onnx.matmul import gemm
from ..onnx.norm import inverse_rms, layer_normalization, layer_statistics, normalize_trailing
from ..proto.undo_nchwc import FULL, NCHWC
from ..walk.node_context import NodeContext, Result, onnx_op

MS = "com.microsoft"


def refuse(ctx: NodeContext, **features: object) -> None:
    """Raise UnsupportedOpError with the name of the first feature that is set."""
    for name, value in features.items():
        if value:
            raise UnsupportedOpError(f"{ctx.label} uses {name}, which is not supported; export the model without it")


onnx_op("GridSample", domain=MS)(grid_sample)
onnx_op("GatherND", domain=MS)(gather_nd)
onnx_op("Trilu", domain=MS)(trilu)
onnx_op("LayerNormalization", domain=MS)(layer_normalization)


# Convolution and products with an activation

_NAMES = ("Relu", "LeakyRelu", "HardSwish", "Elu", "Selu", "Softplus", "ParametricSoftplus", "Softsign", "ScaledTanh")
_FUSED: dict[str, tuple[Callable[..., Sym], Mapping[str, float | None]]] = {
    **{name: ACTIVATIONS[name] for name in (*_NAMES, "ThresholdedRelu", "Mish")},
    "HardSigmoid": (ACTIVATIONS["HardSigmoid"][0], {"alpha": None, "beta": None}),
    "Clip": (lambda x, low, high: x.call("max", low).call("min", high), {"min": None, "max": None}),
    "Gelu": (lambda x, tanh: gelu_tanh(x) if tanh else gelu_exact(x), {"tanh": 0.0}),
    "FastGelu": (gelu_tanh, {}),
    "QuickGelu": (swish_of, {"alpha": 1.702}),
    "Silu": (lambda x: swish_of(x, 1.0), {}),
    "Sigmoid": (lambda x: x.call("sigmoid"), {}),
    "Tanh": (lambda x: x.call("tanh"), {}),
    "Erf": (lambda x: x.call("erf"), {}),
}
"""Activations that onnxruntime fuses, with parameters in the order of `activation_params`; None: required."""


def apply_activation(ctx: NodeContext, y: Value) -> Value:
    """Apply the function that the attribute `activation` names to y, if any.

    The parameters are in `activation_params` (convolutions), or in `activation_alpha` etc. (products).
    UnsupportedOpError for an unknown function or missing parameters.
    """
    name = ctx.attr("activation", "")
    if not name:
        return y
    fn, defaults = _FUSED.get(name, (None, {}))
    listed = dict(zip(defaults, ctx.attr("activation_params", ()), strict=False))
    found = {k: ctx.attr(f"activation_{k}", listed.get(k, default)) for k, default in defaults.items()}
    if fn is None or None in found.values():
        raise UnsupportedOpError(
            f"{ctx.label} has activation '{name}' with parameters {found}; known are {', '.join(_FUSED)}"
        )
    return ctx.elementwise(lambda x: fn(x, *map(float, found.values())), y)


@onnx_op("FusedConv", domain=MS)
def fused_conv(ctx: NodeContext) -> Value:
    """Import FusedConv: activation(conv(x, w, b) + z)."""
    return _add_and_activate(ctx, convolve(ctx, ctx.input(0), ctx.input(1), ctx.get(2)))


@onnx_op("NhwcFusedConv", "NhwcConv", domain=MS)
def nhwc_conv(ctx: NodeContext) -> Value:
    """Import NhwcConv: as FusedConv with channels last in x, z and the result."""
    y = convolve(ctx, channels_first(ctx, ctx.input(0)), ctx.input(1), ctx.get(2))
    return _add_and_activate(ctx, channels_last(ctx, y))


def _add_and_activate(ctx: NodeContext, y: Value) -> Value:
    return apply_activation(ctx, ctx.plus(y, ctx.get(3)))


@onnx_op("NhwcMaxPool", domain=MS)
def nhwc_max_pool(ctx: NodeContext) -> Value:
    """Import NhwcMaxPool: max pooling with channels last."""
    y = pool(ctx, channels_first(ctx, ctx.input(0)), "max")
    assert isinstance(y, Value)
    return channels_last(ctx, y)


def channels_first(ctx: NodeContext, x: Value) -> Value:
    """Transpose [N,D...,C] to [N,C,D...]."""
    rank = len(x.shape)
    return ctx.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(ctx: NodeContext, x: Value) -> Value:
    """Transpose [N,C,D...] to [N,D...,C]."""
    return ctx.transpose(x, (0, *range(2, len(x.shape)), 1))


@onnx_op("TransposeMatMul", "FusedMatMul", domain=MS)
def fused_matmul(ctx: NodeContext) -> Value:
    """Import FusedMatMul: alpha * A B; transBatch moves an operand's first axis after its other batch axes."""
    operands = []
    for i, letter in enumerate("AB"):
        v = ctx.input(i)
        rank = len(v.shape)
        if ctx.attr(f"transBatch{letter}", 0) and rank > 2:
            v = ctx.transpose(v, (*range(1, rank - 1), 0, rank - 1))
        operands.append(v)
    flags = [ctx.attr(f"trans{x}", False) and len(v.shape) > 1 for x, v in zip("AB", operands, strict=True)]
    y = ctx.matmul(operands[0], operands[1], *flags)
    alpha = ctx.attr("alpha", 1.0)
    return y if alpha == 1.0 else ctx.elementwise(lambda v: v * alpha, y)


@onnx_op("FusedMatMulActivation", "FusedGemm", domain=MS)
def fused_product(ctx: NodeContext) -> Value:
    """Import FusedMatMulActivation, activation(alpha * A B), and FusedGemm, activation(alpha * A' B' + beta * C)."""
    return apply_activation(ctx, gemm(ctx) if ctx.op_type == "FusedGemm" else fused_matmul(ctx))


# Activations


register_activation("Gelu", (gelu_exact, {}), domain=MS)
register_activation("QuickGelu", (swish_of, {"alpha": 1.702}), domain=MS)


@onnx_op("BiasGelu", "FastGelu", domain=MS)
def bias_gelu(ctx: NodeContext) -> Value:
    """Import BiasGelu, GELU in its erf form, and FastGelu, in its tanh form, of x or x + bias."""
    gelu, bias = (gelu_exact, ctx.input(1)) if ctx.op_type == "BiasGelu" else (gelu_tanh, ctx.get(1))
    return ctx.elementwise(lambda a, b: gelu(a if b is None else a + b), ctx.input(0), bias)


@onnx_op("BiasSplitGelu", domain=MS)
def bias_split_gelu(ctx: NodeContext) -> Value:
    """Import BiasSplitGelu: left * gelu(right) of the two halves of x + bias along the last axis."""
    x = ctx.plus(ctx.input(0), ctx.input(1))
    axis, half = len(x.shape) - 1, x.shape[-1] // 2
    left, right = ctx.slice_axis(x, axis, 0, half), ctx.slice_axis(x, axis, half, 2 * half)
    return ctx.elementwise(lambda a, b: a * gelu_exact(b), left, right)


@onnx_op("BiasAdd", domain=MS)
def bias_add(ctx: NodeContext) -> Value:
    """Import BiasAdd: x + bias + skip."""
    return ctx.chain("add", [ctx.input(0), ctx.input(1), ctx.input(2)])


@onnx_op("BiasSoftmax", domain=MS)
def bias_softmax(ctx: NodeContext) -> Value:
    """Import BiasSoftmax: softmax(x + bias) over the axes from `axis` on; bias omits the axes it broadcasts over."""
    x, bias = ctx.input(0), ctx.input(1)
    rank = len(x.shape)
    axis = ctx.axis_of(rank, 1)
    if ctx.attr("is_inner_broadcast", 0) and len(bias.shape) < rank:
        lead = len(bias.shape) - (rank - axis)
        bias = ctx.reshape(bias, (*bias.shape[:lead], *(1,) * (rank - len(bias.shape)), *bias.shape[lead:]))
    flat = ctx.reshape(ctx.plus(x, bias), (*x.shape[:axis], math.prod(x.shape[axis:])))
    return ctx.reshape(ctx.softmax(flat), x.shape)


# Normalisation


@onnx_op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MS)
def skip_layer_normalization(ctx: NodeContext) -> Result:
    """Import layer or (Simplified) RMS normalisation of input + skip + bias; the sum is output 3."""
    kind = "rms" if "Simplified" in ctx.op_type else "layer"
    total, epsilon = _sum_with_skip(ctx, ctx.get(3 if kind == "rms" else 4)), ctx.attr("epsilon", 1e-12)
    axis = len(total.shape) - 1
    y = normalize_trailing(ctx, kind, total, ctx.input(2), ctx.get(3) if kind == "layer" else None, axis, epsilon)
    mean, inverse = None, None
    if kind == "rms":
        inverse = inverse_rms(ctx, total, axis, epsilon) if ctx.uses_output(2) else None
    elif ctx.uses_output(1) or ctx.uses_output(2):
        mean, inverse = layer_statistics(ctx, ctx.cast(total, DType.FLOAT32), axis, epsilon)
    return [y, mean, inverse, total][: ctx.n_outputs]


def _sum_with_skip(ctx: NodeContext, bias: Value | None) -> Value:
    x, skip = ctx.input(0), ctx.input(1)
    total = ctx.chain("add", [x, skip, bias])
    if total.shape != x.shape:
        raise ShapeError(
            f"{ctx.label} adds skip {skip.type} to input {x.type}; expected one that broadcasts to the input"
        )
    return total


@onnx_op("GroupNorm", domain=MS)
def group_norm(ctx: NodeContext) -> Value:
    """Import GroupNorm: group normalisation, channels last by default, then optional SiLU."""
    return normalize_groups(ctx, ctx.input(0))


def normalize_groups(ctx: NodeContext, x: Value) -> Value:
    """Emit GroupNorm of x by the node's attributes and its inputs 1 (scale) and 2 (bias)."""
    last = ctx.attr("channels_last", True)
    groups, epsilon = ctx.attr("groups", 1), ctx.attr("epsilon", 1e-5)
    inputs = [channels_first(ctx, x) if last else x, *(ctx.cast(ctx.input(i), x.dtype) for i in (1, 2))]
    y = ctx.add(Normalize(kind="group", num_groups=groups, epsilon=epsilon), inputs)
    if ctx.attr("activation", 0):
        y = ctx.elementwise(lambda v: swish_of(v, 1.0), y)
    return channels_last(ctx, y) if last else y


@onnx_op("EmbedLayerNormalization", domain=MS)
def embed_layer_normalization(ctx: NodeContext) -> Result:
    """Import EmbedLayerNormalization: normalised sum of word, position and segment embeddings; and word counts."""
    return embed_and_normalize(ctx, [ctx.get(i) for i in range(2, 7)], ctx.get(8))


def embed_and_normalize(ctx: NodeContext, tables: Sequence[Value | None], positions: Value | None = None) -> Result:
    """Emit EmbedLayerNormalization of ids in input 0, segments in 1 and a mask in 7.

    tables: embeddings of words, positions and segments, then scale and bias of the normalisation. positions: rows of
    the position table; by default each token's index.
    """
    ids, segments, mask = ctx.input(0), ctx.get(1), ctx.get(7)
    table, places_table, segment_table, scale, bias = tables
    assert table is not None
    assert places_table is not None
    assert scale is not None
    words = ctx.gather(table, ids, 0)
    if positions is not None:
        places = ctx.gather(places_table, positions, 0)
    else:
        places = ctx.unsqueeze(ctx.slice_axis(places_table, 0, 0, ids.shape[1]), (0,))
    if segments is not None and segment_table is None:
        raise ShapeError(f"{ctx.label} has segment ids, but no segment embedding")
    if segment_table is not None:  # without segment ids, all are segment 0
        segment = ctx.slice_axis(segment_table, 0, 0, 1) if segments is None else ctx.gather(segment_table, segments, 0)
    total = ctx.chain("add", [words, places, segment if segment_table is not None else None])
    epsilon = ctx.attr("epsilon", 1e-12)
    y = normalize_trailing(ctx, "layer", total, scale, bias, len(total.shape) - 1, epsilon)
    if mask is None:
        index = ctx.elementwise(lambda v: v * 0, ctx.cast(ctx.slice_axis(ids, 1, 0, 1), DType.INT32))
        index = ctx.reshape(index, (ids.shape[0],))
    else:
        index = ctx.reduce(ctx.cast(mask, DType.INT32), "sum", (1,), keepdims=False)
    return [y, index, total][: ctx.n_outputs]


# Domain com.microsoft.nchwc on tensors [N,C,H,W]: `proto/undo_nchwc.py` has removed the blocks. A node has two further
# attributes: `channels` (of the output; FULL: whole blocks) and `block`.


onnx_op("Conv", domain=NCHWC)(fused_conv)
onnx_op("MaxPool", "AveragePool", domain=NCHWC)(pool_)
onnx_op("GlobalMaxPool", "GlobalAveragePool", domain=NCHWC)(global_pool)


@onnx_op("ReorderInput", domain=NCHWC)
def reorder_input(ctx: NodeContext) -> Value:
    """Import ReorderInput: cut x to the channels that are read, or pad it with zeros to whole blocks."""
    x = ctx.input(0)
    if ctx.attr("channels_last", 0):
        x = channels_first(ctx, x)
    has, wanted, block = x.shape[1], ctx.attr("channels", FULL), ctx.attr("block", 1)
    if wanted == FULL:
        wanted = -(-has // block) * block
    elif wanted < has:
        return ctx.slice_axis(x, 1, 0, wanted)
    return ctx.pad_zeros(x, (0, 0, 0, 0, 0, wanted - has, 0, 0))


@onnx_op("ReorderOutput", domain=NCHWC)
def reorder_output(ctx: NodeContext) -> Value:
    """Import ReorderOutput: the first `channels` of x, channels last if requested."""
    x = ctx.input(0)
    y = ctx.slice_axis(x, 1, 0, int(ctx.attr("channels", x.shape[1])))
    return channels_last(ctx, y) if ctx.attr("channels_last", 0) else y


@onnx_op("Upsample", domain=NCHWC)
def upsample(ctx: NodeContext) -> Value:
    """Import Upsample: height and width times integers, by nearest positions rounded down."""
    x, scales = ctx.input(0), ctx.ints("scales", (1, 1, 1, 1))
    if len(scales) != 4 or scales[:2] != (1, 1):
        raise ShapeError(f"{ctx.label} has scales {scales}; expected four, the first two of them 1")
    coordinate = ctx.attr("coordinate_transformation_mode", "asymmetric")
    if coordinate not in ("asymmetric", "align_corners", "half_pixel"):
        raise UnsupportedOpError(f"{ctx.label} has coordinate_transformation_mode '{coordinate}', which is unknown")
    sizes = [d * s for d, s in zip(x.shape, scales, strict=True)]
    return emit_resize(ctx, sizes, [float(s) for s in scales], coordinate, "floor")
