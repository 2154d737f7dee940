"""Small random decoders and encoders as graphs of BeamSearch and its like, as onnxruntime's converters write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.helper as oh

import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, Any]
MS = "com.microsoft"
HEADS, SIZE, WIDTH, WORDS = 2, 4, 8, 17


class Net:
    """Nodes and weights of one graph."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def keep(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int, scale: float = 0.7) -> str:
        return self.keep((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, kind: str, *inputs: str, out: str = "", **attrs: Any) -> str:
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(oh.make_node(kind, list(inputs), [name], **attrs))
        return name

    def heads(self, x: str) -> str:
        """[B,S,W] as [B,H,S,D]."""
        shape = self.keep(np.array([0, 0, HEADS, SIZE]))
        return self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def attend(self, q: str, k: str, v: str, bias: str = "") -> str:
        scores = self.op(
            "Mul", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), self.keep(np.float32(0.5))
        )
        if bias:
            scores = self.op("Add", scores, bias)
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.op("Reshape", y, self.keep(np.array([0, 0, WIDTH])))

    def bias(self, mask: str) -> str:
        """[B,T] of 0 and 1 as [B,1,1,T] of -10000 and 0."""
        real = self.op("Sub", self.op("Cast", mask, to=1), self.keep(np.float32(1)))
        wide = self.op("Unsqueeze", real, self.keep(np.array([1, 2])))
        return self.op("Mul", wide, self.keep(np.float32(10000)))

    def logits(self, x: str) -> str:
        return self.op("MatMul", x, self.weight(WIDTH, WORDS, scale=1.5), out="logits")

    def graph(self, inputs: list[tuple[str, int, list[Any]]], outputs: list[tuple[str, list[Any]]]) -> onnx.GraphProto:
        ins = [oh.make_tensor_value_info(n, t, s) for n, t, s in inputs]
        outs = [oh.make_tensor_value_info(n, 1, s) for n, s in outputs]
        return oh.make_graph(self.nodes, "g", ins, outs, self.weights)


def gpt(seed: int, layers: int = 2) -> onnx.GraphProto:
    """A decoder alone: tokens, positions and a mask to logits, with a cache of keys and values for each layer."""
    net = Net(seed)
    x = net.op("Gather", net.weight(WORDS, WIDTH), "input_ids")
    x = net.op("Add", x, net.op("Gather", net.weight(64, WIDTH), "position_ids"))
    past = net.op("Gather", net.op("Shape", "past_0"), net.keep(np.array(3)))
    total = net.op("Gather", net.op("Shape", "attention_mask"), net.keep(np.array(1)))
    zero, one = net.keep(np.array(0)), net.keep(np.array(1))
    rows = net.op("Unsqueeze", net.op("Range", past, total, one), net.keep(np.array([1])))
    columns = net.op("Unsqueeze", net.op("Range", zero, total, one), net.keep(np.array([0])))
    later = net.op("Cast", net.op("Greater", columns, rows), to=1)
    bias = net.op("Add", net.bias("attention_mask"), net.op("Mul", later, net.keep(np.float32(-10000))))
    for i in range(layers):
        q, k, v = (net.heads(net.op("MatMul", x, net.weight(WIDTH, WIDTH))) for _ in range(3))
        lead = net.keep(np.array([0]))
        fresh = net.op("Concat", net.op("Unsqueeze", k, lead), net.op("Unsqueeze", v, lead), axis=0)
        both = net.op("Concat", f"past_{i}", fresh, axis=3, out=f"present_{i}")
        keys, values = (net.op("Gather", both, net.keep(np.array(j)), axis=0) for j in (0, 1))
        x = net.op("Add", x, net.attend(q, keys, values, bias))
    net.logits(x)
    shape = [2, "b", HEADS, "p", SIZE]
    ins: list[tuple[str, int, list[Any]]] = [("input_ids", 6, ["b", "s"]), ("position_ids", 6, ["b", "s"])]
    ins += [("attention_mask", 6, ["b", "t"]), *((f"past_{i}", 1, shape) for i in range(layers))]
    after = [2, "b", HEADS, "t", SIZE]
    return net.graph(ins, [("logits", ["b", "s", WORDS]), *((f"present_{i}", after) for i in range(layers))])


def _decoder_layers(net: Net, x: str, layers: int, begins: bool, bias: str, states: str = "") -> str:
    """Attention to what was said, then to what is read. begins: nothing was said, and keys of what is read are made."""
    for i in range(layers):
        q, k, v = (net.heads(net.op("MatMul", x, net.weight(WIDTH, WIDTH))) for _ in range(3))
        if begins:
            keys, values = (net.op("Identity", a, out=f"present_{n}_self_{i}") for a, n in ((k, "key"), (v, "value")))
        else:
            pairs = ((k, "key"), (v, "value"))
            keys, values = (
                net.op("Concat", f"past_{n}_self_{i}", a, axis=2, out=f"present_{n}_self_{i}") for a, n in pairs
            )
        x = net.op("Add", x, net.attend(q, keys, values))
        q, wk, wv = net.weight(WIDTH, WIDTH), net.weight(WIDTH, WIDTH), net.weight(WIDTH, WIDTH)
        if states:
            keys = net.op("Identity", net.heads(net.op("MatMul", states, wk)), out=f"present_key_cross_{i}")
            values = net.op("Identity", net.heads(net.op("MatMul", states, wv)), out=f"present_value_cross_{i}")
        else:
            keys, values = f"past_key_cross_{i}", f"past_value_cross_{i}"
        x = net.op("Add", x, net.attend(net.heads(net.op("MatMul", x, q)), keys, values, bias))
    return net.op("Tanh", x)


def _caches(kind: str, part: str, layers: int, length: Any) -> list[tuple[str, list[Any]]]:
    shape = ["b", HEADS, length, SIZE]
    return [(f"{kind}_{n}_{part}_{i}", shape) for i in range(layers) for n in ("key", "value")]


def encoder_decoder(seed: int, layers: int = 1, sound: bool = False, begins: bool = True) -> tuple[Any, Any]:
    """(encoder, decoder) of T5, or of Whisper if it reads `sound`. begins: whether the encoder gives the first logits;
    else it gives what the decoder attends to alone."""
    net = Net(seed)
    if sound:
        x = net.op("MatMul", net.op("Transpose", "encoder_input_ids", perm=[0, 2, 1]), net.weight(6, WIDTH))
    else:
        x = net.op("Gather", net.weight(WORDS, WIDTH), "encoder_input_ids")
    bias = "" if sound else net.bias("encoder_attention_mask")
    q, k, v = (net.heads(net.op("MatMul", x, net.weight(WIDTH, WIDTH))) for _ in range(3))
    states = net.op("Add", x, net.attend(q, k, v, bias), out="encoder_hidden_states")
    reads: list[tuple[str, int, list[Any]]] = [
        ("encoder_input_ids", 1 if sound else 6, ["b", 6, "n"] if sound else ["b", "n"])
    ]
    masks: list[tuple[str, int, list[Any]]] = [] if sound else [("encoder_attention_mask", 6, ["b", "n"])]
    # The same seed gives the decoder of both graphs the same weights.
    words = net.keep(np.random.default_rng(seed + 1).standard_normal((WORDS, WIDTH)).astype(np.float32))
    outs: list[tuple[str, list[Any]]]
    net.rng = np.random.default_rng(seed + 2)
    if begins:
        y = _decoder_layers(net, net.op("Gather", words, "decoder_input_ids"), layers, True, bias, states)
        net.logits(y)
        outs = [("logits", ["b", "s", WORDS]), ("encoder_hidden_states", ["b", "n", WIDTH])]
        outs += [*_caches("present", "self", layers, "s"), *_caches("present", "cross", layers, "n")]
        encoder = net.graph([*reads, *masks, ("decoder_input_ids", 6, ["b", "s"])], outs)
    else:
        _decoder_layers(net, net.keep(np.zeros((1, 1, WIDTH), np.float32)), layers, True, bias, states)
        encoder = net.graph([*reads, *masks], _caches("present", "cross", layers, "n"))
    net = Net(seed)
    net.rng = np.random.default_rng(seed + 1)
    x = net.op("Gather", net.keep(net.rng.standard_normal((WORDS, WIDTH)).astype(np.float32)), "input_ids")
    net.rng = np.random.default_rng(seed + 2)
    net.logits(_decoder_layers(net, x, layers, False, "" if sound else net.bias("encoder_attention_mask")))
    pasts = [*_caches("past", "self", layers, "p"), *_caches("past", "cross", layers, "n")]
    ins = [("input_ids", 6, ["b", 1]), *masks, *((n, 1, s) for n, s in pasts)]
    decoder = net.graph(ins, [("logits", ["b", 1, WORDS]), *_caches("present", "self", layers, "t")])
    return encoder, decoder


def search_model(
    op: str, inputs: list[tuple[str, Any]], outputs: list[str], **attrs: Any
) -> tuple[bytes, dict[str, Array]]:
    """A model of one node and its feeds. inputs: name and array in order, None where one is absent; the first is fed,
    the others are initializers."""
    names = [n if v is not None else "" for n, v in inputs]
    first = np.asarray(inputs[0][1])
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in inputs[1:] if v is not None]
    node = oh.make_node(op, names, outputs, domain=MS, **attrs)
    info = oh.make_tensor_value_info(names[0], oh.np_dtype_to_tensor_dtype(first.dtype), [None] * first.ndim)
    results = [oh.make_tensor_value_info(o, 6 if o == "sequences" else 1, None) for o in outputs if o]
    graph = oh.make_graph([node], "search", [info], results, held)
    opsets = [oh.make_opsetid("", 17), oh.make_opsetid(MS, 1)]
    return oh.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), {names[0]: first}
