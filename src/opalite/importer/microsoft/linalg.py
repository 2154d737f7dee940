"""Linear algebra of domain com.microsoft: inverses and distances."""

from __future__ import annotations

from ...errors import ShapeError
from ...expr.trace_function import Sym, coord, where
from ...ir import DType, TensorType, Value
from ...ir.symbols import fixed
from ...ops.gather import GatherElements
from ...ops.pairwise_distance import PairwiseDistance
from ...ops.reduce import ArgReduce
from ..walk.node_context import NodeContext, onnx_op
from .unfuse import MS

MOST_ROWS = 16
"""Largest matrix, in rows, inverted on the device; each row takes six launches."""


@onnx_op("Inverse", domain=MS)
def inverse(ctx: NodeContext) -> Value:
    """Import Inverse: matrices [...,n,n] by Gauss-Jordan elimination with pivoting; large ones on the host."""
    x = ctx.input(0)
    rank = len(x.shape)
    if rank < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{ctx.label} needs square matrices, got {x.type}")
    n = fixed(x.shape[-1])
    if n == 0:
        return x
    if n > MOST_ROWS:
        return ctx.add_host("Inverse", [x], [TensorType(x.dtype, x.shape)], "large matrices are inverted by LAPACK")[0]
    wide = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    row, column = rank - 2, rank - 1
    a = ctx.cast(x, wide)
    # Rows keep their positions: `turn` is the step in which each row was the pivot (n: none so far).
    turn, places = ctx.full(n, DType.INT64, (*x.shape[:-1], 1)), []
    for step in range(n):
        found = ctx.slice_axis(a, column, step, step + 1)
        size = ctx.elementwise(lambda v, t: where(t < n, -1.0, v.call("abs")), found, turn)
        place = ctx.add(ArgReduce(kind="max", axis=row, keepdims=True, select_last=False), [size])
        places.append(place)
        chosen = ctx.elementwise(lambda v, p: where(coord(v.builder, row).eq(p), v, 0.0), a, place)
        line = ctx.reduce(chosen, "sum", (row,))
        pivot = ctx.slice_axis(line, column, step, step + 1)

        def eliminate(v: Sym, others: Sym, own: Sym, p: Sym, d: Sym, step: int = step) -> Sym:
            """Subtract the pivot row so that this column becomes zero; the column then holds the inverse's element."""
            is_column = coord(v.builder, column).eq(step)
            unit = where(is_column, 1.0, others) / d
            return where(coord(v.builder, row).eq(p), unit, where(is_column, 0.0, v) - own * unit)

        a = ctx.elementwise(eliminate, a, line, found, place, pivot)
        turn = ctx.elementwise(lambda t, p, step=step: where(coord(t.builder, row).eq(p), step, t), turn, place)
    if n > 1:
        by_row = ctx.expand(ctx.transpose(turn, (*range(row), column, row)), a.shape)
        a = ctx.add(GatherElements(axis=column), [a, by_row])
        a = ctx.add(GatherElements(axis=row), [a, ctx.expand(ctx.concat(places, row), a.shape)])
    return ctx.cast(a, x.dtype)


@onnx_op("CDist", domain=MS)
def cdist(ctx: NodeContext) -> Value:
    """Import CDist: distances of points a[M,F] from b[K,F], or their squares."""
    a, b, metric = ctx.input(0), ctx.input(1), ctx.choice("metric", "sqeuclidean", ("euclidean", "sqeuclidean"))
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"{ctx.label} needs a[M,F] and b[K,F], got {a.type} and {b.type}")
    squares = ctx.add(PairwiseDistance(power=2), [a, ctx.transpose(b, (1, 0))])
    return squares if metric == "sqeuclidean" else ctx.unary("sqrt", squares)
