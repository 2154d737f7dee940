"""Importers of recurrent layers; each returns its outputs, then the next value of each variable input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import ShapeError
from ...expr.trace_function import Sym
from ...ir import Value
from ...ir.symbols import fixed
from ...ops.recurrent import Recurrent
from ..walk.node_context import NodeContext
from .common import activate, activation, info_of, tflite_op, unsupported

_NAMES = {0: "Affine", 1: "Relu", 4: "Tanh"}
"""Activations that the operator Recurrent has, by their numbers in the schema."""

_NORM_EPSILON = 1e-8


@dataclass(frozen=True)
class Lstm:
    """Tensors of one direction of an LSTM, None where absent; gates in the order input, forget, cell, output."""

    w: Sequence[Value | None]
    r: Sequence[Value | None]
    peepholes: Sequence[Value | None]
    biases: Sequence[Value | None]
    projection: Value | None
    projection_bias: Value | None
    h: Value
    c: Value
    norms: Sequence[Value | None]


Sequenced = tuple[Value, Value, Value]
"""An output [T, B, units], and the last h and c."""


@tflite_op("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(ctx: NodeContext) -> list[Value]:
    """Import UNIDIRECTIONAL_SEQUENCE_LSTM, with peepholes, projection, clipping and layer normalisation."""
    y, h, c = _lstm(ctx, steps_first(ctx, ctx.input(0)), tensors_at(ctx, 1, 18, 20), False)
    return [steps_first(ctx, y), *next_states(ctx, {18: h, 19: c})]


@tflite_op("BIDIRECTIONAL_SEQUENCE_LSTM")
def bidirectional_lstm(ctx: NodeContext) -> list[Value]:
    """Import BIDIRECTIONAL_SEQUENCE_LSTM: two directions, side by side with merge_outputs."""
    x = steps_first(ctx, ctx.input(0))
    ways = [tensors_at(ctx, 1, 35, None), tensors_at(ctx, 18, 37, None)]
    outs = []
    for k, inputs in enumerate(_auxiliary(ctx, x, ways, 39, (40, 44))):
        outs.append(_lstm(ctx, inputs, ways[k], k == 1))
    states = {35: outs[0][1], 36: outs[0][2], 37: outs[1][1], 38: outs[1][2]}
    return [*_merged(ctx, [o[0] for o in outs]), *next_states(ctx, states)]


@tflite_op("LSTM")
def lstm_step(ctx: NodeContext) -> list[Value]:
    """Import LSTM: one step, with all tensors apart, or in the short form with the state as an input."""
    if ctx.attr("kernel_type", 0) == 1:
        return _basic_lstm(ctx)
    x = ctx.input(0)
    y, h, c = _lstm(ctx, ctx.reshape(x, (1, *x.shape)), tensors_at(ctx, 1, 18, 20), False)
    return [ctx.reshape(y, y.shape[1:]), *next_states(ctx, {18: h, 19: c})]


def _basic_lstm(ctx: NodeContext) -> list[Value]:
    """Emit the short form: one matrix for [x, h], gates input, cell, forget, output; the states are outputs."""
    x, h, w, b, c = (ctx.input(i) for i in range(5))
    joined = ctx.concat([x, h], 1)
    gates = ctx.plus(ctx.matmul(joined, w, trans_b=True), b)
    parts = ctx.split_axis(gates, 1, (c.shape[1],) * 4)

    def cell(i: Sym, g: Sym, f: Sym, old: Sym) -> Sym:
        return i.call("sigmoid") * g.call("tanh") + f.call("sigmoid") * old

    new = ctx.elementwise(cell, *parts[:3], c)
    out = ctx.elementwise(lambda o, s: o.call("sigmoid") * s.call("tanh"), parts[3], new)
    return [out, new, joined, gates][: ctx.n_outputs]


def tensors_at(ctx: NodeContext, first: int, state: int, norms: int | None) -> Lstm:
    """Return the tensors of the direction whose first weights are input `first`."""

    def at(start: int, count: int) -> list[Value | None]:
        return [ctx.get(i) for i in range(start, start + count)]

    return Lstm(
        w=at(first, 4),
        r=at(first + 4, 4),
        peepholes=at(first + 8, 3),
        biases=at(first + 11, 4),
        projection=ctx.get(first + 15),
        projection_bias=ctx.get(first + 16),
        h=ctx.input(state),
        c=ctx.input(state + 1),
        norms=[None] * 4 if norms is None else at(norms, 4),
    )


def _lstm(ctx: NodeContext, x: Value, p: Lstm, backward: bool) -> Sequenced:
    """Emit the layer on x[T,B,I]."""
    if any(v is None for v in (*p.w[1:], *p.r[1:], *p.biases[1:])):
        raise ShapeError(f"{ctx.label} lacks weights or a bias of its forget, cell or output gate")
    number = int(ctx.attr("fused_activation_function", 0))
    plain = not (ctx.attr("cell_clip", 0.0) or any(v is not None for v in (p.projection, *p.norms)))
    if plain and number in _NAMES:
        return _whole_lstm(ctx, x, p, _NAMES[number], backward)
    return _unrolled_lstm(ctx, x, p, number, backward)


def _whole_lstm(ctx: NodeContext, x: Value, p: Lstm, name: str, backward: bool) -> Sequenced:
    """Emit one Recurrent, whose gates are in the order input, output, forget, cell."""

    def negative(v: Value | None) -> Value | None:
        return None if v is None else ctx.unary("neg", v)

    def ordered(gates: Sequence[Value | None]) -> Value:
        # Without an input gate it is 1 - forget gate, the same function of the negative sum.
        first = gates[0] if gates[0] is not None else negative(gates[1])
        joined = ctx.concat([v for v in (first, gates[3], gates[1], gates[2]) if v is not None], 0)
        return ctx.reshape(joined, (1, *joined.shape))

    w, r, b = ordered(p.w), ordered(p.r), ordered([p.biases[0] if p.w[0] is not None else None, *p.biases[1:]])
    units = r.shape[-1]
    peepholes = None
    if p.peepholes[1] is not None:
        i = p.peepholes[0] if p.w[0] is not None else negative(p.peepholes[1])
        parts = [i, p.peepholes[2], p.peepholes[1]]
        zero = ctx.full(0, x.dtype, (units,))
        peepholes = ctx.reshape(ctx.concat([zero if v is None else v for v in parts], 0), (1, 3 * units))
    op = Recurrent(
        kind="lstm",
        direction="reverse" if backward else "forward",
        hidden=units,
        activations=("Sigmoid", name, name),
        alphas=(None, *(1.0 if name == "Affine" else None,) * 2),
        betas=(None, *(0.0 if name == "Affine" else None,) * 2),
        clip=0.0,
        linear_before_reset=False,
        input_forget=False,
    )
    bias = ctx.pad_zeros(b, (0, 0, 0, b.shape[1]))  # the recurrent half is zero
    states = [ctx.reshape(v, (1, *v.shape)) for v in (p.h, p.c)]
    y, h, c = ctx.add_many(op, [x, w, r, bias, None, *states, peepholes], 3)
    return ctx.squeeze(y, (1,)), ctx.squeeze(h, (0,)), ctx.squeeze(c, (0,))


def _unrolled_lstm(ctx: NodeContext, x: Value, p: Lstm, number: int, backward: bool) -> Sequenced:
    """Emit the steps one by one."""
    act, clip, end = activation(ctx, number), ctx.attr("cell_clip", 0.0), ctx.attr("proj_clip", 0.0)
    products = [None if w is None else ctx.matmul(x, w, trans_b=True) for w in p.w]

    def gate(k: int, t: int, h: Value, c: Value | None) -> Value:
        """Return the sum of a gate before its activation."""
        whole, r, peephole = products[k], p.r[k], p.peepholes[{0: 0, 1: 1, 3: 2}.get(k, 0)] if c is not None else None
        assert whole is not None, "absent gates are not asked for"
        assert r is not None, "absent gates are not asked for"
        total = ctx.plus(_step(ctx, whole, t), ctx.matmul(h, r, trans_b=True))
        if peephole is not None:
            assert c is not None, "peepholes look at a cell"
            total = ctx.elementwise(lambda s, v, q: s + v * q, total, c, peephole)
        if p.norms[k] is not None:
            total = _normalized(ctx, total, p.norms[k])
        return ctx.plus(total, p.biases[k])

    def step(t: int, h: Value, c: Value) -> tuple[Value, Value]:
        forget, cell = gate(1, t, h, c), gate(2, t, h, None)
        into = gate(0, t, h, c) if products[0] is not None else ctx.unary("neg", forget)

        def renewed(i: Sym, f: Sym, g: Sym, old: Sym) -> Sym:
            new = f.call("sigmoid") * old + i.call("sigmoid") * act(g)
            return new.call("max", -clip).call("min", clip) if clip else new

        c = ctx.elementwise(renewed, into, forget, cell, c)
        h = ctx.elementwise(lambda o, s: o.call("sigmoid") * act(s), gate(3, t, h, c), c)
        if p.projection is not None:
            h = ctx.plus(ctx.matmul(h, p.projection, trans_b=True), p.projection_bias)
            if end:
                h = ctx.elementwise(lambda v: v.call("max", -end).call("min", end), h)
        return h, c

    h, c = p.h, p.c
    outs: list[Value] = []
    for t in _order(x, backward):
        h, c = step(t, h, c)
        outs.append(ctx.unsqueeze(h, (0,)))
    return ctx.concat(outs[::-1] if backward else outs, 0), h, c


def _normalized(ctx: NodeContext, v: Value, weights: Value | None) -> Value:
    """Return each row with mean 0 and variance 1, times `weights`."""
    last = (len(v.shape) - 1,)
    centred = ctx.elementwise(lambda x, m: x - m, v, ctx.reduce(v, "mean", last))
    variance = ctx.reduce(ctx.elementwise(lambda x: x * x, centred), "mean", last)
    scaled = ctx.elementwise(lambda x, s: x * (s + _NORM_EPSILON).call("rsqrt"), centred, variance)
    return scaled if weights is None else ctx.binary("mul", scaled, weights)


# Plain recurrent layers


@tflite_op("RNN")
def rnn_step(ctx: NodeContext) -> list[Value]:
    """Import RNN: one step of act(W x + R h + b)."""
    x = ctx.input(0)
    y, h = _rnn(ctx, ctx.reshape(x, (1, *x.shape)), 1, False)
    return [ctx.reshape(y, y.shape[1:]), *next_states(ctx, {4: h})]


@tflite_op("UNIDIRECTIONAL_SEQUENCE_RNN")
def sequence_rnn(ctx: NodeContext) -> list[Value]:
    """Import UNIDIRECTIONAL_SEQUENCE_RNN: act(W x + R h + b) at each step."""
    y, h = _rnn(ctx, steps_first(ctx, ctx.input(0)), 1, False)
    return [steps_first(ctx, y), *next_states(ctx, {4: h})]


@tflite_op("BIDIRECTIONAL_SEQUENCE_RNN")
def bidirectional_rnn(ctx: NodeContext) -> list[Value]:
    """Import BIDIRECTIONAL_SEQUENCE_RNN: two directions, side by side with merge_outputs."""
    x = steps_first(ctx, ctx.input(0))
    other = ctx.get(9)
    if other is not None and ctx.get(10) is not None:
        raise unsupported(ctx, "has weights for an auxiliary input; convert the model without cross-linked layers")
    ahead = _rnn(ctx, x, 1, False)
    back = _rnn(ctx, x if other is None else steps_first(ctx, other), 5, True)
    return [*_merged(ctx, [ahead[0], back[0]]), *next_states(ctx, {4: ahead[1], 8: back[1]})]


def _rnn(ctx: NodeContext, x: Value, first: int, backward: bool) -> tuple[Value, Value]:
    """Emit the layer on x[T,B,I], whose weights, recurrent weights, bias and state are inputs from `first` on."""
    w, r, b, h = (ctx.input(first + i) for i in range(4))
    number = int(ctx.attr("fused_activation_function", 0))
    if number in _NAMES:
        op = Recurrent(
            kind="rnn",
            direction="reverse" if backward else "forward",
            hidden=r.shape[-1],
            activations=(_NAMES[number],),
            alphas=(1.0 if number == 0 else None,),
            betas=(0.0 if number == 0 else None,),
            clip=0.0,
            linear_before_reset=False,
            input_forget=False,
        )
        parts = [ctx.reshape(v, (1, *v.shape)) for v in (w, r, b, h)]
        bias = ctx.pad_zeros(parts[2], (0, 0, 0, b.shape[0]))
        y, last = ctx.add_many(op, [x, parts[0], parts[1], bias, None, parts[3]], 2)
        return ctx.squeeze(y, (1,)), ctx.squeeze(last, (0,))
    whole = ctx.plus(ctx.matmul(x, w, trans_b=True), b)
    outs: list[Value] = []
    for t in _order(x, backward):
        h = activate(ctx, ctx.plus(_step(ctx, whole, t), ctx.matmul(h, r, trans_b=True)), number)
        outs.append(ctx.unsqueeze(h, (0,)))
    return ctx.concat(outs[::-1] if backward else outs, 0), h


@tflite_op("SVDF")
def svdf(ctx: NodeContext) -> list[Value]:
    """Import SVDF: features of the last steps, which are the state [B, filters * memory], weighted over time."""
    x, feature, time, bias, state = ctx.input(0), ctx.input(1), ctx.input(2), ctx.get(3), ctx.input(4)
    rank, (filters, memory) = int(ctx.attr("rank", 1)), time.shape
    if rank < 1 or filters % rank or state.type.count != x.shape[0] * filters * memory:
        raise ShapeError(f"{ctx.label} has rank {rank}, weights {time.type} and state {state.type}")
    held = ctx.reshape(state, (x.shape[0], filters, memory))
    now = ctx.reshape(ctx.matmul(x, feature, trans_b=True), (x.shape[0], filters, 1))
    held = ctx.concat([ctx.slice_axis(held, 2, 1, memory), now], 2) if memory > 1 else now
    weighted = ctx.reduce(ctx.binary("mul", held, time), "sum", (2,), keepdims=False)
    if rank > 1:
        view = ctx.reshape(weighted, (x.shape[0], filters // rank, rank))
        weighted = ctx.reduce(view, "sum", (2,), keepdims=False)
    out = activate(ctx, ctx.plus(weighted, bias), int(ctx.attr("fused_activation_function", 0)))
    return [out, *next_states(ctx, {4: ctx.reshape(held, state.shape)})]


# Shared


def steps_first(ctx: NodeContext, v: Value) -> Value:
    """Exchange batch and steps unless the node has steps first."""
    if len(v.shape) != 3:
        raise ShapeError(f"{ctx.label} expects batch, steps and features, got {v.type}")
    return v if ctx.attr("time_major", False) else ctx.transpose(v, (1, 0, 2))


def _order(x: Value, backward: bool) -> Sequence[int]:
    steps = range(int(fixed(x.shape[0])))
    return steps[::-1] if backward else steps


def _step(ctx: NodeContext, v: Value, t: int) -> Value:
    return ctx.squeeze(ctx.slice_axis(v, 0, t, t + 1), (0,))


def next_states(ctx: NodeContext, states: Mapping[int, Value]) -> list[Value]:
    """Return the next values of those inputs that are variables, in order."""
    return [v for i, v in states.items() if (info := info_of(ctx, i)) is not None and info.is_variable]


def _merged(ctx: NodeContext, ways: Sequence[Value]) -> list[Value]:
    """Return the outputs of both directions, as one if the node merges them."""
    if ctx.attr("merge_outputs", False):
        return [steps_first(ctx, ctx.concat(ways, 2))]
    return [steps_first(ctx, v) for v in ways]


def _auxiliary(ctx: NodeContext, x: Value, ways: list[Lstm], index: int, weights: Sequence[int]) -> list[Value]:
    """Return the input of each direction; a second input of the node belongs to both, or to the backward one."""
    other = ctx.get(index)
    if other is None:
        return [x, x]
    other = steps_first(ctx, other)
    if ctx.get(weights[0] + 1) is None:
        return [x, other]
    for k, first in enumerate(weights):
        more = [ctx.get(first + i) for i in range(4)]
        pairs = zip(ways[k].w, more, strict=True)
        joined = [w if w is None or m is None else ctx.concat([w, m], 1) for w, m in pairs]
        ways[k] = replace(ways[k], w=joined)
    return [ctx.concat([x, other], 2)] * 2
