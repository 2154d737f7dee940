"""One-operator models of every operator family, in shapes of real networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import onnx
from onnx import helper, numpy_helper

Array: TypeAlias = "np.ndarray[Any, Any]"
_OPSET = 20
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Given:
    """An input of a model; is_const: an initialiser instead."""

    array: Array
    is_const: bool = False


@dataclass(frozen=True)
class Row:
    """A model by name, made when called for."""

    name: str
    make: Callable[[], tuple[bytes, dict[str, Array]]]


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def x(*shape: int, scale: float = 1.0) -> Given:
    """Normal floats as an input."""
    return Given((_rng().standard_normal(shape) * scale).astype(np.float32))


def w(*shape: int) -> Given:
    """Normal floats as a constant."""
    return Given((_rng().standard_normal(shape) * 0.1).astype(np.float32), is_const=True)


def c(value: Any, dtype: Any = np.float32) -> Given:
    """A constant."""
    return Given(np.asarray(value, dtype), is_const=True)


def ints(low: int, high: int, *shape: int, dtype: Any = np.int64) -> Given:
    """Uniform integers as an input."""
    return Given(_rng().integers(low, high, shape).astype(dtype))


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
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString(), feeds


def _conv(x_shape: Sequence[int], out: int, kernel: int, op: str = "Conv", **attributes: Any) -> Step:
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


def _recurrent(op: str, steps: int, batch: int, inputs: int, hidden: int, both: bool = False) -> Step:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    d = 1 + both
    weights = w(d, gates * hidden, inputs), w(d, gates * hidden, hidden), w(d, 2 * gates * hidden)
    direction = "bidirectional" if both else "forward"
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    return step(op, x(steps, batch, inputs), *weights, hidden_size=hidden, direction=direction, **more)


def _bytes(shape: Sequence[int], dtype: Any = np.uint8) -> Given:
    return ints(0, 255, *shape, dtype=np.uint8) if dtype is np.uint8 else ints(-127, 127, *shape, dtype=dtype)


def _qdq(op: str, x_shape: Sequence[int], w_shape: Sequence[int], **attributes: Any) -> list[Step]:
    zero_x, zero_w = c(128, np.uint8), c(0, np.int8)
    return [
        step("QuantizeLinear", x(*x_shape), c(0.02), zero_x),
        step("DequantizeLinear", 0, c(0.02), zero_x),
        step("DequantizeLinear", const(_bytes(w_shape, np.int8)), c(0.005), zero_w),
        step(op, 1, 2, **attributes),
        step("QuantizeLinear", 3, c(0.2), zero_x),
        step("DequantizeLinear", 4, c(0.2), zero_x),
    ]


def _nbits(rows: int, k: int, n: int, block: int = 32) -> Step:
    packed = ints(0, 255, n, k // block, block // 2, dtype=np.uint8)
    scales = c(_rng().uniform(0.01, 0.02, n * k // block))
    inputs = x(rows, k), const(packed), scales
    return step("MatMulNBits", *inputs, K=k, N=n, bits=4, block_size=block, domain=_MICROSOFT)


def _nms(boxes: int, classes: int) -> Step:
    corners = _rng().uniform(0, 600, (1, boxes, 2))
    sizes = _rng().uniform(10, 80, (1, boxes, 2))
    both = Given(np.concatenate([corners, corners + sizes], -1).astype(np.float32))
    scores = Given(_rng().uniform(0, 1, (1, classes, boxes)).astype(np.float32))
    limits = c([100], np.int64), c([0.5]), c([0.3])
    return step("NonMaxSuppression", both, scores, *limits)


def _attention(tokens: int, width: int, heads: int) -> list[Step]:
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


def _layer(tokens: int, width: int) -> list[Step]:
    """The feed-forward half of a transformer's layer."""
    return [
        step("LayerNormalization", x(1, tokens, width), w(width), w(width), axis=-1),
        step("MatMul", 0, w(width, 4 * width)),
        step("Add", 1, w(4 * width)),
        step("Gelu", 2),
        step("MatMul", 3, w(4 * width, width)),
        step("Add", 4, w(width)),
    ]


def _if() -> tuple[bytes, dict[str, Array]]:
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


def _loop(steps: int) -> tuple[bytes, dict[str, Array]]:
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


def _quantized_linear(op: str, x_shape: Sequence[int], w_shape: Sequence[int], **attributes: Any) -> Step:
    zero_x, zero_w = c(128, np.uint8), c(0, np.int8)
    given = _bytes(x_shape), c(0.02), zero_x, const(_bytes(w_shape, np.int8)), c(0.005), zero_w, c(0.2), zero_x
    return step(op, *given, **attributes)


def _rois(count: int) -> tuple[Given, Given]:
    corners = _rng().uniform(0, 150, (count, 2))
    boxes = np.concatenate([corners, corners + _rng().uniform(10, 50, (count, 2))], -1)
    return Given(boxes.astype(np.float32)), Given(np.zeros(count, np.int64))


def _grid(height: int, width: int) -> Given:
    return Given(_rng().uniform(-1.05, 1.05, (1, height, width, 2)).astype(np.float32))


_IMAGE = (1, 64, 56, 56)


def _declared() -> Iterator[tuple[str, Callable[[], Sequence[Step]]]]:
    """Name, and the nodes, of each row."""
    yield "conv 3x3 stem stride 2, 224²", lambda: [_conv((1, 3, 224, 224), 32, 3, stride=2)]
    yield "conv 7x7 stem stride 2, 224²", lambda: [_conv((1, 3, 224, 224), 64, 7, stride=2)]
    yield "conv 3x3 64 to 64, 56²", lambda: [_conv(_IMAGE, 64, 3)]
    yield "conv 3x3 256 to 256, 14²", lambda: [_conv((1, 256, 14, 14), 256, 3)]
    yield "conv 3x3 512 to 512, 7²", lambda: [_conv((1, 512, 7, 7), 512, 3)]
    yield "conv 1x1 96 to 24, 56²", lambda: [_conv((1, 96, 56, 56), 24, 1)]
    yield "conv 1x1 stride 2 256 to 512, 28²", lambda: [_conv((1, 256, 28, 28), 512, 1, stride=2)]
    yield "conv 3x3 grouped by 32, 28²", lambda: [_conv((1, 256, 28, 28), 256, 3, group=32)]
    yield "conv 3x3 dilated 12, 28²", lambda: [_conv((1, 128, 28, 28), 64, 3, dilation=12)]
    yield "depthwise 3x3 144, 56²", lambda: [_conv((1, 144, 56, 56), 144, 3, group=144)]
    yield "depthwise 5x5 stride 2, 28²", lambda: [_conv((1, 240, 28, 28), 240, 5, stride=2, group=240)]
    yield "depthwise 7x7 96, 56²", lambda: [_conv((1, 96, 56, 56), 96, 7, group=96)]
    yield "depthwise 31x31 64, 28²", lambda: [_conv((1, 64, 28, 28), 64, 31, group=64)]
    yield "conv 1d 9 256, 400", lambda: [_conv((1, 256, 400), 256, 9)]
    yield "conv 1d stride 5 1 to 128, 16000", lambda: [_conv((1, 1, 16000), 128, 10, stride=5, pad=0)]
    yield "conv 3d 3³ 16 to 32, 16×28²", lambda: [_conv((1, 16, 16, 28, 28), 32, 3)]
    yield (
        "transposed 2x2 stride 2 128 to 64, 28²",
        lambda: [_conv((1, 128, 28, 28), 64, 2, "ConvTranspose", stride=2, pad=0)],
    )
    yield (
        "transposed 4x4 stride 2 64 to 32, 28²",
        lambda: [_conv((1, 64, 28, 28), 32, 4, "ConvTranspose", stride=2, pad=1)],
    )
    yield (
        "transposed 1d 16 stride 8 128 to 64, 200",
        lambda: [_conv((1, 128, 200), 64, 16, "ConvTranspose", stride=8, pad=4)],
    )
    yield (
        "transposed 3d 2³ stride 2 32 to 16, 8×14²",
        lambda: [_conv((1, 32, 8, 14, 14), 16, 2, "ConvTranspose", stride=2, pad=0)],
    )
    yield "QDQ conv 3x3 64 to 64, 28²", lambda: _qdq("Conv", (1, 64, 28, 28), (64, 64, 3, 3), pads=[1] * 4)
    yield (
        "QLinearConv 3x3 64 to 64, 28²",
        lambda: [_quantized_linear("QLinearConv", (1, 64, 28, 28), (64, 64, 3, 3), pads=[1] * 4)],
    )
    yield (
        "ConvInteger 1x1 128 to 128, 28²",
        lambda: [step("ConvInteger", _bytes((1, 128, 28, 28)), const(_bytes((128, 128, 1, 1))), c(120, np.uint8))],
    )
    yield (
        "QLinearConv depthwise 3x3 96, 28²",
        lambda: [_quantized_linear("QLinearConv", (1, 96, 28, 28), (96, 1, 3, 3), pads=[1] * 4, group=96)],
    )
    yield "MatMul 128×768 by 768×768", lambda: [step("MatMul", x(128, 768), w(768, 768))]
    yield "MatMul 1×1024 by 1024×1000", lambda: [step("MatMul", x(1, 1024), w(1024, 1000))]
    yield "Gemm transposed 32×512 by 512×256", lambda: [step("Gemm", x(32, 512), w(256, 512), w(256), transB=1)]
    yield "MatMul of two inputs 12×128×64", lambda: [step("MatMul", x(1, 12, 128, 64), x(1, 12, 64, 128))]
    yield (
        "MatMulInteger 64×512 by 512×512",
        lambda: [
            step(
                "MatMulInteger", _bytes((64, 512)), const(_bytes((512, 512), np.int8)), c(128, np.uint8), c(0, np.int8)
            )
        ],
    )
    yield (
        "MatMulInteger of two inputs 64×512×512",
        lambda: [
            step("MatMulInteger", _bytes((64, 512)), _bytes((512, 512), np.uint8), c(128, np.uint8), c(128, np.uint8))
        ],
    )
    yield (
        "DynamicQuantizeLinear, MatMulInteger 64×512×512",
        lambda: [
            step("DynamicQuantizeLinear", x(64, 512), outputs=3),
            step("MatMulInteger", 0, const(_bytes((512, 512), np.int8))),
            step("Cast", 1, to=1),
        ],
    )
    yield "QDQ MatMul 64×512×512", lambda: _qdq("MatMul", (64, 512), (512, 512))
    yield "QLinearMatMul 64×512×512", lambda: [_quantized_linear("QLinearMatMul", (64, 512), (512, 512))]
    yield "MatMulNBits 1×1024×1024", lambda: [_nbits(1, 1024, 1024)]
    yield "MatMulNBits 64×1024×1024", lambda: [_nbits(64, 1024, 1024)]
    yield "attention of parts, 197 tokens, 6 heads", lambda: _attention(197, 384, 6)
    yield (
        "MultiHeadAttention 128 tokens, 12 heads",
        lambda: [
            step("MultiHeadAttention", *(x(1, 128, 768, scale=s) for s in (1, 2, 3)), num_heads=12, domain=_MICROSOFT)
        ],
    )
    yield "feed-forward of 197 tokens, 384", lambda: _layer(197, 384)
    yield "LSTM 100 steps, 128 to 256", lambda: [_recurrent("LSTM", 100, 1, 128, 256)]
    yield "LSTM both ways 50 steps, batch 8, 128", lambda: [_recurrent("LSTM", 50, 8, 128, 128, both=True)]
    yield "LSTM 1 step 64", lambda: [_recurrent("LSTM", 1, 1, 64, 64)]
    yield "GRU 100 steps, 64 to 128", lambda: [_recurrent("GRU", 100, 1, 64, 128)]
    yield "RNN 100 steps, 64 to 128", lambda: [_recurrent("RNN", 100, 1, 64, 128)]
    yield (
        "MaxPool 3x3 stride 2, 112²",
        lambda: [step("MaxPool", x(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)],
    )
    yield "MaxPool 5x5, 20²", lambda: [step("MaxPool", x(1, 128, 20, 20), kernel_shape=[5, 5], pads=[2] * 4)]
    yield (
        "MaxPool with positions 2x2, 56²",
        lambda: [step("MaxPool", x(*_IMAGE), outputs=2, kernel_shape=[2, 2], strides=[2, 2])],
    )
    yield "AveragePool 3x3, 56²", lambda: [step("AveragePool", x(*_IMAGE), kernel_shape=[3, 3], pads=[1] * 4)]
    yield "GlobalAveragePool 512, 14²", lambda: [step("GlobalAveragePool", x(1, 512, 14, 14))]
    yield "LayerNormalization 197×384", lambda: [step("LayerNormalization", x(1, 197, 384), w(384), w(384), axis=-1)]
    yield "InstanceNormalization 64, 56²", lambda: [step("InstanceNormalization", x(*_IMAGE), w(64), w(64))]
    yield (
        "GroupNormalization by 8 of 64, 56²",
        lambda: [
            step("Reshape", x(*_IMAGE), c([1, 8, -1], np.int64)),
            step("InstanceNormalization", 0, w(8), w(8)),
            step("Reshape", 1, c(_IMAGE, np.int64)),
        ],
    )
    yield (
        "BatchNormalization 64, 56²",
        lambda: [step("BatchNormalization", x(*_IMAGE), w(64), w(64), w(64), c(np.ones(64)))],
    )
    yield "LRN 64, 56²", lambda: [step("LRN", x(*_IMAGE), size=5)]
    yield "Softmax of 1000, 64 rows", lambda: [step("Softmax", x(64, 1000), axis=-1)]
    yield "Softmax of channels 21, 65²", lambda: [step("Softmax", x(1, 21, 65, 65), axis=1)]
    yield "ReduceMean of rows 197×384", lambda: [step("ReduceMean", x(1, 197, 384), c([-1], np.int64))]
    yield "ReduceMax of channels 64, 56²", lambda: [step("ReduceMax", x(*_IMAGE), c([1], np.int64))]
    yield "ReduceLogSumExp of rows 64×1000", lambda: [step("ReduceLogSumExp", x(64, 1000), c([-1], np.int64))]
    yield "ArgMax of channels 21, 65²", lambda: [step("ArgMax", x(1, 21, 65, 65), axis=1)]
    yield "CumSum of 64×1000", lambda: [step("CumSum", x(64, 1000), c(1, np.int64))]
    yield "TopK 100 of 8400", lambda: [step("TopK", x(1, 8400), c([100], np.int64), outputs=2)]
    yield "TopK all of 2000", lambda: [step("TopK", x(1, 2000), c([2000], np.int64), outputs=2)]
    yield "Gather 128 rows of 768", lambda: [step("Gather", w(30000, 768), ints(0, 30000, 1, 128))]
    yield "GatherElements 64×1000", lambda: [step("GatherElements", x(64, 1000), ints(0, 64, 64, 1000), axis=0)]
    yield "GatherND 500 of 64×64×32", lambda: [step("GatherND", x(64, 64, 32), ints(0, 64, 500, 2))]
    yield "ScatterND 200 rows of 1000×64", lambda: [step("ScatterND", x(1000, 64), ints(0, 1000, 200, 1), x(200, 64))]
    yield (
        "ScatterElements add 64×1000",
        lambda: [step("ScatterElements", x(64, 1000), ints(0, 64, 64, 1000), x(64, 1000), axis=0, reduction="add")],
    )
    yield "Resize linear 2, 40²", lambda: [step("Resize", x(1, 64, 40, 40), None, c([1, 1, 2, 2]), mode="linear")]
    yield (
        "Resize cubic to 96 of 64²",
        lambda: [step("Resize", x(1, 16, 64, 64), None, c([1, 1, 1.5, 1.5]), mode="cubic")],
    )
    yield "Resize nearest 2, 40²", lambda: [
        step("Resize", x(1, 64, 40, 40), None, c([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")
    ]  # fmt: skip
    yield "GridSample 32, 64²", lambda: [step("GridSample", x(1, 32, 64, 64), _grid(64, 64))]
    yield "RoiAlign 64 of 32 channels", lambda: [
        step("RoiAlign", x(1, 32, 50, 50), *_rois(64), output_height=7, output_width=7, sampling_ratio=2,
             spatial_scale=0.25)
    ]  # fmt: skip
    yield "MaxRoiPool 32 of 32 channels", lambda: [
        step("MaxRoiPool", x(1, 32, 50, 50),
             Given(np.concatenate([np.zeros((32, 1), np.float32), _rois(32)[0].array], 1)),
             pooled_shape=[7, 7], spatial_scale=0.25)
    ]  # fmt: skip
    yield "NonMaxSuppression 1000 boxes, 1 class", lambda: [_nms(1000, 1)]
    yield "NonMaxSuppression 2000 boxes, 20 classes", lambda: [_nms(2000, 20)]
    yield "Transpose to channels last 64, 56²", lambda: [step("Transpose", x(*_IMAGE), perm=[0, 2, 3, 1])]
    yield "Concat of two 64, 56²", lambda: [step("Concat", x(*_IMAGE), x(*_IMAGE, scale=2), axis=1)]
    yield (
        "Slice every second 64, 56²",
        lambda: [
            step(
                "Slice",
                x(*_IMAGE),
                c([0, 0], np.int64),
                c([56, 56], np.int64),
                c([2, 3], np.int64),
                c([2, 2], np.int64),
            )
        ],
    )
    yield (
        "Pad reflected 3, 56²",
        lambda: [step("Pad", x(*_IMAGE), c([0, 0, 3, 3, 0, 0, 3, 3], np.int64), mode="reflect")],
    )
    yield "DepthToSpace 2 64, 56²", lambda: [step("DepthToSpace", x(*_IMAGE), blocksize=2)]
    yield "elementwise Add, 64×56²", lambda: [step("Add", x(*_IMAGE), x(*_IMAGE, scale=2))]
    yield (
        "elementwise Erf-GELU 197×1536",
        lambda: [
            step("Div", x(1, 197, 1536), c(1.4142135)),
            step("Erf", 0),
            step("Add", 1, c(1.0)),
            step("Mul", 2, c(0.5)),
        ],
    )
    yield "elementwise Sin, Exp 64×1000", lambda: [step("Sin", x(64, 1000)), step("Exp", 0)]
    yield (
        "elementwise int64 Add, Mul 1×4096",
        lambda: [
            step("Add", ints(0, 1000, 1, 4096), c(3, np.int64)),
            step("Mul", 0, c(7, np.int64)),
        ],
    )
    yield (
        "Where by a mask 12×128²",
        lambda: [step("Where", Given(_rng().random((1, 1, 128, 128)) < 0.5), x(1, 12, 128, 128), c(-1e9))],
    )
    yield (
        "Cast to uint8 and back 3×224²",
        lambda: [
            step("Cast", ints(0, 255, 1, 3, 224, 224, dtype=np.uint8), to=1),
            step("Mul", 0, c(1 / 255)),
        ],
    )
    yield "QuantizeLinear 64, 56²", lambda: [step("QuantizeLinear", x(*_IMAGE), c(0.02), c(128, np.uint8))]
    yield "Einsum bhwc,hkc->bhwk", lambda: [step("Einsum", x(12, 14, 14, 64), w(14, 14, 64), equation="bhwc,hkc->bhwk")]
    yield "DFT 64×512", lambda: [step("DFT", x(64, 512, 1), None, c(1, np.int64))]
    yield "STFT 16000 by 160 of 400", lambda: [step("STFT", x(1, 16000, 1), c(160, np.int64), c(np.hanning(400)))]
    yield "RotaryEmbedding 128 tokens, 8×64", lambda: [
        step("RotaryEmbedding", x(1, 8, 128, 64), c(np.arange(128)[None], np.int64), w(128, 32), w(128, 32),
             domain=_MICROSOFT)
    ]  # fmt: skip
    yield "SkipLayerNormalization 128×768", lambda: [
        step("SkipLayerNormalization", x(1, 128, 768), x(1, 128, 768, scale=2), w(768), w(768), w(768),
             domain=_MICROSOFT)
    ]  # fmt: skip
    yield "NonZero of 64×64", lambda: [step("NonZero", Given((_rng().random((64, 64)) < 0.3).astype(np.float32)))]
    yield "OneHot 128 of 1000", lambda: [step("OneHot", ints(0, 1000, 128), c(1000, np.int64), c([0, 1]))]
    yield "Col2Im 2x2, 32²", lambda: [step("Col2Im", x(1, 64, 1024), c([33, 33], np.int64), c([2, 2], np.int64))]


def rows() -> list[Row]:
    """Every row."""
    made = [Row(name, lambda steps=steps: chain(*steps())) for name, steps in _declared()]  # type: ignore[misc]
    return [*made, Row("If, a branch by data", _if), Row("Loop 32 steps of 256×256", lambda: _loop(32))]
