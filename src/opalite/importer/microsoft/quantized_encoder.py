"""Encoders fused by onnxruntime's optimiser and quantised to 8 bits."""

from __future__ import annotations

from ...ir.graph import Value
from ...ops.affine_quantization import dequantized
from ..onnx.matmul import integer_product
from ..op_registry import onnx_op
from ..walk.node_context import NodeContext, Result
from .attention import attend_projection
from .quantized_ops import rescale_to_float
from .unfuse import MS, embed_and_normalize


@onnx_op("QAttention", domain=MS)
def qattention(ctx: NodeContext) -> Result:
    """Import QAttention: the projection is an integer product in int32, then rescaled to floats."""
    acc = integer_product(ctx, ctx.input(0), ctx.input(1), ctx.get(6), ctx.get(7))
    joint = rescale_to_float(ctx, acc, ctx.input(3), ctx.input(4), ctx.input(2))
    return attend_projection(ctx, joint, ctx.get(5), None, ctx.get(8))


@onnx_op("QEmbedLayerNormalization", domain=MS)
def qembed_layer_normalization(ctx: NodeContext) -> Result:
    """Import QEmbedLayerNormalization: 8-bit embeddings and parameters, each with scale and zero point."""

    def real(i: int) -> Value | None:
        table = ctx.get(2 + i)
        if table is None:
            return None
        scale, zero = (ctx.reshape(ctx.input(at + i), ()) for at in (8, 13))
        return ctx.elementwise(dequantized, table, scale, zero)

    return embed_and_normalize(ctx, [real(i) for i in range(5)])
