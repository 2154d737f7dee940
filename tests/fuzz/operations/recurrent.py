"""Recurrent layers."""

from __future__ import annotations

from ..builder import Builder
from ..draw import Array
from ..registry import operation

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@operation("recurrent", 1)
def recurrent(b: Builder) -> None:
    d = b.draw
    op = d.pick(list(GATES))
    x = b.calm(3, lambda a: 0 < a.size <= 2500 and a.shape[0] <= 16)
    steps, batch, width = b[x].shape
    hidden = d.pick([1, 2, 3, 5, 8, 16, 17])
    direction = d.pick(["forward", "forward", "reverse", "bidirectional"])
    ways, gates = 2 if direction == "bidirectional" else 1, GATES[op]
    w = b.weight([ways, gates * hidden, width], width**-0.5)
    r = b.weight([ways, gates * hidden, hidden], hidden**-0.5)
    bias = b.weight([ways, 2 * gates * hidden]) if d.chance(0.6) else ""
    lengths: Array | None = d.array([batch], "i4", 1, steps) if d.chance(0.2) else None
    inputs = [x, w, r, bias, "" if lengths is None else b.const(lengths)]
    if d.chance(0.4):
        inputs.append(b.operand([ways, batch, hidden]))
        if op == "LSTM":
            inputs.append(b.operand([ways, batch, hidden]))
            if d.chance(0.4):
                inputs.append(b.weight([ways, 3 * hidden]))
    while not inputs[-1]:
        inputs.pop()
    attrs = {"direction": None if direction == "forward" else direction, "hidden_size": hidden}
    if op == "GRU":
        attrs["linear_before_reset"] = d.pick([None, 0, 1])
    if d.chance(0.2):
        attrs["clip"] = 2.0
    if d.chance(0.2):
        names = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[op]
        names = [d.pick([n, "Tanh", "Relu", "Sigmoid", "HardSigmoid", "Softsign"]) for n in names]
        attrs["activations"] = names * ways
    b.emit_all(op, inputs, d.between(1, 3 if op == "LSTM" else 2), **attrs)
