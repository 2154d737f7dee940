"""State-space and linear attention layers of domain com.microsoft (Mamba, LFM2, DeltaNet), and multimodal RoPE."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import where
from ...ir.dtype import DType
from ...ir.graph import Value
from ..onnx.activation import softplus_of, swish_of
from ..onnx.attention import linear_attention, rotate
from ..onnx.conv import convolve_causally
from ..onnx.norm import normalize_trailing
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext, Result
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
    kind, width = ctx.attr("activation", "silu"), scale.shape[0]
    if kind not in ("silu", "swish", "sigmoid"):
        raise UnsupportedOpError(f"{ctx.label} has activation '{kind}'; known are silu, swish and sigmoid")
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
