"""Matrix products of floats, and of integers minus their zero points."""

from __future__ import annotations

from ...errors import ShapeError
from ...expr.trace_function import Sym
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.integer_conv_matmul import BYTES
from ..op_registry import onnx_op
from ..shared.quantization import minus_zero_point, nonzero_zero_point
from ..walk.node_context import NodeContext


@onnx_op("MatMul", since=1)
def matmul_(ctx: NodeContext) -> Value:
    """Import MatMul: NumPy's matmul."""
    return ctx.matmul(ctx.input(0), ctx.input(1))


@onnx_op("Gemm", since=1)
def gemm(ctx: NodeContext) -> Value:
    """Import Gemm: alpha * A' B' + beta * C; A and B are transposed on request, C broadcasts and is optional since 11.

    A vector A is a matrix of one row.
    """
    a, b, c = ctx.input(0), ctx.input(1), ctx.get(2)
    if len(a.shape) == 1 and not ctx.attr("transA", 0):
        a = ctx.reshape(a, (1, *a.shape))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ShapeError(f"{ctx.label} needs two matrices, got {a.type} and {b.type}")
    product = ctx.matmul(a, b, ctx.attr("transA", False), ctx.attr("transB", False))
    return scale_and_add(ctx, product, c, ctx.attr("alpha", 1.0), ctx.attr("beta", 1.0))


def scale_and_add(ctx: NodeContext, product: Value, c: Value | None, alpha: float, beta: float) -> Value:
    """Emit alpha * product + beta * c; integers use float32 if a factor is not one."""
    dtype = product.dtype

    def scaled(v: Sym, factor: float) -> Sym:
        if factor == 1.0:
            return v
        return v * factor if dtype.is_float else (v.cast(DType.FLOAT32) * factor).cast(dtype)

    if c is None or beta == 0.0:
        return product if alpha == 1.0 else ctx.elementwise(lambda y: scaled(y, alpha), product)
    return ctx.elementwise(lambda y, z: scaled(y, alpha) + scaled(z, beta), product, c)


@onnx_op("MatMulInteger", since=10)
def matmul_integer(ctx: NodeContext) -> Value:
    """Import MatMulInteger: product of 8-bit integers minus zero points (of a per row, of b per column), in int32."""
    return integer_product(ctx, ctx.input(0), ctx.input(1), ctx.get(2), ctx.get(3))


def integer_product(ctx: NodeContext, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Value:
    """Emit (a - a_zero) (b - b_zero) in int32."""
    a_zero, b_zero = nonzero_zero_point(a_zero), nonzero_zero_point(b_zero)
    plain = (a_zero is None or a_zero.type.count == 1) and (b_zero is None or len(b_zero.shape) <= 1)
    if plain and a.dtype in BYTES and b.dtype in BYTES:
        return ctx.matmul(a, b, zeros=(a_zero, b_zero))
    left, right = (
        minus_zero_point(ctx, v, None if zero is None else by_row_or_column(ctx, zero, by_row))
        for v, zero, by_row in ((a, a_zero, True), (b, b_zero, False))
    )
    return ctx.matmul(left, right)


def by_row_or_column(ctx: NodeContext, v: Value, by_row: bool) -> Value:
    """Reshape a scale or zero point to broadcast against a matrix, along rows or columns."""
    if v.type.count == 1:
        return ctx.reshape(v, ())
    return ctx.reshape(v, (v.shape[0], 1)) if by_row and len(v.shape) == 1 else v
