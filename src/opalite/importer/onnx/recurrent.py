"""Recurrent layers: LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError, UnsupportedOpError
from ...ir import DType, Value
from ...ops.recurrent import Recurrent
from ..walk.node_context import NodeContext, onnx_op
from .activation import ACTIVATIONS

_DEFAULTS = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh"), "rnn": ("Tanh",)}
_PLAIN = ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus")
_WITH_PARAMETERS = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")


@onnx_op("LSTM", "GRU", "RNN")
def recurrent_layer(ctx: NodeContext) -> Sequence[Value]:
    """Import LSTM (gates in the order i, o, f, c), GRU (z, r, h) and RNN, which is h = f(W x + R h + b)."""
    return recurrent(ctx, ctx.op_type.lower())


def recurrent(
    ctx: NodeContext, kind: str, rounded: tuple[Value, Value, Value] | None = None, first: int = 0, count: int = 0
) -> list[Value]:
    """Emit the layer by the node's attributes and inputs, for `count` sequences from `first` on (0: all).

    rounded: x, w and r instead of inputs 0, 1 and 2, if the state is quantised to 8 bits at each step.
    """
    x, w, r = rounded or (ctx.input(0), ctx.input(1), ctx.input(2))
    batch_first = ctx.attr("layout", False)
    direction = ctx.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    hidden = r.shape[-1]
    if int(ctx.attr("hidden_size", hidden)) != hidden:
        raise ShapeError(f"{ctx.label} has hidden_size {ctx.attr('hidden_size')}, but recurrent weights {r.type}")
    h0, c0 = ctx.get(5), ctx.get(6) if kind == "lstm" else None
    if batch_first:
        x = ctx.transpose(x, (1, 0, 2))
        h0, c0 = (v if v is None else ctx.transpose(v, (1, 0, 2)) for v in (h0, c0))
    lens = _lengths(ctx, x)
    if count:
        x = ctx.slice_axis(x, 1, first, first + count)
        h0, c0 = (v if v is None else ctx.slice_axis(v, 1, first, first + count) for v in (h0, c0))
        lens = None if lens is None else ctx.slice_axis(lens, 0, first, first + count)
    names, alphas, betas = _activations(ctx, kind, 2 if direction == "bidirectional" else 1)
    inputs = [x, w, r, ctx.get(3), lens, h0, c0, ctx.get(7) if kind == "lstm" else None]
    outs = ctx.add_many(
        Recurrent(
            kind=kind,
            direction=direction,
            hidden=hidden,
            activations=names,
            alphas=alphas,
            betas=betas,
            clip=ctx.attr("clip", 0.0),
            linear_before_reset=ctx.attr("linear_before_reset", False),
            input_forget=ctx.attr("input_forget", False),
            rounds_state=rounded is not None,
        ),
        inputs,
        3 if kind == "lstm" else 2,
    )
    if batch_first:
        outs = [ctx.transpose(outs[0], (2, 0, 1, 3)), *(ctx.transpose(v, (1, 0, 2)) for v in outs[1:])]
    return outs[: ctx.n_outputs]


def _lengths(ctx: NodeContext, x: Value) -> Value | None:
    """Return sequence_lens, or None if all sequences are known to be as long as x[T,B,I]."""
    lens, known = ctx.get(4), ctx.maybe_const(4)
    if lens is None or (known is not None and bool(np.all(known == x.shape[0]))):
        return None
    return ctx.cast(lens, DType.INT32)


def _activations(
    ctx: NodeContext, kind: str, directions: int
) -> tuple[tuple[str, ...], tuple[float | None, ...], tuple[float | None, ...]]:
    """Return names, alphas and betas of all functions; parameters go, in order, to functions that take them."""
    names = tuple(_canonical_name(ctx, str(n)) for n in ctx.attr("activations", ()) or _DEFAULTS[kind] * directions)
    if kind == "rnn":  # onnxruntime writes the schema's two defaults when it saves a model
        names = names[:directions]
    if len(names) != len(_DEFAULTS[kind]) * directions:
        raise ShapeError(f"{ctx.label} has {len(names)} activations for {directions} direction(s)")
    given_alphas = iter(ctx.attr("activation_alpha", ()) or ())
    given_betas = iter(ctx.attr("activation_beta", ()) or ())
    alphas: list[float | None] = []
    betas: list[float | None] = []
    for name in names:
        defaults = ACTIVATIONS[name][1] if name in _WITH_PARAMETERS else {}
        alphas.append(float(next(given_alphas, defaults["alpha"])) if "alpha" in defaults else None)
        betas.append(float(next(given_betas, defaults["beta"])) if "beta" in defaults else None)
    return names, tuple(alphas), tuple(betas)


def _canonical_name(ctx: NodeContext, name: str) -> str:
    """Return the activation's name as spelled by ONNX; models use any case."""
    for known in (*_PLAIN, *_WITH_PARAMETERS):
        if known.lower() == name.lower():
            return known
    raise UnsupportedOpError(f"{ctx.label} has the activation '{name}', which recurrent layers do not know")
