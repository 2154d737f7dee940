"""A small encoder-decoder in the files that optimum writes: encoder, decoder, decoder with past, and both merged."""

from __future__ import annotations

from typing import Any

import numpy as np

import onnx
from onnx import TensorProto, helper

from .decoders import HEADS, SIZE, WIDTH, WORDS, Decoder

FEATURES = 24
"""Numbers a step of what an encoder reads that takes no text."""
_CACHES = [f"{part}.{what}" for part in ("decoder", "encoder") for what in ("key", "value")]


def encoder(*, reads_text: bool, caches: bool = False, hears: bool = False, seed: int = 7) -> bytes:
    """Hidden states [B,E,WIDTH] of tokens [B,E] and their mask, or of input_features [B,E,FEATURES].

    hears: of input_features [B,FEATURES,E], as Whisper's.

    caches: keys and values for the decoder, too, as onnxruntime-genai has it.
    """
    net = Decoder(seed=seed)
    if reads_text:
        ids = net.input("input_ids", TensorProto.INT64, ("batch_size", "encoder_length"))
        mask = net.input("attention_mask", TensorProto.INT64, ("batch_size", "encoder_length"))
        x = net.op("Gather", net.const(net.rng.standard_normal((WORDS, WIDTH))), ids)
        shown = net.op("Cast", net.op("Unsqueeze", mask, net.ints(2)), to=TensorProto.FLOAT)
        x = net.op("Mul", x, shown)
    elif hears:
        x = net.input("input_features", TensorProto.FLOAT, ("batch_size", FEATURES, "encoder_length"))
        x = net.linear(net.op("Transpose", x, perm=[0, 2, 1]), FEATURES, WIDTH)
    else:
        x = net.input("input_features", TensorProto.FLOAT, ("batch_size", "encoder_length", FEATURES))
        x = net.linear(x, FEATURES, WIDTH)
    hidden = net.feed_forward(x)
    net.output(hidden, "last_hidden_state", ("batch_size", "encoder_length", WIDTH))
    for what, weight in zip(("key", "value"), _weights(Decoder(seed=8))[3:5], strict=True) if caches else ():
        cache = net.heads(net.op("MatMul", hidden, net.const(weight)), HEADS)
        net.output(cache, f"present.0.encoder.{what}", ("batch_size", HEADS, "encoder_length", SIZE))
    return net.model("encoder")


def decoder(*, with_past: bool, seed: int = 8) -> bytes:
    """A decoder of one layer. with_past: it takes its caches, else the encoder's hidden states; it gives caches of
    what it computed: its own, and without past the encoder's."""
    net = Decoder(seed=seed)
    ids = net.input("input_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    shown = net.input("encoder_attention_mask", TensorProto.INT64, ("batch_size", "encoder_length"))
    weights = [net.const(w) for w in _weights(net)]
    table = net.const(net.rng.standard_normal((WORDS, WIDTH)))
    learned = net.const(net.rng.standard_normal((64, WIDTH)))
    caches: dict[str, str] = {}
    if with_past:
        for name in _CACHES:
            length = f"past_{name.partition('.')[0]}_length"
            shape = ("batch_size", HEADS, length, SIZE)
            caches[name] = net.input(f"past_key_values.0.{name}", TensorProto.FLOAT, shape)
        held = net.op("Gather", net.op("Shape", caches["decoder.key"]), net.const(2, np.int64), axis=0)
    else:
        hidden = net.input("encoder_hidden_states", TensorProto.FLOAT, ("batch_size", "encoder_length", WIDTH))
        held = net.const(0, np.int64)
        for what, weight in zip(("key", "value"), weights[3:5], strict=True):
            caches[f"encoder.{what}"] = net.heads(net.op("MatMul", hidden, weight), HEADS)
    count = net.op("Gather", net.op("Shape", ids), net.const(1, np.int64), axis=0)
    total = net.op("Add", held, count)
    queries = net.op("Range", held, total, net.const(1, np.int64))
    x = net.op("Add", net.op("Gather", table, ids), net.op("Gather", learned, queries))
    q, k, v = (net.heads(net.op("MatMul", x, w), HEADS) for w in weights[:3])
    if with_past:
        k = net.op("Concat", caches["decoder.key"], k, axis=2)
        v = net.op("Concat", caches["decoder.value"], v, axis=2)
    keys = net.op("Range", net.const(0, np.int64), total, net.const(1, np.int64))
    later = net.op("Greater", keys, net.op("Unsqueeze", queries, net.ints(1)))
    x = _attended(net, x, q, k, v, net.op("Where", later, net.const(-3.4e38), net.const(0.0)))
    q = net.heads(net.op("MatMul", x, weights[5]), HEADS)
    hidden_keys = net.op("Equal", net.op("Unsqueeze", shown, net.ints(1, 2)), net.const(0, np.int64))
    bias = net.op("Where", hidden_keys, net.const(-3.4e38), net.const(0.0))
    x = _attended(net, x, q, caches["encoder.key"], caches["encoder.value"], bias)
    net.output(net.linear(x, WIDTH, WORDS), "logits", ("batch_size", "sequence_length", WORDS))
    given = {"decoder.key": k, "decoder.value": v}
    if not with_past:
        given |= {n: c for n, c in caches.items() if n.startswith("encoder")}
    for name, value in given.items():
        net.output(value, f"present.0.{name}", ("batch_size", HEADS, f"{name}_length", SIZE))
    return net.model("decoder_with_past" if with_past else "decoder")


def _weights(net: Decoder) -> list[Any]:
    """Of queries, keys and values of the text, of keys and values of the encoder's output, of queries for it."""
    return [net.rng.standard_normal((WIDTH, WIDTH)) * WIDTH**-0.5 for _ in range(6)]


def _attended(net: Decoder, x: str, q: str, k: str, v: str, bias: str) -> str:
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Add", net.op("Mul", scores, net.const(SIZE**-0.5)), bias)
    return net.op("Add", x, net.joined(net.op("MatMul", net.op("Softmax", scores, axis=-1), v)))


def merged() -> bytes:
    """Both decoders in one, chosen by use_cache_branch; with a cache, the encoder's is given on as an empty one."""
    branches, inputs, weights = [], {}, []
    names = ["logits", *(f"present.0.{n}" for n in _CACHES)]
    shapes: dict[str, Any] = {}
    for kind, with_past in (("then", True), ("else", False)):
        graph = onnx.load_model_from_string(decoder(with_past=with_past)).graph
        inputs.update({i.name: i for i in graph.input})
        shapes.update({o.name: o for o in graph.output})
        own = {o: f"{kind}.{o}" for n in graph.node for o in n.output} | {
            w.name: f"{kind}.{w.name}" for w in graph.initializer
        }
        for w in graph.initializer:
            w.name = own[w.name]
            weights.append(w)
        for n in graph.node:
            n.name = f"{kind}.{n.name}"
            n.input[:] = [own.get(i, i) for i in n.input]
            n.output[:] = [own[o] for o in n.output]
        nodes = list(graph.node)
        if with_past:
            empty = helper.make_tensor(f"{kind}.empty", TensorProto.FLOAT, [0, HEADS, 1, SIZE], [])
            weights.append(empty)
            for name in ("present.0.encoder.key", "present.0.encoder.value"):
                nodes.append(helper.make_node("Identity", [empty.name], [f"{kind}.{name}"], f"{kind}.{name}"))
        outputs = [helper.make_tensor_value_info(f"{kind}.{n}", TensorProto.FLOAT, None) for n in names]
        branches.append(helper.make_graph(nodes, kind, [], outputs))
    chosen = helper.make_node(
        "If", ["use_cache_branch"], names, "merged", then_branch=branches[0], else_branch=branches[1]
    )
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    graph = helper.make_graph([chosen], "merged", [*inputs.values(), flag], [shapes[n] for n in names], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
