"""The network as an ONNX graph with a cache of keys and values, products by 4-bit weights, and no fixed size."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
Weights = dict[str, np.ndarray]
BLOCK = 32
"""Weights that share a scale."""


@dataclass(frozen=True)
class Shape:
    """The network's sizes."""

    vocabulary: int = 2048
    width: int = 256
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    hidden: int = 704
    positions: int = 512

    @classmethod
    def parse(cls, text: str) -> Self:
        """`width=128,layers=2` to a Shape; what is not named has its default."""
        known = {f.name for f in fields(cls)}
        given = dict(part.split("=") for part in text.split(","))
        if unknown := set(given) - known:
            raise ValueError(f"no size is called {sorted(unknown)[0]}; there are {', '.join(sorted(known))}")
        return cls(**{name: int(value) for name, value in given.items()})


def rope(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [positions, head / 2] by which position p turns a head's pairs."""
    rates = 10000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
    angles = np.arange(shape.positions)[:, None] * rates
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Builder:
    """Nodes and constants of the graph, as they are added."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        """A stored tensor."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def add(self, kind: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> str:
        """A node of one output, which names it, too."""
        self.nodes.append(helper.make_node(kind, inputs, [output], output, domain=domain, **attributes))
        return output

    def norm(self, x: str, weight: np.ndarray, name: str) -> str:
        """x / rms(x) * weight."""
        scale = self.constant(f"{name}.weight", weight)
        return self.add("SimplifiedLayerNormalization", [x, scale], name, axis=-1, epsilon=1e-5)

    def product(self, x: str, weight: np.ndarray, name: str) -> str:
        """x times the transpose of a weight [N, K], in 4 bits."""
        packed, scales = pack(weight)
        rows, columns = weight.shape
        inputs = [x, self.constant(f"{name}.weight", packed), self.constant(f"{name}.scales", scales)]
        return self.add("MatMulNBits", inputs, name, MS, N=rows, K=columns, bits=4, block_size=BLOCK)


def levels_of(weight: np.ndarray, levels: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers in [-levels, levels] and scales [N, K / block], as network.py rounds while it trains."""
    rows = weight.astype(np.float32).reshape(len(weight), -1, block)
    scales = np.maximum(np.abs(rows).max(-1), 1e-8) / levels
    return np.clip(np.rint(rows / scales[..., None]), -levels, levels).astype(np.int8), scales.astype(np.float32)


def pack(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[N, K / block, block / 2] bytes of two weights each, 8 standing for zero, and their scales."""
    whole, scales = levels_of(weight, 7, BLOCK)
    halves = (whole + 8).astype(np.uint8)
    return halves[..., 0::2] | halves[..., 1::2] << 4, scales.reshape(-1)


def build(weights: Weights, shape: Shape) -> onnx.ModelProto:
    """The model, its inputs and outputs named as ONNX Runtime GenAI's builder names them."""
    b = Builder()
    whole, scales = levels_of(weights["table"], 127, shape.width)
    row = b.add("Gather", [b.constant("table", whole[:, 0]), "input_ids"], "table.row")
    row = b.add("Cast", [row], "table.float", to=TensorProto.FLOAT)
    x = b.add(
        "Mul", [row, b.add("Gather", [b.constant("table.scales", scales), "input_ids"], "table.scale")], "embedded"
    )
    # What GroupQueryAttention asks: the number of the last key, and how many keys there are.
    b.add("ReduceSum", ["attention_mask", b.constant("last_axis", np.array([1]))], "held", keepdims=1)
    b.add("Sub", ["held", b.constant("one", np.array([1]))], "last")
    b.add("Cast", ["last"], "seqlens_k", to=TensorProto.INT32)
    b.add("Gather", [b.add("Shape", ["attention_mask"], "mask_shape"), b.constant("second", np.array(1))], "total")
    b.add("Cast", ["total"], "total_length", to=TensorProto.INT32)
    for name, array in zip(("cos", "sin"), rope(shape), strict=True):
        b.constant(name, array)
    for i in range(shape.layers):
        x = _layer(b, x, {k.split(".", 2)[2]: w for k, w in weights.items() if k.startswith(f"layers.{i}.")}, shape, i)
    b.product(b.norm(x, weights["norm.weight"], "norm"), weights["table"], "logits")

    tensor, cache = helper.make_tensor_value_info, [("batch", shape.kv_heads, n, shape.head) for n in ("past", "total")]
    inputs = [
        tensor("input_ids", TensorProto.INT64, ["batch", "sequence"]),
        tensor("attention_mask", TensorProto.INT64, ["batch", "total"]),
    ]
    outputs = [tensor("logits", TensorProto.FLOAT, ["batch", "sequence", shape.vocabulary])]
    for i in range(shape.layers):
        for part in ("key", "value"):
            inputs.append(tensor(f"past_key_values.{i}.{part}", TensorProto.FLOAT, cache[0]))
            outputs.append(tensor(f"present.{i}.{part}", TensorProto.FLOAT, cache[1]))
    graph = helper.make_graph(b.nodes, "tiny_writer", inputs, outputs, b.constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="tiny_writer")


def _layer(b: Builder, x: str, weights: Weights, shape: Shape, i: int) -> str:
    at = f"layers.{i}."
    y = b.norm(x, weights["norm1.weight"], at + "norm1")
    qkv = b.product(y, np.concatenate([weights[f"{n}.weight"] for n in "qkv"]), at + "qkv")
    past = [f"past_key_values.{i}.{part}" for part in ("key", "value")]
    b.nodes.append(
        helper.make_node(
            "GroupQueryAttention",
            [qkv, "", "", *past, "seqlens_k", "total_length", "cos", "sin"],
            [at + "attention", f"present.{i}.key", f"present.{i}.value"],
            at + "attention",
            domain=MS,
            num_heads=shape.heads,
            kv_num_heads=shape.kv_heads,
            do_rotary=1,
            scale=shape.head**-0.5,
        )
    )
    x = b.add("Add", [x, b.product(at + "attention", weights["o.weight"], at + "o")], at + "attended")
    y = b.norm(x, weights["norm2.weight"], at + "norm2")
    gate, up = (b.product(y, weights[f"{n}.weight"], at + n) for n in ("gate", "up"))
    silu = b.add("Mul", [gate, b.add("Sigmoid", [gate], at + "sigmoid")], at + "silu")
    y = b.product(b.add("Mul", [silu, up], at + "gated"), weights["down.weight"], at + "down")
    return b.add("Add", [x, y], at + "out")
