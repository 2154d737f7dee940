"""Experts that an exporter unrolled, grouped by proto/group_experts.py: operators of domain 'opalite'.

picks [T,S] are the experts of each token's slots; [T] for one slot. Rows are all pairs of a
token and a slot, in the order of the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import coord
from ...ir import Array, DType, Value
from ...ir.constants.lazy_array import LazyArray, converted
from ...ops.cumulative import Cumulative
from ..proto.graphdef import DOMAIN
from ..walk.node_context import NodeContext, onnx_op
from .low_bit_weights import matrix_of, packed_codes, unpack_bits
from .mixture_of_experts import ExpertMatrices, Held


def _picks(ctx: NodeContext, i: int) -> Value:
    """Return picks [T,S]."""
    picks = ctx.input(i)
    if len(picks.shape) not in (1, 2):
        raise ShapeError(f"{ctx.label} picks experts by {picks.type}; expected [tokens] or [tokens, slots]")
    return ctx.reshape(picks, (picks.shape[0], 1)) if len(picks.shape) == 1 else picks


@onnx_op("ExpertPairs", domain=DOMAIN)
def expert_pairs(ctx: NodeContext) -> Value:
    """Import ExpertPairs: a tensor of the size of the index of all pairs; nodes read its size alone."""
    picks = ctx.input(0)
    return ctx.full(0, DType.INT64, (len(picks.shape), math.prod(picks.shape)))


@onnx_op("ExpertRows", domain=DOMAIN)
def expert_rows(ctx: NodeContext) -> Value:
    """Import ExpertRows: repeat each token's row for its slots, along `axis`."""
    x, axis, (tokens, slots) = ctx.input(0), ctx.attr("axis"), _picks(ctx, 1).shape
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    wide = ctx.expand(ctx.reshape(x, (*before, tokens, 1, *after)), (*before, tokens, slots, *after))
    return ctx.reshape(wide, (*before, tokens * slots, *after))


@onnx_op("ExpertWeights", domain=DOMAIN)
def expert_weights(ctx: NodeContext) -> Value:
    """Import ExpertWeights: a number for each pair, [T*S, ...], or with `pairs` [T, S, ...]."""
    x = ctx.input(0)
    return ctx.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])) if ctx.attr("pairs") else x


@onnx_op("ExpertConstants", domain=DOMAIN)
def expert_constants(ctx: NodeContext) -> Value:
    """Import ExpertConstants: the vector of each pair's expert, of one constant for each expert."""
    picks = _picks(ctx, 0)
    table = np.stack([ctx.const(i).reshape(-1) for i in range(1, len(ctx.inputs))])
    return ctx.gather(ctx.constant(table), ctx.reshape(picks, (math.prod(picks.shape),)), 0)


@onnx_op("ExpertsOfRows", domain=DOMAIN)
def experts_of_rows(ctx: NodeContext) -> Value:
    """Import ExpertsOfRows: the part [R,1] that each row of x[R,...] is in, split into parts of computed sizes."""
    rows, sizes = ctx.input(0).shape[0], ctx.input(1)
    ends = ctx.add(Cumulative(kind="sum", axis=0, exclusive=False, reverse=False), [ctx.cast(sizes, DType.INT64)])
    # The number of a row's part is the number of parts that end before it.
    wide = ctx.reshape(ends, (1, ends.shape[0]))
    past = ctx.elementwise(
        lambda e: e.call("le", coord(e.builder, 0)).cast(DType.INT64), wide, shape=(rows, ends.shape[0])
    )
    return ctx.reduce(past, "sum", (1,))


@onnx_op("ExpertSum", domain=DOMAIN)
def expert_sum(ctx: NodeContext) -> Value:
    """Import ExpertSum: the sum of each token's rows."""
    rows, (tokens, slots) = ctx.input(0), _picks(ctx, 1).shape
    return ctx.reduce(ctx.reshape(rows, (tokens, slots, *rows.shape[1:])), "sum", (1,), keepdims=False)


@onnx_op("ExpertProduct", domain=DOMAIN)
def expert_product(ctx: NodeContext) -> Value:
    """Import ExpertProduct: a MatMul, Gemm or MatMulNBits with the constants of each pair's expert.

    Inputs: rows, or with `shares` a row for each token, whose axis is `axis`; picks; for each further input of the
    replaced operator, those of all experts.
    """
    x, picks, axis = ctx.input(0), _picks(ctx, 1), ctx.attr("axis")
    (tokens, slots), columns = picks.shape, x.shape[-1]
    matrices = _LAYERS[ctx.attr("kind")](ctx, ctx.attr("experts"))
    rows = ctx.reshape(x, (tokens, columns) if ctx.attr("shares") else (tokens, slots, columns))
    y = matrices.times(ctx, rows, picks)
    return ctx.reshape(y, (*(1 for _ in range(axis)), tokens * slots, y.shape[-1]))


def _of_experts(ctx: NodeContext, operand: int, experts: int) -> range:
    """Return the numbers of the inputs that hold operand `operand` (1: the first after the rows) of all experts."""
    first = 2 + (operand - 1) * experts
    return range(first, first + experts) if len(ctx.inputs) > first and ctx.get(first) is not None else range(0)


def _plain(ctx: NodeContext, experts: int) -> ExpertMatrices:
    by_rows = bool(ctx.attr("transB", 0))
    parts = []
    for i in _of_experts(ctx, 1, experts):
        held = matrix_of(ctx, i, *ctx.input(i).shape)
        parts.append(held if by_rows else _transposed(held))
    size = parts[0].shape[0]
    biases = [np.broadcast_to(ctx.const(i).reshape(-1), size) for i in _of_experts(ctx, 2, experts)]
    return ExpertMatrices(experts, _stacked(parts), np.concatenate(biases) if biases else None)


def _low_bit(ctx: NodeContext, experts: int) -> ExpertMatrices:
    rows, columns = ctx.attr("N", 0), ctx.attr("K", 0)
    bits, block = ctx.attr("bits", 4), ctx.attr("block_size", 32)
    blocks = -(-columns // block)
    codes = [packed_codes(ctx, ctx.input(i), i, rows, columns, bits) for i in _of_experts(ctx, 1, experts)]
    scales = _stacked([matrix_of(ctx, i, rows, blocks) for i in _of_experts(ctx, 2, experts)])
    zeros = [unpack_bits(ctx.const(i).reshape(rows, -1), bits)[:, :blocks] for i in _of_experts(ctx, 3, experts)]
    biases = [ctx.const(i).reshape(rows) for i in _of_experts(ctx, 5, experts)]
    halves = scales.dtype == np.float16 and ctx.input(0).dtype is DType.FLOAT16
    return ExpertMatrices(
        experts,
        _stacked(codes),
        np.concatenate(biases) if biases else None,
        bits,
        block,
        converted(scales, np.float16 if halves else np.float32),
        np.concatenate(zeros) if zeros else np.full((1, 1), 1 << (bits - 1), np.uint8),
    )


_LAYERS = {"MatMul": _plain, "Gemm": _plain, "MatMulNBits": _low_bit}


def _transposed(held: Held) -> Held:
    if not isinstance(held, LazyArray):
        return np.ascontiguousarray(held.T)

    def part(first: int, last: int) -> Array:
        return np.ascontiguousarray(held.read()[:, first:last].T)

    rows = held.shape[1]
    return LazyArray(held.dtype, held.shape[::-1], lambda: part(0, rows), load_rows=part, key=("transposed", held.key))


def _stacked(parts: Sequence[Held]) -> Held:
    """Stack matrices of equal shapes by rows, lazily if one is lazy."""
    if not any(isinstance(p, LazyArray) for p in parts):
        return np.concatenate(parts)  # type: ignore[arg-type]
    size, columns = parts[0].shape

    def part(first: int, last: int) -> Array:
        found = []
        for e in range(first // size, -(-last // size)):
            own = parts[e]
            start, stop = max(first - e * size, 0), min(last - e * size, size)
            found.append(own.read_rows(start, stop) if isinstance(own, LazyArray) else own[start:stop])
        return np.concatenate(found)

    rows = size * len(parts)
    key = ("stacked", *(p.key if isinstance(p, LazyArray) else id(p) for p in parts))
    return LazyArray(parts[0].dtype, (rows, columns), lambda: part(0, rows), load_rows=part, key=key)
