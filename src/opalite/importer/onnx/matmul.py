"""Matrix products of floats, of integers minus their zero points, and by an equation (Einsum)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ModelError, ShapeError
from ...expr.trace_function import Sym
from ...ir import DType, Value
from ...ops.data_movement import Slice
from ...ops.integer_conv_matmul import BYTES
from ..walk.node_context import NodeContext, onnx_op
from .affine_quantization import minus_zero_point, nonzero_zero_point


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


# Einsum: diagonals by strided slices, then one product or broadcast multiplication per further operand


@dataclass(frozen=True)
class Term:
    """An operand with a label for each axis."""

    value: Value
    labels: tuple[str, ...]

    def size(self, label: str) -> int:
        """Return the size of axis `label`."""
        return self.value.shape[self.labels.index(label)]


@onnx_op("Einsum", since=12)
def einsum(ctx: NodeContext) -> Value:
    """Import Einsum: any equation, including ellipsis and repeated labels."""
    values = [ctx.input(i) for i in range(len(ctx.inputs))]
    dtype = values[0].dtype
    # 8- and 16-bit integers are summed in 32 bits, whose low bits are equal.
    work = DType.INT32 if dtype.is_int and dtype.size < 4 else dtype
    inputs, output = _parse(ctx, ctx.attr("equation", ""), [len(v.shape) for v in values])
    terms = [_diagonal(ctx, Term(ctx.cast(v, work), labels)) for v, labels in zip(values, inputs, strict=True)]
    sizes: dict[str, int] = {}
    for label, size in itertools.chain.from_iterable(zip(t.labels, t.value.shape, strict=True) for t in terms):
        if sizes.setdefault(label, size) not in (size, 1) and size != 1:
            raise ShapeError(f"{ctx.label} has sizes {sizes[label]} and {size} for one label")
        sizes[label] = size if size != 1 else sizes[label]
    result = terms[0]
    for i, term in enumerate(terms[1:], 1):
        needed = set(output).union(*(t.labels for t in terms[i + 1 :]))
        result = _contract(ctx, result, term, needed)
    return ctx.cast(_finish(ctx, result, output), dtype)


def _parse(ctx: NodeContext, equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the labels of every operand and of the output; ellipsis axes are '.0', '.1'... from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ModelError(f"{ctx.label} has {len(ranks)} inputs for the equation '{equation}'")
    widest = max((r - len(p) + 3 for p, r in zip(parts, ranks, strict=True) if "..." in p), default=0)

    def labels(part: str, dots: int) -> tuple[str, ...]:
        before, ellipsis, after = part.partition("...")
        middle = [f".{i}" for i in range(dots - 1, -1, -1)] if ellipsis else []
        return (*before, *middle, *after)

    inputs = [labels(p, r - len(p) + 3) for p, r in zip(parts, ranks, strict=True)]
    for found, rank, part in zip(inputs, ranks, parts, strict=True):
        if len(found) != rank:
            raise ShapeError(f"{ctx.label} has '{part}' for an input of rank {rank}")
    if arrow:
        return inputs, labels(right, widest)
    every = list(itertools.chain.from_iterable(inputs))
    once = sorted(x for x in set(every) if every.count(x) == 1 and not x.startswith("."))
    return inputs, (*labels("...", widest), *once)


def _diagonal(ctx: NodeContext, term: Term) -> Term:
    """Reduce each repeated label to one axis: the diagonal is every (n+1)-th element of the two axes joined."""
    for label in term.labels:
        if term.labels.count(label) < 2:
            continue
        first = term.labels.index(label)
        second = term.labels.index(label, first + 1)
        rest = [i for i in range(len(term.labels)) if i not in (first, second)]
        v = ctx.transpose(term.value, (*rest, first, second))
        n = v.shape[-1]
        if v.shape[-2] != n:
            raise ShapeError(f"{ctx.label} has sizes {v.shape[-2]} and {n} for label '{label}' of one input")
        lead = v.shape[:-2]
        flat = ctx.reshape(v, (*lead, n * n))
        v = ctx.add(Slice(starts=(0,) * len(flat.shape), steps=(*(1,) * len(lead), n + 1), sizes=(*lead, n)), [flat])
        return _diagonal(ctx, Term(v, (*(term.labels[i] for i in rest), label)))
    return term


def _drop(ctx: NodeContext, term: Term, labels: set[str]) -> Term:
    """Remove axes of size 1 with `labels`."""
    kept = [i for i, x in enumerate(term.labels) if x not in labels]
    shape = [term.value.shape[i] for i in kept]
    return Term(ctx.reshape(term.value, shape), tuple(term.labels[i] for i in kept))


def _sum_out(ctx: NodeContext, term: Term, needed: set[str]) -> Term:
    """Sum over labels that are not needed."""
    axes = [i for i, x in enumerate(term.labels) if x not in needed]
    value = ctx.reduce(term.value, "sum", axes, keepdims=False)
    return Term(value, tuple(x for x in term.labels if x in needed))


def _contract(ctx: NodeContext, a: Term, b: Term, needed: set[str]) -> Term:
    """Multiply two terms and sum over the labels that are not needed later."""
    shared = [x for x in a.labels if x in b.labels]
    # An axis of size 1 broadcasts against a larger one: the label is dropped from that operand.
    a, b = (
        _drop(ctx, a, {x for x in shared if a.size(x) == 1 != b.size(x)}),
        _drop(ctx, b, {x for x in shared if b.size(x) == 1 != a.size(x)}),
    )
    a = _sum_out(ctx, a, needed.union(b.labels))
    b = _sum_out(ctx, b, needed.union(a.labels))
    shared = [x for x in a.labels if x in b.labels]
    batch = [x for x in shared if x in needed]
    summed = [x for x in shared if x not in needed]
    only_a = [x for x in a.labels if x not in shared]
    only_b = [x for x in b.labels if x not in shared]
    labels = (*batch, *only_a, *only_b)
    if not summed:
        spread_a = _arrange(ctx, a, (*batch, *only_a), (1,) * len(only_b))
        spread_b = _arrange(ctx, b, (*batch, *only_b), ())
        spread_b = ctx.reshape(
            spread_b, (*spread_b.shape[: len(batch)], *(1,) * len(only_a), *spread_b.shape[len(batch) :])
        )
        return Term(ctx.elementwise(lambda x, y: x * y, spread_a, spread_b), labels)
    left, trans_a = _matrix(ctx, a, batch, only_a, summed)
    right, b_turned = _matrix(ctx, b, batch, only_b, summed)
    out = ctx.matmul(left, right, trans_a, not b_turned)
    shape = (*(a.size(x) for x in (*batch, *only_a)), *(b.size(x) for x in only_b))
    return Term(ctx.reshape(out, shape), labels)


def _arrange(ctx: NodeContext, term: Term, order: Sequence[str], tail: tuple[int, ...]) -> Value:
    v = ctx.transpose(term.value, [term.labels.index(x) for x in order])
    return ctx.reshape(v, (*v.shape, *tail))


def _matrix(
    ctx: NodeContext, term: Term, batch: Sequence[str], own: Sequence[str], summed: Sequence[str]
) -> tuple[Value, bool]:
    """Return the term as [batch..., own, summed]; or as [batch..., summed, own] and true if that needs no transpose."""
    turned = tuple(term.labels) == (*batch, *summed, *own)
    order = (*batch, *summed, *own) if turned else (*batch, *own, *summed)
    v = ctx.transpose(term.value, [term.labels.index(x) for x in order])
    rows, columns = (math.prod(term.size(x) for x in part) for part in (own, summed))
    tail = (columns, rows) if turned else (rows, columns)
    return ctx.reshape(v, (*(term.size(x) for x in batch), *tail)), turned


def _finish(ctx: NodeContext, term: Term, output: Sequence[str]) -> Value:
    """Sum the term and transpose it to the output's order; ellipsis axes of the output only have size 1."""
    term = _sum_out(ctx, term, set(output))
    missing = [x for x in output if x not in term.labels]
    if any(not x.startswith(".") for x in missing):
        raise ModelError(f"{ctx.label} has output labels {missing} that no input has")
    value = ctx.reshape(term.value, (*(1,) * len(missing), *term.value.shape))
    labels = (*missing, *term.labels)
    return ctx.transpose(value, [labels.index(x) for x in output])
