"""Operators of domain com.microsoft on hidden states with several streams (hyper-connections, Engram)."""

from __future__ import annotations

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir.dtype import DType
from ...ir.graph import Value
from ..onnx.norm import normalize_trailing
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext, Result
from .unfuse import MS


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
    """Import BranchwiseRMSNorm: RMS normalisation of each stream, in float32."""
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
