"""Importer of recurrent layers: rnn, which holds all layers and directions."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ...ir import Value
from .common import Found, PaddleNode, paddle_op

# Kind by ONNX's name, and its gates in ONNX's order by their numbers in Paddle's: i f c o, and r z h.
_KINDS = {"LSTM": ("LSTM", (0, 3, 1, 2)), "GRU": ("GRU", (1, 0, 2))}
_KINDS |= {"RNN_TANH": ("RNN", (0,)), "RNN_RELU": ("RNN", (0,))}


@paddle_op("rnn", operands="x pre_state weight_list sequence_length", outputs="out dropout_state_out state reserve")
def rnn(n: PaddleNode) -> Found:
    """Import rnn of x[T,B,I]: weights of all layers and directions, then their biases."""
    x, states = n.value("x", "input"), n.values("pre_state")
    weights, lengths = n.values("weight_list"), n.maybe("sequence_length")
    mode = n.text("mode", default="RNN_TANH")
    if mode not in _KINDS:
        raise n.refuse(f"has the mode '{mode}'; {', '.join(_KINDS)} are known")
    kind, order = _KINDS[mode]
    layers, ways = int(n.number("num_layers", default=1)), 2 if n.is_set("is_bidirec") else 1
    count = 2 * layers * ways
    if len(weights) not in (count, 2 * count) or not states:
        raise ShapeError(f"{n.label} has {len(weights)} weights for {layers} layers in {ways} directions")
    lasts: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        first = 2 * ways * layer
        parts = [[_gates(n, v, order) for v in weights[first + k : first + 2 * ways : 2]] for k in (0, 1)]
        w, r = (n.concat([n.unsqueeze(v, [0]) for v in part], 0) for part in parts)
        bias = None
        if len(weights) == 2 * count:
            own = [_gates(n, v, order) for v in weights[count + first : count + first + 2 * ways]]
            rows = [n.concat(own[2 * way : 2 * way + 2], 0) for way in range(ways)]
            bias = n.concat([n.unsqueeze(v, [0]) for v in rows], 0)
        begun = [n.slice_axis(s, 0, ways * layer, ways * (layer + 1)) for s in states]
        attrs: dict[str, Any] = {
            "direction": "bidirectional" if ways == 2 else "forward",
            "hidden_size": int(r.shape[-1]),
        }
        if kind == "GRU":
            attrs["linear_before_reset"] = 1
        if mode == "RNN_RELU":
            attrs["activations"] = ("Relu",) * ways
        outs = n.onnx(kind, [x, w, r, bias, lengths, *begun], 1 + len(states), **attrs)
        made = [v for v in outs if isinstance(v, Value)]
        steps, batch = made[0].shape[0], made[0].shape[2]
        x = n.reshape(n.transpose(made[0], (0, 2, 1, 3)), (steps, batch, ways * made[0].shape[3]))
        for last, v in zip(lasts, made[1:], strict=True):
            last.append(v)
    return {"out": x, "state": [n.concat(v, 0) for v in lasts]}


def _gates(n: PaddleNode, v: Value, order: tuple[int, ...]) -> Value:
    """Return weights or biases with their gates in ONNX's order."""
    size = v.shape[0] // len(order)
    return n.concat([n.slice_axis(v, 0, k * size, (k + 1) * size) for k in order], 0)
