"""Files saved by onnxruntime in channel blocks (NCHWc) give the results of the original model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx.helper as oh
import pytest

import onnx
from onnx import numpy_helper
from opalite.errors import ModelFormatError
from opalite.importer.proto.undo_nchwc import NCHWC, Blocked, likelier_block

from ....helpers.numpy_session import NumpySession

Array = np.ndarray[Any, Any]


class Net:
    """Builder of a small network. `x` is its input [1,C,12,12], optionally with dynamic height and width."""

    def __init__(self, channels: int, size: Any = 12, trained: bool = False) -> None:
        self.rng = np.random.default_rng(channels)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.shape = [1, channels, size, size]
        self.trained = trained
        self.numbers = count()

    def const(self, *shape: int) -> str:
        array = self.rng.standard_normal(shape).astype(np.float32) * 0.3
        if self.trained and len(shape) > 1:
            array *= np.exp(self.rng.standard_normal((shape[0], *(1,) * (len(shape) - 1)))).astype(np.float32)
        return self.keep(array)

    def keep(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def op(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{next(self.numbers)}"
        self.nodes.append(oh.make_node(op_type, list(inputs), [name], **attrs))
        return name

    def conv(self, x: str, m: int, c: int, k: int = 3, group: int = 1, **attrs: Any) -> str:
        attrs = {"pads": [k // 2] * 4, "group": group, **attrs}
        return self.op("Conv", x, self.const(m, c // group, k, k), self.const(m), **attrs)

    def model(self, *outputs: str, opset: int = 17) -> onnx.ModelProto:
        graph = oh.make_graph(
            self.nodes,
            "g",
            [oh.make_tensor_value_info("x", 1, self.shape)],
            [oh.make_tensor_value_info(o, 1, None) for o in outputs],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )
        return oh.make_model(graph, opset_imports=[oh.make_opsetid("", opset)], ir_version=9)


def chain(net: Net) -> str:
    """Channels that fill no block, residuals, and activations with parameters."""
    a = net.op("Relu", net.conv("x", 20, 3))
    b = net.op("LeakyRelu", net.conv(a, 20, 20), alpha=0.2)
    c = net.op("Add", net.conv(b, 20, 20, 1), a)
    d = net.op("Clip", net.conv(c, 36, 20, strides=[2, 2]), net.keep(np.float32(0)), net.keep(np.float32(6)))
    return net.conv(d, 12, 36, 1)


def depthwise(net: Net) -> str:
    a = net.op("HardSigmoid", net.conv("x", 32, 3), alpha=0.3)
    b = net.conv(a, 32, 32, group=32)
    return net.conv(net.conv(b, 64, 32, group=2), 20, 64, 1)


def squeezed(net: Net) -> str:
    a = net.conv("x", 24, 3)
    s = net.op("Sigmoid", net.conv(net.op("GlobalAveragePool", a), 24, 24, 1))
    return net.conv(net.op("Mul", a, s), 8, 24, 1)


def joined(net: Net) -> str:
    a, b = net.conv("x", 32, 3), net.conv("x", 16, 3, 1)
    y = net.op("Concat", a, b, axis=1)
    return net.conv(net.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 20, 48)


def pooled(net: Net) -> str:
    a = net.conv("x", 16, 3)
    b = net.op("AveragePool", a, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    c = net.op("AveragePool", a, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return net.op("GlobalMaxPool", net.op("Add", b, c))


def normalised(net: Net) -> str:
    a = net.op("Relu", net.conv("x", 20, 3))
    scale, shift, mean = (net.const(20) for _ in range(3))
    b = net.op("BatchNormalization", a, scale, shift, mean, net.keep(np.full(20, 0.5, np.float32)))
    return net.op("Tanh", net.op("Add", a, b))


def enlarged(net: Net) -> str:
    a = net.conv("x", 20, 3)
    scales = net.keep(np.array([1, 1, 2, 3], np.float32))
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    b = net.op("Resize", a, "", scales, mode="nearest", **attrs)
    c = net.op("Resize", a, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    d = net.op("Resize", a, "", scales, mode="linear", coordinate_transformation_mode="align_corners")
    return net.conv(net.op("Add", net.op("Add", b, c), d), 5, 20)


def channels_last(net: Net) -> str:
    a = net.op("Transpose", net.conv("x", 20, 3), perm=[0, 2, 3, 1])
    b = net.op("Transpose", net.op("Exp", a), perm=[0, 3, 1, 2])
    return net.op("Transpose", net.conv(b, 12, 20), perm=[0, 2, 3, 1])


def from_plain(net: Net) -> str:
    """Tensors that become blocked midway, with channels that the reader's filter does not use."""
    a = net.op("Concat", *["x"] * 8, axis=1)
    w = net.rng.standard_normal((20, 24, 3, 3)).astype(np.float32)
    w[:, 21:] = 0
    return net.op("Add", net.op("Conv", a, net.keep(w)), net.op("Conv", a, net.const(20, 24, 3, 3)))


NETS: list[Callable[[Net], str]] = [
    *(chain, depthwise, squeezed, joined, pooled, normalised, enlarged, channels_last, from_plain)
]


@pytest.mark.parametrize("size", [12, "side"])
@pytest.mark.parametrize("build", NETS)
def test_a_saved_model_gives_the_original_s_answers(build: Callable[[Net], str], size: Any, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    net = Net(3, size)
    model = net.model(build(net)).SerializeToString()
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.log_severity_level = 4
    x = net.rng.standard_normal((1, 3, 12, 12)).astype(np.float32)
    (want,) = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    saved = (tmp_path / "saved.onnx").read_bytes()
    if not any(n.domain == NCHWC for n in onnx.ModelProto.FromString(saved).graph.node):
        pytest.skip("onnxruntime has no blocks on this CPU")
    (got,) = NumpySession(saved).run({"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# Blocks of either size, whatever CPU this is


def blocked(w: Array, block: int, blocks_inputs: bool) -> Array:
    """Return a plain filter in blocks, its dimensions rounded up."""
    m, c, h, k = w.shape
    rows, channels = -(-m // block) * block, -(-c // block) * block if blocks_inputs else c
    padded = np.zeros((rows, channels, h, k), w.dtype)
    padded[:m, :c] = w
    if blocks_inputs:
        cut = padded.reshape(rows // block, block, channels // block, block, h, k).transpose(0, 2, 4, 5, 3, 1)
    else:
        cut = padded.reshape(rows // block, block, channels, h, k).transpose(0, 2, 3, 4, 1)
    return np.ascontiguousarray(cut).reshape(padded.shape)


def rounded_up(bias: Array, block: int) -> Array:
    return np.concatenate([bias, np.zeros(-len(bias) % block, bias.dtype)])


def saved_by_hand(
    block: int, middle: int, trained: bool = False, split: bool = False
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return (plain, blocked) models of two convolutions, 3 to `middle` to 16 channels.

    split: the input of the second is added to its output, with blocks as an axis.
    """
    net = Net(3, trained=trained)
    end = middle if split else 16
    a = net.op("Relu", net.conv("x", middle, 3))
    b = net.conv(a, end, middle)
    y = net.op("Add", a, b) if split else b
    plain = net.model(y)
    c = net.constants
    c["c0"], c["c2"] = blocked(c["c0"], block, False), blocked(c["c2"], block, True)
    c["c1"], c["c3"] = rounded_up(c["c1"], block), rounded_up(c["c3"], block)
    first, second = net.nodes[0], net.nodes[2]
    for node in (first, second):
        node.domain = NCHWC
    first.attribute.append(oh.make_attribute("activation", "Relu"))
    first.output[0] = a
    net.nodes = [first, second]
    if split:
        wide = c["c1"].shape[0]
        apart = net.keep(np.array([0, wide // block, 0, 0, block]))
        whole = net.keep(np.array([0, wide, 0, 0]))
        total = net.op("Add", *(net.op("Reshape", v, apart) for v in (a, b)))
        b = net.op("Reshape", total, whole)
    net.op("ReorderOutput", b, domain=NCHWC, channels=end)
    result = net.model(net.nodes[-1].output[0])
    result.opset_import.append(oh.make_opsetid(NCHWC, 1))
    return plain, result


def assert_equal_answers(plain: onnx.ModelProto, made: onnx.ModelProto) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)
    (want,), (got,) = (NumpySession(m.SerializeToString()).run({"x": x}) for m in (plain, made))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("block", "middle", "trained", "split"),
    [
        (8, 24, False, False),  # 24 is no multiple of 16
        (16, 20, True, False),  # rounded up to 32
        (16, 32, False, False),  # nothing tells the block size: 16
        (8, 32, True, False),  # the contents tell
        (16, 32, True, False),
        (8, 32, False, True),  # a Reshape tells
        (8, 20, False, True),
        (16, 36, False, True),
    ],
)
def test_blocks_of_either_size(block: int, middle: int, trained: bool, split: bool) -> None:
    assert_equal_answers(*saved_by_hand(block, middle, trained, split))


@pytest.mark.parametrize("blocks_inputs", [True, False])
@pytest.mark.parametrize("block", [8, 16])
def test_a_filter_in_blocks_is_put_back(block: int, blocks_inputs: bool) -> None:
    w = np.random.default_rng(0).standard_normal((20, 40, 3, 2)).astype(np.float32)
    held = Blocked(blocked(w, block, blocks_inputs), blocks_inputs)
    assert held.fits(block)
    np.testing.assert_array_equal(held.plain(block, (20, 40)), w)
    if blocks_inputs:
        w[:, 35:] = 0
        assert Blocked(blocked(w, block, blocks_inputs), blocks_inputs).used_channels(block) == 35


def test_filters_without_order_speak_for_the_first_block_size() -> None:
    rng = np.random.default_rng(1)
    filters = [Blocked(rng.standard_normal((64, 32, 3, 3)).astype(np.float32), True) for _ in range(5)]
    assert likelier_block(filters, (16, 8)) == 16
    assert likelier_block(filters, (8, 16)) == 8


def test_a_filter_that_no_block_fits_is_refused() -> None:
    _, made = saved_by_hand(8, 24)
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((23, 3, 3, 3), np.float32), "c0"))
    with pytest.raises(ModelFormatError, match="ORT_ENABLE_EXTENDED"):
        NumpySession(made.SerializeToString())


def test_a_filter_that_is_no_constant_is_refused() -> None:
    _, made = saved_by_hand(8, 24)
    del made.graph.initializer[0]
    made.graph.input.append(oh.make_tensor_value_info("c0", 1, [24, 3, 3, 3]))
    with pytest.raises(ModelFormatError, match="no constant"):
        NumpySession(made.SerializeToString())
