"""Small models in which tensors without elements stand beside others, and feeds for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper as oh

from onnx import numpy_helper

N, F = oh.make_node, np.float32
Array = np.ndarray[Any, Any]


def _zeros(*shape: int) -> Array:
    return np.zeros(shape, F)


def _ones(*shape: int) -> Array:
    return np.ones(shape, F)


def _i64(*values: int) -> Array:
    return np.array(values, np.int64)


CASES: dict[str, tuple[list[Any], dict[str, Array], list[str], dict[str, Array]]] = {
    "beside others": (
        [
            N("Cos", ["x"], ["a"]),
            N("Slice", ["v", "s0", "s1"], ["b"]),
            N("Add", ["e", "a"], ["y"]),
            N("Mul", ["b", "k"], ["m"]),
            N("Split", ["m"], ["z0", "z"], axis=0, num_outputs=2),
        ],
        {"x": _ones(7), "v": _ones(7), "e": _zeros(0, 1), "k": _ones(3)},
        ["y", "z"],
        {"s0": _i64(1), "s1": _i64(4)},
    ),
    "product of nothing": (
        [N("MatMul", ["a", "b"], ["m"]), N("Add", ["m", "x"], ["y"])],
        {"a": _zeros(3, 0), "b": _zeros(0, 5), "x": _ones(3, 5)},
        ["y"],
        {},
    ),
    "no rows": ([N("Gemm", ["x", "w", "b"], ["y"])], {"x": _zeros(0, 4), "w": _ones(4, 3), "b": _ones(3)}, ["y"], {}),
    "no batch": (
        [
            N("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
            N("BatchNormalization", ["c", "b", "b", "b", "b"], ["n"]),
            N("MaxPool", ["n"], ["p"], kernel_shape=[2, 2]),
            N("Softmax", ["p"], ["y"]),
        ],
        {"x": _zeros(0, 3, 8, 8)},
        ["y"],
        {"w": _ones(4, 3, 3, 3), "b": _ones(4)},
    ),
    "no channels": (
        [N("Conv", ["x", "w", "b"], ["y"])],
        {"x": _zeros(2, 0, 5, 5), "w": _zeros(4, 0, 3, 3), "b": _ones(4)},
        ["y"],
        {},
    ),
    "sums": (
        [N("ReduceSum", ["x"], ["y"], keepdims=0), N("ReduceProd", ["x", "last"], ["z"]), N("Add", ["z", "b"], ["w"])],
        {"x": _zeros(2, 3, 0), "b": _ones(3, 1)},
        ["y", "w"],
        {"last": _i64(2)},
    ),
    "joined": (
        [N("Concat", ["x", "e", "x"], ["c"], axis=0), N("Pad", ["e", "pads"], ["p"]), N("Add", ["c", "p"], ["y"])],
        {"x": _ones(2, 3), "e": _zeros(0, 3)},
        ["y"],
        {"pads": _i64(1, 0, 3, 0)},
    ),
    "scattered": (
        [N("ScatterElements", ["x", "i", "u"], ["s"], axis=0), N("Neg", ["s"], ["y"])],
        {"x": _ones(3, 2), "i": np.zeros((0, 2), np.int64), "u": _zeros(0, 2)},
        ["y"],
        {},
    ),
    "gathered": (
        [N("Gather", ["x", "i"], ["g"], axis=1), N("Relu", ["g"], ["y"]), N("Exp", ["x"], ["z"])],
        {"x": _ones(3, 2), "i": np.zeros(0, np.int64)},
        ["y", "z"],
        {},
    ),
    "no steps": (
        [N("GRU", ["x", "w", "r", "", "", "h"], ["s", "y"], hidden_size=2)],
        {"x": _zeros(0, 3, 4), "h": _ones(1, 3, 2)},
        ["s", "y"],
        {"w": _ones(1, 6, 4), "r": _ones(1, 6, 2)},
    ),
    "none of the largest": (
        [N("TopK", ["x", "k"], ["v", "i"]), N("Neg", ["v"], ["y"])],
        {"x": _ones(2, 5)},
        ["y", "i"],
        {"k": _i64(0)},
    ),
    "integers": (
        [N("MatMulInteger", ["a", "b"], ["m"]), N("ConvInteger", ["c", "w"], ["y"])],
        {"a": np.zeros((2, 0), np.uint8), "b": np.zeros((0, 3), np.int8), "c": np.zeros((0, 2, 4, 4), np.uint8)},
        ["m", "y"],
        {"w": np.ones((3, 2, 3, 3), np.int8)},
    ),
    "quantised": (
        [
            N("QuantizeLinear", ["x", "s", "z"], ["q"]),
            N("DequantizeLinear", ["q", "s", "z"], ["d"]),
            N("DequantizeLinear", ["wq", "s", "z"], ["w"]),
            N("MatMul", ["d", "w"], ["y"]),
        ],
        {"x": _zeros(3, 0)},
        ["y"],
        {"s": np.array(0.5, F), "z": np.array(3, np.uint8), "wq": np.zeros((0, 4), np.uint8)},
    ),
}

BY_HAND = {
    "product of nothing": [_ones(3, 5)],
    "no channels": [_ones(2, 4, 3, 3)],
    "no steps": [_zeros(0, 1, 3, 2), _zeros(1, 3, 2)],
    "integers": [np.zeros((2, 3), np.int32), np.zeros((0, 3, 2, 2), np.int32)],
    "quantised": [_zeros(3, 4)],
}
"""What onnxruntime cannot tell: it leaves memory unwritten, or ends the process."""


def empty_case(name: str) -> tuple[bytes, dict[str, Array]]:
    """(model, feeds) of one of CASES."""
    nodes, feeds, outputs, constants = CASES[name]
    infos = [oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    fixed = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = oh.make_graph(nodes, "g", infos, [oh.make_empty_tensor_value_info(n) for n in outputs], fixed)
    opsets = [oh.make_opsetid("", 18)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), feeds
