"""A decoder that writes a given text whatever it reads: its logits depend on positions alone."""

from __future__ import annotations

from onnx import TensorProto

from .decoders import WORDS, Decoder
from .words import LETTERS


def scripted(text: str, begin: int) -> bytes:
    """The model's file. begin: the number of tokens of the prompt, after which `text` is written, and the end token."""
    net = Decoder()
    net.input("input_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    tokens = [0] * (begin - 1) + [LETTERS.index(letter) + 1 for letter in text] + [0] * 64
    shape = net.op("Shape", "input_ids")
    length = net.op("Gather", shape, net.const(1, "int64"), axis=0)
    positions = net.op("Range", net.const(0, "int64"), length, net.const(1, "int64"))
    chosen = net.op("Gather", net.const(tokens, "int64"), positions)
    rows = net.op("OneHot", chosen, net.const(WORDS, "int64"), net.const([0.0, 9.0]), axis=-1)
    wide = net.op("Concat", shape, net.ints(WORDS), axis=0)
    net.output(net.op("Expand", rows, wide), "logits", ("batch_size", "sequence_length", WORDS))
    return net.model("scripted")
