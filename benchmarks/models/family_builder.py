"""Builders of small models for families.py: a few nodes with their inputs, weights and random values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import onnx
from onnx import helper, numpy_helper

Array: TypeAlias = "np.ndarray[Any, Any]"
_OPSET = 20
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Given:
    """An input of a model; is_const: an initialiser instead."""

    array: Array
    is_const: bool = False


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def x(*shape: int, scale: float = 1.0) -> Given:
    """Normal floats as an input."""
    return Given((generator().standard_normal(shape) * scale).astype(np.float32))


def w(*shape: int) -> Given:
    """Normal floats as a constant."""
    return Given((generator().standard_normal(shape) * 0.1).astype(np.float32), is_const=True)


def c(value: Any, dtype: Any = np.float32) -> Given:
    """A constant."""
    return Given(np.asarray(value, dtype), is_const=True)


def ints(low: int, high: int, *shape: int, dtype: Any = np.int64) -> Given:
    """Uniform integers as an input."""
    return Given(generator().integers(low, high, shape).astype(dtype))


def const(given: Given) -> Given:
    """The same as a constant."""
    return Given(given.array, is_const=True)


Step: TypeAlias = "tuple[str, Sequence[Any], int, Mapping[str, Any]]"
"""Operator, inputs (Given, the number of an earlier step's result, or None), number of outputs, attributes."""


def step(op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Step:
    """One node; `domain` and `kept` (the number of the output that counts) are among the attributes."""
    return op, inputs, outputs, attributes


def chain(*steps: Step) -> tuple[bytes, dict[str, Array]]:
    """A model of the given nodes; the results of the last one are its outputs."""
    nodes, inputs, weights = [], [], []
    feeds: dict[str, Array] = {}
    made: list[str] = []
    known: dict[int, str] = {}

    def name_of(given: Any) -> str:
        if given is None:
            return ""
        if isinstance(given, int):
            return made[given]
        if id(given) in known:
            return known[id(given)]
        name = known[id(given)] = f"{'w' if given.is_const else 'x'}{len(known)}"
        if given.is_const:
            weights.append(numpy_helper.from_array(given.array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(given.array.dtype)
            inputs.append(helper.make_tensor_value_info(name, kind, given.array.shape))
            feeds[name] = given.array
        return name

    last: list[str] = []
    for number, (op, given, outputs, attributes) in enumerate(steps):
        last = [f"y{number}"] + [f"y{number}_{k}" for k in range(1, outputs)]
        nodes.append(helper.make_node(op, [name_of(g) for g in given], last, **attributes))
        made.append(last[0])
    ports = [helper.make_empty_tensor_value_info(name) for name in last]
    graph = helper.make_graph(nodes, "family", inputs, ports, weights)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString(), feeds


def conv(x_shape: Sequence[int], out: int, kernel: int, op: str = "Conv", **attributes: Any) -> Step:
    """A convolution that keeps the size at stride 1."""
    group, spatial = attributes.get("group", 1), len(x_shape) - 2
    stride, dilation = attributes.pop("stride", 1), attributes.pop("dilation", 1)
    pad = attributes.pop("pad", dilation * (kernel - 1) // 2)
    transposed = op == "ConvTranspose"
    shape = (x_shape[1], out // group) if transposed else (out, x_shape[1] // group)
    return step(
        op,
        x(*x_shape),
        w(*shape, *(kernel,) * spatial),
        w(out),
        strides=[stride] * spatial,
        pads=[pad] * (2 * spatial),
        dilations=[dilation] * spatial,
        **attributes,
    )


def recurrent(op: str, steps: int, batch: int, inputs: int, hidden: int, both: bool = False) -> Step:
    """An LSTM, GRU or RNN."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    d = 1 + both
    weights = w(d, gates * hidden, inputs), w(d, gates * hidden, hidden), w(d, 2 * gates * hidden)
    direction = "bidirectional" if both else "forward"
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    return step(op, x(steps, batch, inputs), *weights, hidden_size=hidden, direction=direction, **more)


def rand8(shape: Sequence[int], dtype: Any = np.uint8) -> Given:
    """Random 8-bit integers as an input."""
    return ints(0, 255, *shape, dtype=np.uint8) if dtype is np.uint8 else ints(-127, 127, *shape, dtype=dtype)


def qdq(op: str, x_shape: Sequence[int], w_shape: Sequence[int], **attributes: Any) -> list[Step]:
    """A product between quantisations."""
    zero_x, zero_w = c(128, np.uint8), c(0, np.int8)
    return [
        step("QuantizeLinear", x(*x_shape), c(0.02), zero_x),
        step("DequantizeLinear", 0, c(0.02), zero_x),
        step("DequantizeLinear", const(rand8(w_shape, np.int8)), c(0.005), zero_w),
        step(op, 1, 2, **attributes),
        step("QuantizeLinear", 3, c(0.2), zero_x),
        step("DequantizeLinear", 4, c(0.2), zero_x),
    ]


def nbits(rows: int, k: int, n: int, block: int = 32) -> Step:
    """A product with a constant of 4 bits."""
    packed = ints(0, 255, n, k // block, block // 2, dtype=np.uint8)
    scales = c(generator().uniform(0.01, 0.02, n * k // block))
    inputs = x(rows, k), const(packed), scales
    return step("MatMulNBits", *inputs, K=k, N=n, bits=4, block_size=block, domain=MICROSOFT)


def nms(boxes: int, classes: int) -> Step:
    """Suppression among random boxes."""
    corners = generator().uniform(0, 600, (1, boxes, 2))
    sizes = generator().uniform(10, 80, (1, boxes, 2))
    both = Given(np.concatenate([corners, corners + sizes], -1).astype(np.float32))
    scores = Given(generator().uniform(0, 1, (1, classes, boxes)).astype(np.float32))
    limits = c([100], np.int64), c([0.5]), c([0.3])
    return step("NonMaxSuppression", both, scores, *limits)


def attention(tokens: int, width: int, heads: int) -> list[Step]:
    """Attention as exporters write it."""
    head = width // heads
    shape = c([1, tokens, heads, head], np.int64)
    return [
        *(step("Reshape", x(1, tokens, width, scale=s), shape) for s in (1.0, 0.9, 0.8)),
        step("Transpose", 0, perm=[0, 2, 1, 3]),
        step("Transpose", 1, perm=[0, 2, 3, 1]),
        step("Transpose", 2, perm=[0, 2, 1, 3]),
        step("MatMul", 3, 4),
        step("Mul", 6, c(head**-0.5)),
        step("Softmax", 7, axis=-1),
        step("MatMul", 8, 5),
        step("Transpose", 9, perm=[0, 2, 1, 3]),
        step("Reshape", 10, c([1, tokens, width], np.int64)),
    ]


def layer(tokens: int, width: int) -> list[Step]:
    """The feed-forward half of a transformer's layer."""
    return [
        step("LayerNormalization", x(1, tokens, width), w(width), w(width), axis=-1),
        step("MatMul", 0, w(width, 4 * width)),
        step("Add", 1, w(4 * width)),
        step("Gelu", 2),
        step("MatMul", 3, w(4 * width, width)),
        step("Add", 4, w(width)),
    ]


def branch_by_data() -> tuple[bytes, dict[str, Array]]:
    """A branch by a condition that the data give."""

    def body(name: str, op: str) -> onnx.GraphProto:
        port = helper.make_tensor_value_info(name, 1, (1, 64, 56, 56))
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [port])

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "limit"], ["is_large"]),
        helper.make_node("If", ["is_large"], ["y"], then_branch=body("a", "Relu"), else_branch=body("b", "Neg")),
    ]
    feeds = {"x": x(1, 64, 56, 56).array}
    ports = helper.make_tensor_value_info("x", 1, (1, 64, 56, 56)), helper.make_empty_tensor_value_info("y")
    limit = numpy_helper.from_array(np.array(2, np.float32), "limit")
    graph = helper.make_graph(nodes, "if", [ports[0]], [ports[1]], [limit])
    opsets = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), feeds


def loop(steps: int) -> tuple[bytes, dict[str, Array]]:
    """A loop of small products over a carried state."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["u"]),
            helper.make_node("Tanh", ["u"], ["v"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [info("i", 7, ()), info("go", 9, ()), info("h", 1, (1, 256))],
        [info("on", 9, ()), info("v", 1, (1, 256))],
    )
    node = helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)
    weights = [numpy_helper.from_array(w(256, 256).array, "w"), numpy_helper.from_array(np.array(steps), "steps")]
    graph = helper.make_graph(
        [node], "loop", [info("x", 1, (1, 256))], [helper.make_empty_tensor_value_info("y")], weights
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString(), {"x": x(1, 256).array}


def quantized_linear(op: str, x_shape: Sequence[int], w_shape: Sequence[int], **attributes: Any) -> Step:
    """A product with scales and zero points as inputs."""
    zero_x, zero_w = c(128, np.uint8), c(0, np.int8)
    given = (
        rand8(x_shape),
        c(0.02),
        zero_x,
        const(rand8(w_shape, np.int8)),
        c(0.005),
        zero_w,
        c(0.2),
        zero_x,
    )
    return step(op, *given, **attributes)


def rois(count: int) -> tuple[Given, Given]:
    """Random regions, and the image of each."""
    corners = generator().uniform(0, 150, (count, 2))
    boxes = np.concatenate([corners, corners + generator().uniform(10, 50, (count, 2))], -1)
    return Given(boxes.astype(np.float32)), Given(np.zeros(count, np.int64))


def grid(height: int, width: int) -> Given:
    """Random positions, some outside."""
    return Given(generator().uniform(-1.05, 1.05, (1, height, width, 2)).astype(np.float32))
