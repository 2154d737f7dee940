"""MoE and QMoE of domain com.microsoft: a router selects experts for each token and sums their outputs by weight.

The weights follow onnxruntime's CPU provider. MoE: softmax of the scores over all experts; `normalize_routing_weights`
divides the selected ones by their sum. QMoE: softmax over the selected experts, whatever that attribute says, unless
`router_weights` is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...expr.trace_function import Sym, where
from ...ir import Array, DType, Value
from ...ir.constants.lazy_array import LazyArray, converted
from ...ops.expert_matmul import ExpertMatMul
from ...ops.gather import GatherElements
from ...ops.quantized_matmul import BITS
from ...ops.scatter import ScatterElements
from ...ops.topk import TopK
from ..onnx.activation import gelu_tanh, swish_of
from ..walk.node_context import NodeContext, Result, onnx_op
from .low_bit_weights import matrix_of, packed_codes, unpack_bits
from .unfuse import MS

Held = Array | LazyArray


class ExpertMatrices(NamedTuple):
    """Matrices of all experts in one layer, stacked by rows.

    weights: [experts * rows, columns], floats, or integers of `bits` bits with `scales` and `zeros` for each row and
    block of columns. bias: one number per row.
    """

    experts: int
    weights: Held
    bias: Held | None
    bits: int = 0
    block: int = 0
    scales: Held | None = None
    zeros: Array | None = None

    def half(self, which: int, interleaved: bool) -> ExpertMatrices:
        """Return every other row, or the first or second half of each expert's rows."""

        def of(held: Held | None) -> Held | None:
            return held if held is None or held.shape == (1, 1) else _half(held, self.experts, which, interleaved)

        zeros = of(self.zeros)
        assert not isinstance(zeros, LazyArray)
        weights = of(self.weights)
        assert weights is not None
        return self._replace(weights=weights, bias=of(self.bias), scales=of(self.scales), zeros=zeros)

    def times(self, ctx: NodeContext, x: Value, picks: Value) -> Value:
        """Multiply x, [T, columns] or [T, slots, columns], by the matrices of `picks`: [T, slots, rows]."""
        parts = [None if a is None else ctx.constant(a) for a in (self.weights, self.bias, self.scales, self.zeros)]
        return ctx.add(ExpertMatMul(self.experts, self.bits, self.block), [x, picks, *parts])


def _half(held: Held, experts: int, which: int, interleaved: bool) -> Held:
    """Return half of each expert's rows: every other one from `which` on, or half number `which`."""
    rows, rest = held.shape[0] // 2, held.shape[1:]
    size = rows // experts
    if not isinstance(held, LazyArray):
        split = (experts, size, 2, *rest) if interleaved else (experts, 2, size, *rest)
        of_each = held.reshape(split)
        return np.ascontiguousarray(of_each[:, :, which] if interleaved else of_each[:, which]).reshape(rows, *rest)

    def part(first: int, last: int) -> Array:
        if interleaved:
            return np.ascontiguousarray(held.read_rows(2 * first, 2 * last)[which::2])
        found = []
        for e in range(first // size, -(-last // size)):
            skipped = (e + which) * size  # rows of other halves before these
            found.append(held.read_rows(max(first, e * size) + skipped, min(last, (e + 1) * size) + skipped))
        return np.concatenate(found)

    key = (held.key, experts, which, interleaved)
    return LazyArray(held.dtype, (rows, *rest), lambda: part(0, rows), load_rows=part, key=key)


@onnx_op("MoE", domain=MS)
def moe(ctx: NodeContext) -> Value:
    """Import MoE: experts in floats."""
    scores = _scores(ctx)
    if ctx.attr("normalize_routing_weights", 0):
        weights, picks = _top_k(ctx, scores)
        weights = ctx.softmax(weights)
    else:
        weights, picks = _top_k(ctx, ctx.softmax(scores))

    def layer(number: int) -> ExpertMatrices | None:
        at = 2 * number  # inputs 2 and 3 belong to fc1
        given = ctx.get(at)
        if given is None:
            return None
        experts, rows, columns = _checked(ctx, given, number, given.type.count)
        return ExpertMatrices(experts, matrix_of(ctx, at, experts * rows, columns), _bias(ctx, at + 1, experts * rows))

    return _mix_experts(ctx, picks, weights, layer)


@onnx_op("QMoE", domain=MS)
def quantized_moe(ctx: NodeContext) -> Value:
    """Import QMoE: experts in 2, 4 or 8 bits, which stay quantised."""
    kind = ctx.attr("quant_type", "int")
    if kind != "int" or any(ctx.get(i) is not None for i in range(15, 21)):
        raise UnsupportedOpError(
            f"{ctx.label} has experts of quant_type '{kind}' or with global scales; export integers of 2, 4 or 8 bits "
            "(quant_type 'int')"
        )
    if ctx.attr("weights_prepacked", -1) > 0:
        raise UnsupportedOpError(f"{ctx.label} has weights packed for one device; export weights_prepacked=0")
    picks, weights = _route(ctx, _scores(ctx), ctx.get(14))

    def layer(number: int) -> ExpertMatrices | None:
        at = 3 * number - 1
        given = ctx.get(at)
        if given is None:
            return None
        bits = ctx.attr(f"fc{number}_expert_weight_bits", 0) or ctx.attr("expert_weight_bits", 4)
        if bits not in BITS:
            raise UnsupportedOpError(f"{ctx.label} has experts of {bits} bits; export 2, 4 or 8 bits")
        experts, rows, columns = _checked(ctx, given, number, given.type.count * (8 // bits))
        lines, block = experts * rows, ctx.attr("block_size", 0)
        block = block if block > 0 else columns
        blocks, scales = -(-columns // block), ctx.get(at + 1)
        if scales is None or scales.type.count != lines * blocks:
            raise ShapeError(
                f"{ctx.label} has scales {None if scales is None else scales.type} of fc{number}; expected "
                f"{[experts, rows, blocks]} for {rows} rows of {columns} in blocks of {block}"
            )
        halves = scales.dtype is DType.FLOAT16 and ctx.input(0).dtype is DType.FLOAT16
        return ExpertMatrices(
            experts,
            packed_codes(ctx, given, at, lines, columns, bits),
            _bias(ctx, at + 2, lines),
            bits,
            block,
            converted(matrix_of(ctx, at + 1, lines, blocks), np.float16 if halves else np.float32),
            _zeros(ctx, 10 + number, experts, rows, blocks, bits),
        )

    return _mix_experts(ctx, picks, weights, layer)


def _checked(ctx: NodeContext, given: Value, number: int, count: int) -> tuple[int, int, int]:
    """Return (experts, rows of each, columns) of layer `number`, whose weights hold `count` numbers."""
    shape = given.shape
    if len(shape) != 3 or 0 in shape:
        raise ShapeError(f"{ctx.label} has weights {given.type} of fc{number}; expected [experts, rows, columns]")
    columns = count // (shape[0] * shape[1])
    hidden = ctx.input(0).shape[-1]
    wrong = shape[1] != hidden if number == 2 else columns != hidden
    if wrong or ctx.input(1).shape[-1] != shape[0]:
        raise ShapeError(
            f"{ctx.label} has weights {given.type} of fc{number}, of {shape[0]} experts with {shape[1]} rows of "
            f"{columns}, for x {ctx.input(0).type} and scores {ctx.input(1).type}"
        )
    return shape[0], shape[1], columns


def _bias(ctx: NodeContext, i: int, rows: int) -> Held | None:
    return None if ctx.get(i) is None else ctx.const(i).reshape(rows)


def _zeros(ctx: NodeContext, i: int, experts: int, rows: int, blocks: int, bits: int) -> Array:
    """Return zero points, packed like the weights along blocks or rows; by default the middle of the range."""
    if ctx.get(i) is None:
        return np.full((1, 1), 1 << (bits - 1), np.uint8)
    given = ctx.const(i)
    if given.ndim == 2:
        return unpack_bits(given, bits)[:, :rows].reshape(experts * rows, 1)
    return unpack_bits(given.reshape(experts * rows, -1), bits)[:, :blocks]


# Routing


def _scores(ctx: NodeContext) -> Value:
    """Return the router's scores [T, experts]."""
    if ctx.attr("use_sparse_mixer", 0):
        raise UnsupportedOpError(f"{ctx.label} uses use_sparse_mixer, which is not supported; export the model without")
    scores, tokens = ctx.input(1), math.prod(ctx.input(0).shape[:-1])
    return ctx.reshape(scores, (tokens, scores.shape[-1]))


def _top_k(ctx: NodeContext, scores: Value) -> tuple[Value, Value]:
    """Return (values, indices) of the k highest scores, [T, k]."""
    k, experts = ctx.attr("k", 1), scores.shape[-1]
    if not 1 <= k <= experts:
        raise ShapeError(f"{ctx.label} picks k={k} of {experts} experts")
    values, picks = ctx.add_many(TopK(k=k, axis=1, largest=True, sorted=True), [scores], 2)
    return values, picks


def _route(ctx: NodeContext, scores: Value, given: Value | None) -> tuple[Value, Value]:
    """Return (selected experts, weights) of QMoE."""
    best, picks = _top_k(ctx, scores)
    if given is None:
        return picks, ctx.softmax(best)
    weights = ctx.add(GatherElements(axis=1), [ctx.reshape(given, scores.shape), picks])
    if ctx.attr("normalize_routing_weights", 0):
        total = ctx.reduce(weights, "sum", (1,))
        weights = ctx.elementwise(lambda w, t: w / t, weights, total)
    return picks, weights


# Layers


def _mix_experts(
    ctx: NodeContext, picks: Value, weights: Value, layer: Callable[[int], ExpertMatrices | None]
) -> Value:
    """Emit both layers of the experts with their activation, and the weighted sum, in x's shape."""
    x, (tokens, slots) = ctx.input(0), picks.shape
    rows = ctx.reshape(x, (tokens, x.shape[-1]))
    up, down = layer(1), layer(2)
    if up is None or down is None:
        raise ShapeError(f"{ctx.label} needs the weights of fc1 and fc2")
    inner = _activate(ctx, rows, picks, up, layer(3))
    y = down.times(ctx, inner, picks)
    weighted = ctx.elementwise(lambda v, w: v * w, y, ctx.reshape(weights, (tokens, slots, 1)))
    return ctx.reshape(ctx.reduce(weighted, "sum", (1,), keepdims=False), x.shape)


def _activate(ctx: NodeContext, x: Value, picks: Value, first: ExpertMatrices, third: ExpertMatrices | None) -> Value:
    """Return [T, slots, inner]: the first layer, gated by the third, or by half of itself."""
    name, fusion = ctx.attr("activation_type", "relu"), ctx.attr("swiglu_fusion", 0)
    functions = _gate_functions(ctx)
    if name not in functions or (name == "geglu" and fusion == 0):
        raise UnsupportedOpError(
            f"{ctx.label} has activation_type '{name}' with swiglu_fusion={fusion}; known are {', '.join(functions)}, "
            "geglu with swiglu_fusion 1 or 2"
        )
    if name in ("swiglu", "geglu") and fusion:
        if third is not None or first.weights.shape[0] // first.experts % 2:
            raise ShapeError(f"{ctx.label} has swiglu_fusion={fusion}: fc1 has gates and values, and there is no fc3")
        first, third = (first.half(i, fusion == 1) for i in (0, 1))
    elif name == "swiglu" and third is None:
        raise ShapeError(f"{ctx.label} has swiglu_fusion=0, but no fc3")
    function = functions[name]
    gate = first.times(ctx, x, picks)
    value = None if third is None else third.times(ctx, x, picks)
    return ctx.elementwise(lambda v, g: function(g, v), value, gate)


def _gate_functions(ctx: NodeContext) -> dict[str, Callable[[Sym, Sym | None], Sym]]:
    """Return each activation as a function of a gate and an optional gated value."""
    alpha, beta = ctx.attr("activation_alpha", 1.0), ctx.attr("activation_beta", 0.0)
    limit, later = ctx.attr("swiglu_limit", math.inf), ctx.attr("swiglu_limit_after_activation", False)

    def gated(function: Callable[[Sym], Sym]) -> Callable[[Sym, Sym | None], Sym]:
        return lambda g, v: function(g) if v is None else function(g) * v

    def swiglu(g: Sym, v: Sym | None) -> Sym:
        assert v is not None
        if math.isfinite(limit):
            v = v.call("max", -limit).call("min", limit)
            g = swish_of(g, alpha).call("min", limit) if later else swish_of(g.call("min", limit), alpha)
        else:
            g = swish_of(g, alpha)
        return g * (v + beta if beta else v)

    def relu(g: Sym) -> Sym:
        return g.call("max", 0)

    return {
        "relu": gated(relu),
        "relu2": gated(lambda g: relu(g) * relu(g)),
        "gelu": gated(gelu_tanh),
        "geglu": gated(gelu_tanh),
        "silu": gated(lambda g: swish_of(g, 1.0)),
        "swiglu": swiglu,
        "identity": gated(lambda g: g),
    }


# Group router of experts (DeepSeek-V3 and similar models)

_HIDDEN = -3.0e38  # score of an expert outside the selected groups
_LEAST = 1e-20  # lower bound of a weight before the logarithm


@onnx_op("MoEGroupRouter", domain=MS)
def moe_group_router(ctx: NodeContext) -> Result:
    """Import MoEGroupRouter: log weights of the experts selected for each row, `router_sentinel` for others.

    If outputs 1 or 2 are used, these are the scores and weights of all experts before the selection.
    """
    logits, bias, projection = ctx.input(0), ctx.cast(ctx.input(1), DType.FLOAT32), ctx.get(2)
    dtype, experts = logits.dtype, bias.shape[0]
    wide = ctx.cast(logits, DType.FLOAT32)
    if projection is not None:
        wide = ctx.matmul(wide, ctx.cast(projection, DType.FLOAT32), trans_b=True)
    rows = wide.type.count // wide.shape[-1]
    weights = ctx.elementwise(lambda x: x.call("sigmoid"), ctx.reshape(wide, (rows, experts)))
    scores = ctx.elementwise(lambda w, b: w + b, weights, bias)
    if ctx.uses_output(1) or ctx.uses_output(2):
        return [None, scores, weights][: ctx.n_outputs]
    groups, kept = ctx.attr("n_group", 1), ctx.attr("topk_group", 1)
    if experts % groups or not 1 <= kept <= groups:
        raise ShapeError(f"{ctx.label} chooses {kept} of {groups} groups of {experts} experts")
    if kept < groups:
        members = experts // groups
        parts = ctx.reshape(scores, (rows, groups, members))
        count = min(ctx.attr("group_topk", 2), members)
        best = ctx.add_many(TopK(k=count, axis=2, largest=True, sorted=True), [parts], 2)[0]
        chosen = _top_mask(ctx, ctx.reduce(best, "sum", (2,), keepdims=False), kept)
        scores = ctx.elementwise(lambda c, s: where(c > 0.0, s, _HIDDEN), ctx.unsqueeze(chosen, (2,)), parts)
        scores = ctx.reshape(scores, (rows, experts))
    chosen = _top_mask(ctx, scores, ctx.attr("top_k", 1))
    sentinel = ctx.attr("router_sentinel", -10000.0)
    y = ctx.elementwise(lambda c, w: where(c > 0.0, w.call("max", _LEAST).call("log"), sentinel), chosen, weights)
    return ctx.cast(y, dtype)


def _top_mask(ctx: NodeContext, scores: Value, count: int) -> Value:
    """Return 1 for the best `count` of each row of scores [R,N], 0 for others."""
    places = ctx.add_many(TopK(k=count, axis=1, largest=True, sorted=True), [scores], 2)[1]
    ones = ctx.expand(ctx.scalar(1.0, DType.FLOAT32), places.shape)
    none = ctx.full(0.0, DType.FLOAT32, scores.shape)
    return ctx.add(ScatterElements(axis=1, reduction="none"), [none, places, ones])
