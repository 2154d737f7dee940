"""Small seeded ONNX models that tests of sessions and commands run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


def noise(*shape: int, seed: int = 0) -> Any:
    """Seeded float32 noise."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def port(name: str, shape: Sequence[int | str] | None, dtype: int = FLOAT) -> Any:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def make_model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
    domains: Sequence[str] = (),
) -> Any:
    """A ModelProto of `nodes`."""
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="tests")


def one_node(op: str, inputs: Sequence[str], ports: Sequence[Any], constants: Mapping[str, Any], **attrs: Any) -> Any:
    """A model of one node, called 'culprit', with the output y."""
    node = helper.make_node(op, inputs, ["y"], name="culprit", **attrs)
    return make_model([node], ports, [port("y", None)], constants)


def classifier(size: Sequence[int | str] = ("N", 3, "H", "W"), channels: int = 8, classes: int = 10) -> Any:
    """conv1 3x3, relu1, conv2 1x1, gap, flat, fc, prob: x of `size` to y [N, classes]."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], name="conv1", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], name="conv2", kernel_shape=[1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"], name="gap"),
        helper.make_node("Flatten", ["d"], ["e"], name="flat"),
        helper.make_node("Gemm", ["e", "w3", "b3"], ["f"], name="fc"),
        helper.make_node("Softmax", ["f"], ["y"], name="prob", axis=1),
    ]
    constants = {
        "w1": noise(channels, 3, 3, 3, seed=1) / 5,
        "b1": noise(channels, seed=2),
        "w2": noise(channels, channels, 1, 1, seed=3) / 3,
        "w3": noise(channels, classes, seed=4) / 3,
        "b3": noise(classes, seed=5),
    }
    return make_model(nodes, [port("x", size)], [port("y", [size[0], classes])], constants)


def inverter(shape: Sequence[int | str] = (1, 3, 8, 8)) -> Any:
    """y = 1 - x: the negative of a picture with values in [0, 1]."""
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="neg"),
        helper.make_node("Add", ["a", "one"], ["y"], name="add"),
    ]
    return make_model(nodes, [port("x", shape)], [port("y", shape)], {"one": np.float32(1)})


def adder() -> Any:
    """y = x + z; x [2, 3], z [n, 3]."""
    node = helper.make_node("Add", ["x", "z"], ["y"], name="add")
    return make_model([node], [port("x", [2, 3]), port("z", ["n", 3])], [port("y", ["n", 3])])


def determinant() -> Any:
    """relu on the device, then a determinant, which only the host knows: x [n, n] to y []."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Det", ["a"], ["y"], name="det"),
    ]
    return make_model(nodes, [port("x", ["n", "n"])], [port("y", [])])


def save(model: Any, path: Any) -> str:
    """Write the model; its path as text."""
    onnx.save(model, path)
    return str(path)
