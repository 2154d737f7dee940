"""Importers of conversions between element types."""

from __future__ import annotations

from ...ir import Value
from ...ir.constants.lazy_array import converted
from ..walk.node_context import NodeContext
from .common import out_dtype, tflite_op


@tflite_op("DEQUANTIZE")
def dequantize(ctx: NodeContext) -> Value:
    """Import DEQUANTIZE of halves, which stay in the file until they are used."""
    x, dtype = ctx.input(0), out_dtype(ctx)
    if x.lazy_data is not None:
        return ctx.constant(converted(x.lazy_data, dtype.np))
    return ctx.cast(x, dtype)


@tflite_op("DENSIFY")
def densify(ctx: NodeContext) -> Value:
    """Import DENSIFY: sparse tensors are dense once they are read."""
    return ctx.input(0)
