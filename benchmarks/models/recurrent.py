"""A tagger of words: embedding, two bidirectional LSTM layers, one score for each tag and word."""

from __future__ import annotations

import numpy as np

import onnx
from onnx import TensorProto

from .net import Batch, Net


def lstm_tagger(
    batch: Batch, sequence: int = 64, words: int = 10000, width: int = 128, hidden: int = 128, tags: int = 17
) -> onnx.ModelProto:
    """Scores [N,sequence,tags] of word numbers [N,sequence]."""
    net = Net("lstm_tagger")
    ids = net.input("ids", (batch, sequence), TensorProto.INT64)
    x = net.transpose(net.op("Gather", net.random((words, width), 1.0, "words"), ids, axis=0), 1, 0, 2)
    for features in (width, 2 * hidden):
        x = bidirectional(net, x, features, hidden)
    return net.model(net.linear(net.transpose(x, 1, 0, 2), 2 * hidden, tags))


def bidirectional(net: Net, x: str, features: int, hidden: int) -> str:
    """One layer on [T,N,features]: [T,N,2*hidden]. The state begins as zeros of the batch's size."""
    count = net.op("Gather", net.op("Shape", x), net.integers(1), axis=0)
    shape = net.op("Concat", net.integers(2), count, net.integers(hidden), axis=0)
    state = net.op("Expand", net.constant(np.zeros((1, 1, 1)), "zero"), shape)
    y = net.ops(
        "LSTM",
        3,
        x,
        net.random((2, 4 * hidden, features), 1 / features),
        net.random((2, 4 * hidden, hidden), 1 / hidden),
        net.random((2, 8 * hidden), 0.01, "bias"),
        "",
        state,
        state,
        direction="bidirectional",
        hidden_size=hidden,
    )[0]
    return net.reshape(net.transpose(y, 0, 2, 1, 3), 0, 0, -1)
