"""Importers of constants, ranges and random numbers."""

from __future__ import annotations

from ...errors import ShapeError
from ...ir import DType, Value
from ...ir.rng_seed import next_seed
from ...ops.random import Random
from ..proto.decode import elem_code
from ..walk.node_context import NodeContext
from .common import one, out_dtype, tflite_op


@tflite_op("FILL", moves=True)
def fill(ctx: NodeContext) -> Value:
    """Import FILL: a tensor of the shape in input 0 of the number in input 1."""
    shape = ctx.const_ints(0)
    if any(d < 0 for d in shape):
        raise ShapeError(f"{ctx.label} has the shape {shape}; sizes must not be negative")
    return ctx.expand(ctx.reshape(ctx.input(1), (1,) * len(shape)), shape)


@tflite_op("RANGE")
def range_(ctx: NodeContext) -> Value:
    """Import RANGE: from input 0 to before input 1 by input 2."""
    return one(ctx.onnx("Range", [ctx.input(0), ctx.input(1), ctx.input(2)]))


@tflite_op("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def random(ctx: NodeContext) -> Value:
    """Import RANDOM_UNIFORM, in [0, 1), and RANDOM_STANDARD_NORMAL; the numbers are not LiteRT's."""
    kind = "uniform" if ctx.op_type == "RANDOM_UNIFORM" else "normal"
    given = (int(ctx.attr("seed", 0)) & 0xFFFFFFFF) << 32 | int(ctx.attr("seed2", 0)) & 0xFFFFFFFF
    dtype, shape = out_dtype(ctx), tuple(ctx.const_ints(0))
    op = Random(kind=kind, shape=shape, low=0.0, high=1.0, mean=0.0, scale=1.0, seed=given or next_seed(), dtype=dtype)
    return ctx.add(op, [])


@tflite_op("MULTINOMIAL")
def multinomial(ctx: NodeContext) -> Value:
    """Import MULTINOMIAL: classes drawn by the logarithms of their chances."""
    count, dtype = int(ctx.const_scalar(1)), out_dtype(ctx)
    drawn = one(ctx.onnx("Multinomial", [ctx.input(0)], sample_size=count, dtype=elem_code(DType.INT32)))
    return ctx.cast(drawn, dtype)
