"""Transformers: the vision transformer (Dosovitskiy et al., 2020) and a sentence encoder of MiniLM's shape."""

from __future__ import annotations

import numpy as np

import onnx
from onnx import TensorProto

from .net import LINEAR_GAIN, Batch, Net

RESIDUAL = 0.5  # variance of a block's last layer, so that a deep sum does not grow


def vit(batch: Batch, width: int, heads: int, layers: int = 12, patch: int = 16, size: int = 224) -> onnx.ModelProto:
    """Vision transformer, opset 17: LayerNormalization nodes, one matrix for queries, keys and values."""
    net = Net(f"vit_{width}", opset=17)
    picture = net.input("input", (batch, 3, size, size))
    count = (size // patch) ** 2
    x = net.conv(picture, width, patch, stride=patch, pad=0, gain=LINEAR_GAIN)
    x = net.transpose(net.reshape(x, 0, width, count), 0, 2, 1)
    # The class token, repeated for each picture of the batch.
    length = net.op("Gather", net.op("Shape", x), net.integers(0), axis=0)
    shape = net.op("Concat", length, net.integers(1, width), axis=0)
    token = net.op("Expand", net.random((1, 1, width), 1.0, "token"), shape)
    x = net.op("Concat", token, x, axis=1)
    x = net.op("Add", x, net.random((1, count + 1, width), 0.1, "positions"))
    for _ in range(layers):
        x = net.add(x, joint_attention(net, net.layer_norm(x, width, 1e-6), width, heads))
        y = net.gelu(net.linear(net.layer_norm(x, width, 1e-6), width, 4 * width))
        x = net.add(x, net.linear(y, 4 * width, width, gain=RESIDUAL))
    x = net.layer_norm(x, width, 1e-6)
    x = net.op("Gather", x, net.constant(0, "first", np.int64), axis=1)
    return net.model(net.gemm(x, width, 1000))


def joint_attention(net: Net, x: str, width: int, heads: int) -> str:
    """Self-attention whose queries, keys and values come from one product and are taken apart by Gather."""
    joint = net.transpose(net.reshape(net.linear(x, width, 3 * width), 0, -1, 3, heads, width // heads), 2, 0, 3, 1, 4)
    q, k, v = (net.op("Gather", joint, net.constant(i, "index", np.int64), axis=0) for i in range(3))
    q = net.op("Mul", q, net.constant((width / heads) ** -0.5))
    scores = net.op("Softmax", net.op("MatMul", q, net.transpose(k, 0, 1, 3, 2)), axis=-1)
    y = net.transpose(net.op("MatMul", scores, v), 0, 2, 1, 3)
    return net.linear(net.reshape(y, 0, -1, width), width, width, gain=RESIDUAL)


def minilm(
    batch: Batch, sequence: int = 128, width: int = 384, heads: int = 12, layers: int = 6, words: int = 30522
) -> onnx.ModelProto:
    """BERT-like encoder, opset 13: layer normalisation, GELU and attention in elementary nodes, with a padding mask.

    Outputs the last hidden state [N,sequence,width] and the pooled first token [N,width].
    """
    net = Net("minilm_l6", opset=13)
    shape = (batch, sequence)
    ids = net.input("input_ids", shape, TensorProto.INT64)
    mask = net.input("attention_mask", shape, TensorProto.INT64)
    kinds = net.input("token_type_ids", shape, TensorProto.INT64)

    # 0 where a token counts and a large negative number where it is padding: [N,1,1,sequence].
    mask = net.op("Unsqueeze", net.op("Unsqueeze", mask, net.integers(1)), net.integers(2))
    padding = net.op("Sub", net.constant(1), net.op("Cast", mask, to=TensorProto.FLOAT))
    penalty = net.op("Mul", padding, net.constant(np.finfo(np.float32).min))

    x = net.op("Gather", net.random((words, width), 1.0, "words"), ids, axis=0)
    x = net.add(x, net.op("Gather", net.random((2, width), 0.1, "kinds"), kinds, axis=0))
    x = net.layer_norm(net.add(x, net.random((1, sequence, width), 0.1, "positions")), width, 1e-12)
    for _ in range(layers):
        x = net.layer_norm(net.add(attention(net, x, penalty, width, heads), x), width, 1e-12)
        y = net.linear(net.gelu(net.linear(x, width, 4 * width)), 4 * width, width)
        x = net.layer_norm(net.add(y, x), width, 1e-12)
    first = net.op("Gather", x, net.constant(0, "first", np.int64), axis=1)
    return net.model(x, net.op("Tanh", net.gemm(first, width, width)))


def attention(net: Net, x: str, penalty: str, width: int, heads: int) -> str:
    """Self-attention with three products, scores divided by sqrt(width / heads) and `penalty` added."""

    def split(axes: tuple[int, ...]) -> str:
        return net.transpose(net.reshape(net.linear(x, width, width), 0, -1, heads, width // heads), *axes)

    q, k, v = split((0, 2, 1, 3)), split((0, 2, 3, 1)), split((0, 2, 1, 3))
    scores = net.op("Div", net.op("MatMul", q, k), net.constant((width / heads) ** 0.5))
    weights = net.op("Softmax", net.op("Add", scores, penalty), axis=-1)
    y = net.transpose(net.op("MatMul", weights, v), 0, 2, 1, 3)
    return net.linear(net.reshape(y, 0, -1, width), width, width)
