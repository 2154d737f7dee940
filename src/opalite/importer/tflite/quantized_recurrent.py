"""Importers of LSTM and SVDF on int8, whose cells and gates are numbers of 16 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import ShapeError
from ...expr.trace_function import Sym, where
from ...ir import Array, DType, Value
from ..walk.node_context import NodeContext
from .common import tensors_of, unsupported
from .fixed_point import fixed_multiplier, inverse_root, rescale, scaled
from .fixed_point_16 import ONE, rounded_shift, saturated, sigmoid_16, tanh_16
from .quantization import Affine, affine, levels_of, rescaled
from .recurrent import Lstm, next_states, steps_first, tensors_at

_GATE = Affine(np.float32(2.0**-12), 0, DType.INT32)
"""Gates before their activation: three bits before the point. Kernels hold numbers of 16 bits in 32."""

_GATE_ENDS = (-32768, 32767)

_CELL, _OUTPUT, _GATES = 2, 3, 4


@dataclass(frozen=True)
class _Norm:
    """Layer normalisation of a gate: weights, bias, real factor and the variance of a row without any."""

    weights: Value
    bias: Value
    factor: float
    guard: int


@dataclass(frozen=True)
class _Layer:
    """An LSTM on int8. Lists are by gate: input, forget, cell, output; None where a tensor is absent."""

    p: Lstm
    from_h: Value
    from_h_bias: Value
    from_h_factors: Array
    peepholes: Sequence[tuple[Value, float] | None]
    norms: Sequence[_Norm | None]
    cell_bits: int  # before the point of the cell
    cell_clip: int
    hidden: Affine
    state: Affine
    projection: tuple[float, int] | None  # factor of the sums, and where the result is clipped


def integer_lstm(ctx: NodeContext) -> list[Value]:
    """Import UNIDIRECTIONAL_SEQUENCE_LSTM, or a step of LSTM, of int8 by weights of int8."""
    one_step = ctx.op_type == "LSTM"
    if one_step and ctx.attr("kernel_type", 0) == 1:
        raise unsupported(ctx, "has uint8 in LSTM's short form; float32, or the full form on int8, is expected")
    x = ctx.input(0)
    x = ctx.reshape(x, (1, *x.shape)) if one_step else steps_first(ctx, x)
    p = tensors_at(ctx, 1, 18, 20)
    if any(v is None for v in (*p.w[1:], *p.r[1:])) or (p.w[0] is None) != (p.r[0] is None):
        raise ShapeError(f"{ctx.label} lacks weights of a gate")
    layer, from_x = _layer(ctx, x, p)
    h, c = p.h, ctx.cast(p.c, DType.INT32)
    outs: list[Value] = []
    for t in range(x.shape[0]):
        h, c = _step(ctx, layer, ctx.squeeze(ctx.slice_axis(from_x, 0, t, t + 1), (0,)), h, c)
        outs.append(ctx.unsqueeze(h, (0,)))
    y = ctx.concat(outs, 0)
    y = ctx.squeeze(y, (0,)) if one_step else steps_first(ctx, y)
    return [y, *next_states(ctx, {18: h, 19: ctx.cast(c, DType.INT16)})]


def _layer(ctx: NodeContext, x: Value, p: Lstm) -> tuple[_Layer, Value]:
    """Return the layer, and what its gates get of x[T,B,I]."""
    given, state, cell = affine(ctx, 0), affine(ctx, 18), affine(ctx, 19)
    between = _intermediates(ctx)
    there = [k for k in range(_GATES) if p.w[k] is not None]
    normed = p.norms[_CELL] is not None
    gates = [np.float32(between[k].scale) if normed else _GATE.scale for k in range(_GATES)]
    bits = math.log2(float(cell.scale)) + 15
    if cell.zero or bits != round(bits) or not 0 <= bits <= 6:
        raise unsupported(ctx, f"has a cell of the scale {cell.scale}; powers of two from 2^-15 to 2^-9 are expected")

    def factors(first: int, scale: np.float32) -> Array:
        found = [float(affine(ctx, first + k).scale * scale / gates[k]) for k in there]
        return np.repeat(np.array(found), p.c.shape[1])

    def joined(parts: Sequence[Value | None]) -> Value:
        return ctx.concat([v for v in parts if v is not None], 0)

    w, r = joined(p.w), joined(p.r)
    sums = ctx.matmul(x, w, trans_b=True, zeros=(None, None))
    bias = _less_zero(ctx, w, -given.zero, None if normed else joined([p.biases[k] for k in there]))
    from_x = rescaled(ctx, ctx.plus(sums, bias), factors(1, given.scale), 2, _GATE, _GATE_ENDS)

    def peephole(k: int, i: int) -> tuple[Value, float] | None:
        held = ctx.get(i)
        if held is None:
            return None
        return ctx.cast(held, DType.INT32), float(
            np.float32(2.0 ** (bits - 15) * float(affine(ctx, i).scale) / float(gates[k]))
        )

    def norm(k: int) -> _Norm | None:
        weights, bias = p.norms[k], p.biases[k]
        if weights is None or bias is None:
            return None
        scale = affine(ctx, 20 + k).scale
        return _Norm(ctx.cast(weights, DType.INT32), bias, float(scale), max(1, int(np.float32(10000) * scale)))

    hidden, projection = between[4], None
    if p.projection is not None:
        factor = float(affine(ctx, 16).scale * hidden.scale / state.scale)
        out_scale = levels_of(ctx, tensors_of(ctx).outputs[0], "output 0").scale[0]
        projection = factor, _clip(ctx, "proj_clip", out_scale, 127)
    return _Layer(
        p,
        r,
        _less_zero(ctx, r, -state.zero, None),
        factors(5, state.scale),
        [peephole(0, 9), peephole(1, 10), None, peephole(3, 11)],
        [norm(k) for k in range(_GATES)],
        round(bits),
        _clip(ctx, "cell_clip", cell.scale, ONE),
        hidden,
        state,
        projection,
    ), from_x


def _intermediates(ctx: NodeContext) -> list[Affine]:
    """Return the scales of what the node computes on the way: four gates, then the hidden values."""
    found = tensors_of(ctx).intermediates
    if len(found) != 5:
        raise unsupported(ctx, f"has {len(found)} intermediate tensors; 5, of gates of 16 bits, are expected")
    scales = []
    for k, t in enumerate(found):
        if t.quantization is None:  # gates without layer normalisation have none
            scales.append(_GATE)
            continue
        levels = levels_of(ctx, t, f"intermediate {k}")
        scales.append(Affine(np.float32(levels.scale[0]), int(levels.zero_point[0]), DType.INT8))
    return scales


def _clip(ctx: NodeContext, name: str, scale: np.float32, most: int) -> int:
    """Return where integers of that scale are clipped; 0 for nowhere."""
    return min(most, int(np.float32(ctx.attr(name, 0.0)) / np.float32(scale)))


def _less_zero(ctx: NodeContext, w: Value, zero: int, bias: Value | None) -> Value:
    """Return the bias, plus `zero` times the sum of each row of w."""
    rows = ctx.reduce(ctx.cast(w, DType.INT32), "sum", (1,), keepdims=False)
    return ctx.plus(ctx.elementwise(lambda s: s * zero, rows), bias)


def _step(ctx: NodeContext, layer: _Layer, now: Value, h: Value, c: Value) -> tuple[Value, Value]:
    """Emit one step from what the gates get of x: the next h and c."""
    p = layer.p
    sums = ctx.plus(ctx.matmul(h, layer.from_h, trans_b=True, zeros=(None, None)), layer.from_h_bias)
    more = rescaled(ctx, sums, layer.from_h_factors, 1, _GATE, _GATE.ends)
    both = ctx.elementwise(lambda a, b: saturated(a + b), now, more)
    there = [k for k in range(_GATES) if p.w[k] is not None]
    parts = dict(zip(there, ctx.split_axis(both, 1, (c.shape[1],) * len(there)), strict=True))

    def gate(k: int, cell: Value) -> Value:
        v, peephole, norm = parts[k], layer.peepholes[k], layer.norms[k]
        if peephole is not None:
            weights, factor = peephole
            v = ctx.elementwise(lambda a, w, s: saturated(a + scaled(w * s, factor)), v, weights, cell)
        return v if norm is None else _normalized(ctx, v, norm)

    def renewed(old: Sym, f: Sym, g: Sym, i: Sym | None) -> Sym:
        forget = sigmoid_16(f)
        into = ONE - forget if i is None else sigmoid_16(i)
        kept = rounded_shift(forget * old, 15)
        new = rounded_shift(into * tanh_16(g, 3), 15 + layer.cell_bits).cast(DType.INT16).cast(DType.INT32)
        total = saturated(kept + new)
        if layer.cell_clip:
            total = total.call("max", -layer.cell_clip).call("min", layer.cell_clip)
        return total

    c = ctx.elementwise(renewed, c, gate(1, c), gate(_CELL, c), gate(0, c) if 0 in parts else None)
    # The zero point's sign is turned before a projection.
    zero = layer.hidden.zero if layer.projection is None else -layer.hidden.zero
    factor = float(np.float32(2.0**-15 / float(layer.hidden.scale) * 2.0**-15))

    def shown(o: Sym, s: Sym) -> Sym:
        whole = scaled(sigmoid_16(o) * tanh_16(s, layer.cell_bits), factor) + zero
        return whole.call("max", -128).call("min", 127).cast(DType.INT8)

    h = ctx.elementwise(shown, gate(_OUTPUT, c), c)
    return (h if layer.projection is None else _projected(ctx, layer, h, layer.projection)), c


def _projected(ctx: NodeContext, layer: _Layer, h: Value, by: tuple[float, int]) -> Value:
    weights, (factor, clip) = layer.p.projection, by
    assert weights is not None, "there is a projection"
    bias = _less_zero(ctx, weights, layer.hidden.zero, layer.p.projection_bias)
    sums = ctx.plus(ctx.matmul(h, weights, trans_b=True, zeros=(None, None)), bias)
    ends = (-128, 127)
    y = rescaled(ctx, sums, np.array([factor]), 1, Affine(layer.state.scale, layer.state.zero, DType.INT8), ends)
    return ctx.elementwise(lambda v: v.call("max", -clip).call("min", clip), y) if clip else y


def _normalized(ctx: NodeContext, v: Value, norm: _Norm) -> Value:
    """Return the rows of a gate with mean 0 and variance 1, times weights, plus a bias, as a gate."""
    count = v.shape[1]
    total = ctx.reduce(v, "sum", (1,))
    squares = ctx.reduce(ctx.elementwise(lambda a: a.cast(DType.INT64) * a.cast(DType.INT64), v), "sum", (1,))
    mean = ctx.elementwise(lambda s: (s.cast(DType.INT64) * 1024).call("div", count).cast(DType.INT32), total)

    def variance(q: Sym, m: Sym) -> Sym:
        wide = q * ((1 << 20) // count) - m.cast(DType.INT64) * m.cast(DType.INT64)
        whole = wide.call("div", 1 << 20).cast(DType.INT32)
        return where(whole < 1, norm.guard, whole)

    multiplier, shift = fixed_multiplier(norm.factor)

    def unit(a: Sym, m: Sym, s: Sym, w: Sym, b: Sym) -> Sym:
        y = rescale(a * 1024 - m, *inverse_root(s)) * w + b
        y = where(y > 0, y + 512, y - 512).call("div", 1024)
        return saturated(rescale(y, multiplier, shift + 12))

    spread = ctx.elementwise(variance, squares, mean)
    return ctx.elementwise(unit, v, mean, spread, norm.weights, norm.bias)


def integer_svdf(ctx: NodeContext) -> list[Value]:
    """Import SVDF of int8 with a state and weights over time of int16."""
    x, feature, time, bias, state = ctx.input(0), ctx.input(1), ctx.input(2), ctx.get(3), ctx.input(4)
    if int(ctx.attr("fused_activation_function", 0)) != 1:
        raise unsupported(ctx, "has another activation than RELU, which it must have on int8")
    if time.dtype is not DType.INT16 or state.dtype is not DType.INT16:
        raise unsupported(ctx, f"has weights over time of {time.dtype} and a state of {state.dtype}; int16 is expected")
    rank, (filters, memory) = int(ctx.attr("rank", 1)), time.shape
    batch = x.shape[0]
    if rank < 1 or filters % rank or state.type.count != batch * filters * memory:
        raise ShapeError(f"{ctx.label} has rank {rank}, weights {time.type} and state {state.type}")
    given, by, over, held_in = (affine(ctx, i) for i in (0, 1, 2, 4))
    out = levels_of(ctx, tensors_of(ctx).outputs[0], "output 0")
    sums = ctx.plus(
        ctx.matmul(x, feature, trans_b=True, zeros=(None, None)), _less_zero(ctx, feature, -given.zero, None)
    )
    first = np.array([float(given.scale * by.scale / held_in.scale)])
    now = rescaled(ctx, sums, first, 1, _GATE, _GATE_ENDS)
    held = ctx.cast(ctx.reshape(state, (batch, filters, memory)), DType.INT32)
    now = ctx.reshape(now, (batch, filters, 1))
    held = ctx.concat([ctx.slice_axis(held, 2, 1, memory), now], 2) if memory > 1 else now
    products = ctx.binary("mul", held, ctx.cast(time, DType.INT32))
    # Sums over time and over the ranks of a unit: the latter are adjacent.
    total = ctx.reduce(ctx.reshape(products, (batch, filters // rank, rank * memory)), "sum", (2,), keepdims=False)
    last = np.array([float(held_in.scale * over.scale / np.float32(out.scale[0]))])
    result = Affine(np.float32(out.scale[0]), int(out.zero_point[0]), DType.INT8)
    y = rescaled(ctx, ctx.plus(total, bias), last, 1, result, result.ends)
    return [y, *next_states(ctx, {4: ctx.cast(ctx.reshape(held, state.shape), DType.INT16)})]
