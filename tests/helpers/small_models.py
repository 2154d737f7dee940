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


def transformer_block(length: int | str = "S", width: int = 64, heads: int = 4) -> Any:
    """Self-attention with a residual and layer normalisation, then a matrix product: x [1, length, width] to y."""
    split = {"heads": np.array([0, 0, heads, width // heads]), "whole": np.array([0, 0, width])}
    nodes = []
    for name in "qkv":
        nodes.append(helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}0"], name=f"project_{name}"))
        nodes.append(helper.make_node("Reshape", [f"{name}0", "heads"], [f"{name}1"]))
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(helper.make_node("Transpose", [f"{name}1"], [name], perm=perm))
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["scores"], name="scores"),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"], name="mix"),
        helper.make_node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "whole"], ["joined"]),
        helper.make_node("Add", ["joined", "x"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "gain", "offset"], ["normal"]),
        helper.make_node("MatMul", ["normal", "wo"], ["y"], name="out"),
    ]
    constants = {f"w{name}": noise(width, width, seed=i) / width**0.5 for i, name in enumerate("qkvo")}
    constants |= split | {"scale": np.float32((width / heads) ** -0.5), "gain": noise(width), "offset": noise(width)}
    return make_model(nodes, [port("x", [1, length, width])], [port("y", [1, length, width])], constants)


def tagger(steps: int = 7, inputs: int = 5, hidden: int = 16) -> Any:
    """A bidirectional LSTM and a matrix product: x [steps, 1, inputs] to y [steps, 1, 3]."""
    nodes = [
        helper.make_node(
            "LSTM", ["x", "w", "r", "b"], ["h"], name="lstm", hidden_size=hidden, direction="bidirectional"
        ),
        helper.make_node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "rows"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["y"], name="head"),
    ]
    constants = {
        "w": noise(2, 4 * hidden, inputs) / 3,
        "r": noise(2, 4 * hidden, hidden) / 4,
        "b": noise(2, 8 * hidden) / 3,
        "rows": np.array([steps, 1, 2 * hidden]),
        "head": noise(2 * hidden, 3) / 4,
    }
    return make_model(nodes, [port("x", [steps, 1, inputs])], [port("y", [steps, 1, 3])], constants)


def dense(size: int = 12) -> Any:
    """A stem that is split, two layers that are joined with all before them, and a head: x [1, 16, size, size] to y."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["stem"], name="stem", pads=[1] * 4),
        helper.make_node("Split", ["stem"], ["a", "b"], name="split", axis=1, num_outputs=2),
        helper.make_node("Conv", ["b", "w1"], ["c0"], name="c1", pads=[1] * 4),
        helper.make_node("Relu", ["c0"], ["c"]),
        helper.make_node("Concat", ["a", "b", "c"], ["d"], name="join1", axis=1),
        helper.make_node("Conv", ["d", "w2"], ["e0"], name="c2", pads=[1] * 4),
        helper.make_node("Relu", ["e0"], ["e"]),
        helper.make_node("Concat", ["d", "e"], ["f"], name="join2", axis=1),
        helper.make_node("Conv", ["f", "w3"], ["y"], name="head"),
    ]
    constants = {
        "w0": noise(32, 16, 3, 3, seed=1) / 12,
        "w1": noise(16, 16, 3, 3, seed=2) / 12,
        "w2": noise(16, 48, 3, 3, seed=3) / 20,
        "w3": noise(8, 64, 1, 1, seed=4) / 8,
    }
    return make_model(nodes, [port("x", [1, 16, size, size])], [port("y", None)], constants)


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
