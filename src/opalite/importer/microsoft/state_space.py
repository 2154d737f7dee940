"""Layers of domain com.microsoft: state-space and linear attention (Mamba, LFM2, DeltaNet), RoPE in 3-D, streams."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import DType, Value
from ..onnx.activation import softplus_of, swish_of
from ..onnx.attention import linear_attention, rotate
from ..onnx.conv import convolve_causally
from ..onnx.norm import normalize_trailing
from ..walk.node_context import NodeContext, Result, onnx_op
from .unfuse import MS, refuse


@onnx_op("CausalConvWithState", domain=MS)
def causal_conv_with_state(ctx: NodeContext) -> Result:
    """Import CausalConvWithState as in the default domain, plus dilation; x is [B,C,L] or, channels last, [B,L,...]."""
    refuse(
        ctx,
        ndim=ctx.attr("ndim", 1) != 1,
        **{n: ctx.attr(n, 0) for n in ("state_window", "state_update_capacity", "state_length", "input_channels")},
    )
    x, past, dilation = ctx.input(0), ctx.get(3), ctx.attr("dilation", 1)
    if not ctx.attr("channels_last", 0):
        return convolve_causally(ctx, x, past, dilation)
    channels, behind = ctx.input(1).shape[0], x.shape[2:]

    def first(v: Value) -> Value:
        return ctx.transpose(ctx.reshape(v, (*v.shape[:2], channels)), (0, 2, 1))

    y, after = convolve_causally(ctx, first(x), None if past is None else first(past), dilation)
    return [ctx.reshape(ctx.transpose(v, (0, 2, 1)), (v.shape[0], v.shape[2], *behind)) for v in (y, after)]


@onnx_op("LinearAttention", domain=MS)
def linear_attention_ms(ctx: NodeContext) -> Result:
    """Import LinearAttention as in the default domain."""
    refuse(ctx, state_window=ctx.attr("state_window", 0))
    return linear_attention(ctx)


@onnx_op("LinearAttentionGate", domain=MS)
def linear_attention_gate(ctx: NodeContext) -> Result:
    """Import LinearAttentionGate: decay_scale * softplus(a + dt_bias) in float32, and sigmoid(b)."""
    a, bias, scale, b = ctx.input(0), ctx.input(1), ctx.input(2), ctx.get(3)
    decay = ctx.elementwise(lambda x, d, s: (softplus_of(x.cast(DType.FLOAT32) + d) * s).cast(a.dtype), a, bias, scale)
    beta = None if b is None else ctx.elementwise(lambda x: x.call("sigmoid"), b)
    return [decay, beta][: ctx.n_outputs]


@onnx_op("GatedRMSNorm", domain=MS)
def gated_rms_norm(ctx: NodeContext) -> Value:
    """Import GatedRMSNorm: normalised rows of `scale`'s length, times silu or sigmoid of a gate, in float32."""
    x, scale, gate = ctx.input(0), ctx.input(1), ctx.input(2)
    kind, width = ctx.choice("activation", "silu", ("silu", "swish", "sigmoid")), scale.shape[0]
    if x.shape[-1] % width:
        raise ShapeError(f"{ctx.label} normalises rows of {width} elements, but has {x.type}")
    rows = (*x.shape[:-1], x.shape[-1] // width, width)
    wide, by, through = (ctx.cast(v, DType.FLOAT32) for v in (ctx.reshape(x, rows), scale, ctx.reshape(gate, rows)))
    y = normalize_trailing(ctx, "rms", wide, by, None, len(rows) - 1, ctx.attr("epsilon", 1e-5))
    y = ctx.elementwise(lambda v, g: v * (g.call("sigmoid") if kind == "sigmoid" else swish_of(g, 1.0)), y, through)
    return ctx.reshape(ctx.cast(y, x.dtype), x.shape)


@onnx_op("GatedAdd", domain=MS)
def gated_add(ctx: NodeContext) -> Value:
    """Import GatedAdd: x + y * gate."""
    refuse(ctx, gate_weight=ctx.get(3))
    return ctx.elementwise(lambda x, y, g: x + y * g, ctx.input(0), ctx.input(1), ctx.input(2))


@onnx_op("MRotaryEmbedding", domain=MS)
def multimodal_rotary_embedding(ctx: NodeContext) -> Value:
    """Import MRotaryEmbedding: rotates feature pairs by positions [3,B,S] in time, height and width."""
    refuse(ctx, is_packed_batching=ctx.attr("is_packed_batching", 0), scale=ctx.attr("scale", 1.0) != 1.0)
    x, positions, cos, sin = (ctx.input(i) for i in range(4))
    pairs, sections = cos.shape[1], [int(n) for n in ctx.attr("mrope_section", ())]
    if len(sections) != 3 or sum(sections) != pairs:
        raise ShapeError(f"{ctx.label} has mrope_section {sections} for {pairs} pairs: three numbers that sum to those")
    if ctx.attr("mrope_layout", 0):
        by = np.zeros(pairs, np.int32)
        for axis in (1, 2):
            by[axis : 3 * sections[axis] : 3] = axis
    else:
        by = np.repeat(np.arange(3, dtype=np.int32), sections)
    which, streams = ctx.constant(by), [ctx.squeeze(p, (0,)) for p in ctx.split_axis(positions, 0, (1, 1, 1))]

    def chosen(table: Value) -> Value:
        """Return [B,S,pairs], each pair from one of the three positions."""
        rows = [ctx.gather(table, p, 0) for p in streams]
        return ctx.elementwise(lambda w, t, h, v: where(w.eq(0), t, where(w.eq(1), h, v)), which, *rows)

    heads = ctx.attr("num_heads", 0)
    width = ctx.attr("rotary_embedding_dim", 0)
    if len(x.shape) == 3 and not heads:
        heads = x.shape[2] // (2 * pairs)
    return rotate(ctx, x, chosen(cos), chosen(sin), heads, width, ctx.attr("interleaved", False))


# Hidden states with several streams (hyper-connections, Engram)


def _streams(ctx: NodeContext, x: Value) -> Value:
    """Return x as [...,C,H] in float32; `num_branches` gives C if the shape is [...,C*H]."""
    count = ctx.attr("num_branches", 0)
    if count:
        if x.shape[-1] % count:
            raise ShapeError(f"{ctx.label} has num_branches {count} for {x.type}")
        x = ctx.reshape(x, (*x.shape[:-1], count, x.shape[-1] // count))
    if len(x.shape) < 2:
        raise ShapeError(f"{ctx.label} needs streams [..., branches, size], got {x.type}")
    return ctx.cast(x, DType.FLOAT32)


def _gates(ctx: NodeContext, gates: Value, x: Value) -> Value:
    """Reshape gates [...,C], [...,C,1], [...,C,H] or [...,C*H] to broadcast against streams [...,C,H]."""
    gates, rank = ctx.cast(gates, DType.FLOAT32), len(x.shape)
    if len(gates.shape) == rank:
        return gates
    if len(gates.shape) != rank - 1:
        raise ShapeError(f"{ctx.label} has gates {gates.type} for streams {x.type}")
    if gates.shape[-1] == x.shape[-2]:
        return ctx.unsqueeze(gates, (rank - 1,))
    return ctx.reshape(gates, (*gates.shape[:-1], *x.shape[-2:]))


@onnx_op("BranchwiseRMSNorm", domain=MS)
def branchwise_rms_norm(ctx: NodeContext) -> Value:
    """Import BranchwiseRMSNorm: RMS normalisation of each stream of the hidden states, in float32."""
    x, scale = ctx.input(0), ctx.get(1)
    wide = _streams(ctx, x)
    if scale is not None:
        scale = ctx.cast(scale, DType.FLOAT32)
        if len(scale.shape) == 1 and scale.shape[0] != wide.shape[-1]:
            scale = ctx.reshape(scale, wide.shape[-2:])
    y = normalize_trailing(ctx, "rms", wide, scale, None, len(wide.shape) - 1, ctx.attr("epsilon", 1e-5))
    return ctx.cast(ctx.reshape(y, x.shape), x.dtype)


@onnx_op("HyperConnectionPreMix", domain=MS)
def hyper_connection_pre_mix(ctx: NodeContext) -> Value:
    """Import HyperConnectionPreMix: reduction_scale times the sum of gated streams."""
    x, factor = ctx.input(0), ctx.attr("reduction_scale", 1.0)
    wide = _streams(ctx, x)
    products = ctx.elementwise(lambda a, g: a * g * factor, wide, _gates(ctx, ctx.input(1), wide))
    return ctx.cast(ctx.reduce(products, "sum", (len(wide.shape) - 2,), keepdims=False), x.dtype)


@onnx_op("HyperConnectionPostMix", domain=MS)
def hyper_connection_post_mix(ctx: NodeContext) -> Value:
    """Import HyperConnectionPostMix: streams, mixed by a matrix [...,C,C] if given, plus gates times output [...,H]."""
    x, mix = ctx.input(0), ctx.get(3)
    wide = _streams(ctx, x)
    block = ctx.unsqueeze(ctx.cast(ctx.input(1), DType.FLOAT32), (len(wide.shape) - 2,))
    kept = wide if mix is None else ctx.matmul(ctx.cast(mix, DType.FLOAT32), wide, trans_a=True)
    y = ctx.elementwise(lambda a, g, b: a + g * b, kept, _gates(ctx, ctx.input(2), wide), block)
    return ctx.cast(ctx.reshape(y, x.shape), x.dtype)


@onnx_op("EngramGate", domain=MS)
def engram_gate(ctx: NodeContext) -> Result:
    """Import EngramGate: value [B,S,H] gated by similarity of keys and queries [B,S,C,H]; also normalised."""
    key, query, value = (ctx.input(i) for i in range(3))
    epsilon, axis = ctx.attr("epsilon", 1e-5), len(key.shape) - 1

    def normal(x: Value, scale: Value) -> Value:
        wide = ctx.cast(x, DType.FLOAT32)
        return normalize_trailing(ctx, "rms", wide, ctx.cast(scale, DType.FLOAT32), None, axis, epsilon)

    alike = ctx.elementwise(lambda a, b: a * b, normal(key, ctx.input(3)), normal(query, ctx.input(4)))
    dot, size = ctx.reduce(alike, "sum", (axis,)), key.shape[axis]

    def gated(d: Sym, v: Sym) -> Sym:
        like = d * size**-0.5
        root = like.call("abs").call("max", 1e-6).call("sqrt")
        signed = where(like < 0, -root, where(like.eq(0), 0.0, root))
        return signed.call("sigmoid") * v.cast(DType.FLOAT32)

    wide = ctx.elementwise(gated, dot, ctx.unsqueeze(value, (axis - 1,)))
    y = ctx.cast(wide, value.dtype)
    if not ctx.uses_output(1):
        return y
    return [y, ctx.cast(normal(wide, ctx.input(5)), value.dtype)]
