"""Recurrent: LSTM, GRU and RNN layers (ONNX operator specification)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FUNCTIONS = {"lstm": 3, "gru": 2, "rnn": 1}
"""Activations of one direction: lstm f, g, h; gru f, g; rnn f."""

CELL = 2
"""Index of the activation of an LSTM's cell, whose input is not clipped."""

Activation = Callable[[Array, float, float], Array]
ACTIVATIONS: dict[str, Activation] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(np.minimum(x, 0)) - 1)),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.log(1 + np.exp(x)),
}


@frozen_op
class Recurrent(Op):
    """Y[T,D,B,H], Y_h[D,B,H] and for lstm Y_c[D,B,H] of x[T,B,I].

    Inputs: x, w[D,G*H,I], r[D,G*H,H], b[D,2*G*H]?, lengths int32[B]?, h0[D,B,H]?, c0[D,B,H]?, peepholes[D,3*H]?. Gates
    are in the order i, o, f, c (lstm) or z, r, h (gru). Attributes: kind lstm, gru or rnn; direction forward, reverse
    or bidirectional; hidden; activations, alphas, betas (all functions of one direction, then of the other); clip (0:
    off) of gates, not of an LSTM's cell before its last activation, as in onnxruntime and unlike ONNX;
    linear_before_reset; input_forget; rounds_state (lstm only): r multiplies h quantized to 8 bits, as by
    DynamicQuantizeLinear over all sequences of a direction. States of a sequence without steps are zeros, as in
    onnxruntime; ONNX leaves them open.
    """

    kind: str
    direction: str
    hidden: int
    activations: tuple[str, ...]
    alphas: tuple[float | None, ...]
    betas: tuple[float | None, ...]
    clip: float
    linear_before_reset: bool
    input_forget: bool
    rounds_state: bool = False

    arity = 8

    def check_shape(self, ins: Types) -> None:
        x, w, r = (tensor(ins, i, what) for i, what in enumerate(("x", "w", "r")))
        kind, h = self.kind, self.hidden
        d = directions(self)
        rows = GATES[kind] * h
        need(x.rank == 3, f"x must be [steps, batch, inputs], got {x}")
        need(w.shape == (d, rows, x.shape[2]), f"w must be {(d, rows, x.shape[2])} for {x}, got {w}")
        need(r.shape == (d, rows, h), f"r must be {(d, rows, h)}, got {r}")
        batch = x.shape[1]
        wanted = {3: (d, 2 * rows), 4: (batch,), 5: (d, batch, h), 6: (d, batch, h), 7: (d, 3 * h)}
        names = {3: "b", 4: "lengths", 5: "initial h", 6: "initial c", 7: "peepholes"}
        for i, shape in wanted.items():
            t = ins[i] if i < len(ins) else None
            need(t is None or t.shape == shape, f"{names[i]} must be {shape}, got {t}")
        lens = ins[4] if len(ins) > 4 else None
        need(lens is None or lens.dtype is DType.INT32, f"lengths must be i32, got {lens}")
        need(kind == "lstm" or not self.rounds_state, "the state of an lstm alone is rounded")
        need(len(self.activations) == d * FUNCTIONS[kind], f"{kind} takes {d * FUNCTIONS[kind]} activations")
        for name in self.activations:
            need(name in ACTIVATIONS, f"activation {name!r} is not one of {', '.join(ACTIVATIONS)}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        d, h = directions(self), self.hidden
        state = make_type(x.dtype, (d, x.shape[1], h))
        y = make_type(x.dtype, (x.shape[0], d, x.shape[1], h))
        return [y, state, state] if self.kind == "lstm" else [y, state]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, w, r = present(arrays, 3)
        b, lens, h0, c0, p = (*arrays[3:], *[None] * 5)[:5]
        d, h, steps, batch = directions(self), self.hidden, x.shape[0], x.shape[1]
        lengths = np.full(batch, steps) if lens is None else np.clip(lens, 0, steps)
        y = np.zeros((steps, d, batch, h))
        state = np.zeros((d, batch, h)) if h0 is None else h0.astype(np.float64)
        cell = np.zeros((d, batch, h)) if c0 is None else c0.astype(np.float64)
        bias = np.zeros((d, 2 * w.shape[1])) if b is None else b
        peep = np.zeros((d, 3 * h)) if p is None else p
        with np.errstate(over="ignore"):
            for k in range(d):
                backward = self.direction == "reverse" or k == 1
                for i in range(int(max(lengths, default=0))):
                    going = np.flatnonzero(lengths > i)
                    # A sequence that has ended counts with a zero state in the range, from the next step on.
                    seen = _rounded(state[k], lengths >= i) if self.rounds_state else state[k].copy()
                    for n in going:
                        t = int(lengths[n]) - 1 - i if backward else i
                        now = x[t, n], seen[n], cell[k, n]
                        state[k, n], cell[k, n] = step(self, k, *now, w[k], r[k], bias[k], peep[k])
                        y[t, k, n] = state[k, n]
                state[k, lengths == 0] = cell[k, lengths == 0] = 0
        outs = [y, state, cell] if self.kind == "lstm" else [y, state]
        return [o.astype(x.dtype) for o in outs]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        w, r, x = tensor(ins, 1, "w"), tensor(ins, 2, "r"), tensor(ins, 0, "x")
        rows = x.shape[0] * x.shape[1]
        return Cost(2.0 * rows * (w.count + r.count), moved_bytes(ins, outs) + (x.shape[0] - 1) * r.count * 4.0)


def directions(op: Recurrent) -> int:
    """Number of directions: 1, or 2 for bidirectional."""
    return 2 if op.direction == "bidirectional" else 1


def _rounded(h: Array, counts: Array) -> Array:
    """h[B,H] quantized to 256 levels over the range of the rows in `counts`, which includes 0."""
    low = min(0.0, float(h[counts].min(initial=0.0)))
    high = max(0.0, float(h[counts].max(initial=0.0)))
    scale = (high - low) / 255 or 1.0
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.asarray((np.clip(np.rint(h / scale) + zero, 0, 255) - zero) * scale)


def step(
    op: Recurrent, k: int, x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, p: Array
) -> tuple[Array, Array]:
    """One time step of direction `k` for one batch entry: the new h and c."""
    kind, clip = op.kind, op.clip
    count = FUNCTIONS[kind]

    def act(i: int, v: Array) -> Array:
        at = k * count + i
        v = np.clip(v, -clip, clip) if clip and i != CELL else v
        return ACTIVATIONS[op.activations[at]](v, op.alphas[at] or 0.0, op.betas[at] or 0.0)

    n = h.shape[0]
    rows = w.shape[0]
    zx = w.astype(np.float64) @ x + b[:rows]
    rb = b[rows:]
    if kind == "rnn":
        return act(0, zx + r @ h + rb), c
    if kind == "gru":
        z = act(0, zx[:n] + r[:n] @ h + rb[:n])
        reset = act(0, zx[n : 2 * n] + r[n : 2 * n] @ h + rb[n : 2 * n])
        if op.linear_before_reset:
            inner = reset * (r[2 * n :] @ h + rb[2 * n :])
        else:
            inner = r[2 * n :] @ (reset * h) + rb[2 * n :]
        return (1 - z) * act(1, zx[2 * n :] + inner) + z * h, c
    gates = zx + r @ h + rb
    i = act(0, gates[:n] + p[:n] * c)
    f = 1 - i if op.input_forget else act(0, gates[2 * n : 3 * n] + p[2 * n :] * c)
    new_c = f * c + i * act(1, gates[3 * n :])
    o = act(0, gates[n : 2 * n] + p[n : 2 * n] * new_c)
    return o * act(2, new_c), new_c
