"""A decoder that reads vectors, with the models that embed tokens and encode pictures, in the layouts of exporters."""

from __future__ import annotations

from typing import Any

import numpy as np

import onnx
from onnx import TensorProto, helper, numpy_helper

from .decoders import LAYERS, WIDTH, Decoder, llama, merged

PIXELS = 12
"""Numbers of a part of a picture, which becomes one vector."""


def parts(*, is_merged: bool = False) -> dict[str, bytes]:
    """Return the models "decoder" (inputs_embeds to logits), "embed" (input_ids to vectors) and "vision"."""
    whole = onnx.load_model_from_string(merged() if is_merged else llama(LAYERS, 0))
    graphs = [whole.graph, *(a.g for n in whole.graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)]
    table = ""
    for graph in graphs:
        for node in list(graph.node):
            if node.op_type == "Gather" and node.input[1] == "input_ids":
                table = node.input[0]
                node.op_type = "Identity"
                del node.input[:], node.attribute[:]
                node.input.append("inputs_embeds")
            for i, name in enumerate(node.input):
                if name == "input_ids":  # of its size alone
                    node.input[i] = "inputs_embeds"
    for i in whole.graph.input:
        if i.name == "input_ids":
            i.CopyFrom(
                helper.make_tensor_value_info(
                    "inputs_embeds", TensorProto.FLOAT, ["batch_size", "sequence_length", WIDTH]
                )
            )
    rows = next(numpy_helper.to_array(w) for w in whole.graph.initializer if w.name == table)
    return {"decoder": whole.SerializeToString(), "embed": _embed(rows), "vision": _vision()}


def _embed(rows: Any) -> bytes:
    net = Decoder()
    ids = net.input("input_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    made = net.op("Gather", net.const(rows), ids)
    net.output(made, "inputs_embeds", ("batch_size", "sequence_length", WIDTH))
    return net.model("embed")


def _vision() -> bytes:
    net = Decoder(seed=4)
    pixels = net.input("pixel_values", TensorProto.FLOAT, ("pictures", "parts", PIXELS))
    net.output(net.linear(pixels, PIXELS, WIDTH), "image_features", ("pictures", "parts", WIDTH))
    return net.model("vision")


def vectors_of(made: dict[str, bytes], tokens: list[int]) -> Any:
    """Return the vectors [1, n, WIDTH] of tokens."""
    table = onnx.load_model_from_string(made["embed"]).graph.initializer[0]
    return np.asarray(numpy_helper.to_array(table)[tokens])[None]
