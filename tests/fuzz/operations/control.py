"""Control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.numpy_helper as nph

from onnx import helper

from ..builder import Builder, Rejected
from ..oracle import value_info
from ..registry import operation

STEPS = ("Relu", "Neg", "Sigmoid", "Tanh", "Abs", "Sin")


def body(b: Builder, nodes: list[Any], inputs: list[Any], outputs: list[str], constants: dict[str, Any]) -> Any:
    tensors = [nph.from_array(np.asarray(a), n) for n, a in constants.items()]
    outs = [helper.make_empty_tensor_value_info(o) for o in outputs]
    return helper.make_graph(nodes, b.name("body"), inputs, outs, tensors)


def step(b: Builder, x: str) -> tuple[list[Any], str]:
    """One or two nodes from `x` on, whose names are new, and their output."""
    nodes = []
    for _ in range(b.draw.between(1, 2)):
        y, op = b.name("i"), b.draw.pick(STEPS)
        nodes.append(helper.make_node(op, [x], [y], name=f"{op}_{y}"))
        x = y
    return nodes, x


@operation("control", 0.7)
def if_(b: Builder) -> None:
    """Both branches read what is around them; their results may have other shapes."""
    d, x = b.draw, b.real(where=lambda a: a.size > 0)
    branches = []
    for _ in range(2):
        nodes, out = step(b, x)
        if d.chance(0.3) and b[x].ndim:
            y = b.name("i")
            nodes.append(helper.make_node("Concat", [out, x], [y], name=f"Concat_{y}", axis=0))
            out = y
        branches.append(body(b, nodes, [], [out], {}))
    if d.chance(0.5):
        condition = b.const(np.asarray(d.chance(0.5)), 0.6)
    else:
        total = b.emit("ReduceMean", [x], keepdims=0)
        condition = b.emit("Greater", [total, b.const(b.dtype.type(0), 0.0)])
    b.emit("If", [condition], then_branch=branches[0], else_branch=branches[1])


@operation("control", 0.7)
def loop(b: Builder) -> None:
    """A carried tensor, a value from around, and perhaps every step's result."""
    d, x = b.draw, b.real(where=lambda a: a.size <= 2000)
    if b.opset < 11:
        raise Rejected("Loop")
    around = b.partner(x)
    if np.broadcast_shapes(b[x].shape, b[around].shape) != b[x].shape:
        raise Rejected("a carried tensor that grows")
    n, go, carried = b.name("n"), b.name("go"), b.name("k")
    nodes, out = step(b, carried)
    added, again = b.name("i"), b.name("go")
    nodes.append(helper.make_node(d.pick(["Add", "Mul", "Sub"]), [out, around], [added], name=f"Step_{added}"))
    limit = d.chance(0.3)
    constants: dict[str, Any] = {}
    if limit:  # ends by what it has computed
        total, top = b.name("i"), b.name("k")
        nodes.append(helper.make_node("ReduceMax", [added], [total], name=f"ReduceMax_{total}", keepdims=0))
        nodes.append(helper.make_node("Less", [total, top], [again], name=f"Less_{again}"))
        constants[top] = b.dtype.type(3)
    else:
        nodes.append(helper.make_node("Identity", [go], [again], name=f"Identity_{again}"))
    scanned = d.chance(0.5)
    outputs = [again, added]
    if scanned:
        each = b.name("i")
        nodes.append(helper.make_node("Identity", [added], [each], name=f"Identity_{each}"))
        outputs.append(each)
    inputs = [value_info(n, np.int64(0)), value_info(go, np.bool_(True)), value_info(carried, b[x])]
    trips = b.const(np.int64(d.between(1, 5)), 0.3)
    inner = body(b, nodes, inputs, outputs, constants)
    b.emit_all("Loop", [trips, b.const(np.asarray(True), 0.0), x], 2 if scanned else 1, body=inner)


@operation("control", 0.5)
def scan(b: Builder) -> None:
    """A running state along the first axis."""
    if b.opset < 9:
        raise Rejected("Scan")
    d, x = b.draw, b.real(where=lambda a: a.ndim >= 1 and 0 < a.size <= 2000 and a.shape[0] <= 20)
    state = b.operand(b[x].shape[1:])
    s, e, t, out = (b.name("i") for _ in range(4))
    nodes = [helper.make_node(d.pick(["Add", "Mul", "Max"]), [s, e], [t], name=f"Step_{t}")]
    nodes.append(helper.make_node(d.pick(["Tanh", "Sigmoid", "Sin"]), [t], [out], name=f"Squash_{out}"))
    if d.chance(0.5):
        row = out
    else:
        row = b.name("i")
        nodes.append(helper.make_node("Neg", [t], [row], name=f"Neg_{row}"))
    if row == out:
        row = b.name("i")
        nodes.append(helper.make_node("Identity", [out], [row], name=f"Identity_{row}"))
    inputs = [value_info(s, b[state]), value_info(e, b[x][0])]
    inner = body(b, nodes, inputs, [out, row], {})
    reverse = d.pick([None, [0], [1]])
    b.emit_all("Scan", [state, x], 2, body=inner, num_scan_inputs=1, scan_input_directions=reverse)
