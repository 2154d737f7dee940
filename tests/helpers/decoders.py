"""Small decoders with caches, in the shapes that exporters write: random weights, a few layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import onnx
from onnx import TensorProto, helper, numpy_helper
from opalite import State

WORDS, WIDTH, HEADS, SHARED, SIZE, LAYERS, LONGEST = 97, 64, 4, 2, 16, 2, 640


class Decoder:
    """Builds one: nodes in the order of calls, names of values as handles."""

    def __init__(self, opset: int = 17, seed: int = 0) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def op(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """A node; its output, or a list of them."""
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, f"{kind}_{self.count}", domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def const(self, array: Any, dtype: Any = np.float32) -> str:
        """A weight."""
        self.count += 1
        name = f"w{self.count}"
        self.weights[name] = numpy_helper.from_array(np.asarray(array, dtype), name)
        return name

    def ints(self, *values: int) -> str:
        """A vector of whole numbers."""
        return self.const(values, np.int64)

    def linear(self, x: str, rows: int, columns: int) -> str:
        """A product with random weights."""
        return self.op("MatMul", x, self.const(self.rng.standard_normal((rows, columns)) * rows**-0.5))

    def input(self, name: str, dtype: int, shape: Sequence[Any]) -> str:
        """An input of the model."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[Any], dtype: int = TensorProto.FLOAT) -> None:
        """Call a value an output of the model."""
        self.nodes.append(helper.make_node("Identity", [value], [name], f"Identity_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))

    def norm(self, x: str) -> str:
        """Root mean square normalisation in elementary nodes."""
        mean = self.op("ReduceMean", self.op("Pow", x, self.const(2.0)), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.const(1e-6)))
        return self.op("Mul", self.op("Div", x, root), self.const(self.rng.uniform(0.5, 1.5, WIDTH)))

    def heads(self, x: str, count: int) -> str:
        """[B,S,H*D] as [B,H,S,D]."""
        return self.op("Transpose", self.op("Reshape", x, self.ints(0, -1, count, SIZE)), perm=[0, 2, 1, 3])

    def joined(self, x: str) -> str:
        """[B,H,S,D] as [B,S,H*D]."""
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), self.ints(0, -1, WIDTH))

    def feed_forward(self, x: str) -> str:
        """A gated pair of products."""
        y = self.norm(x)
        gate, up = self.linear(y, WIDTH, 2 * WIDTH), self.linear(y, WIDTH, 2 * WIDTH)
        gated = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up)
        return self.op("Add", x, self.linear(gated, 2 * WIDTH, WIDTH))

    def model(self, name: str) -> bytes:
        """The model's file."""
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, list(self.weights.values()))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


PAST = ("batch_size", SHARED, "past_sequence_length", SIZE)
PRESENT = ("batch_size", SHARED, "past_sequence_length + sequence_length", SIZE)


def rotations() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Cosines and sines of rotary embeddings, by position."""
    angles = np.outer(np.arange(LONGEST), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
    return np.cos(angles), np.sin(angles)


def _rotated(net: Decoder, x: str, cos: str, sin: str) -> str:
    a, b = (
        net.op("Split", x, outputs=2, axis=-1, num_outputs=2)
        if net.opset >= 18
        else net.op("Split", x, outputs=2, axis=-1)
    )
    turned = net.op("Concat", net.op("Neg", b), a, axis=-1)
    return net.op("Add", net.op("Mul", x, cos), net.op("Mul", turned, sin))


def _caches(net: Decoder, layer: int) -> tuple[str, str]:
    k, v = (net.input(f"past_key_values.{layer}.{n}", TensorProto.FLOAT, PAST) for n in ("key", "value"))
    return k, v


def _inputs(net: Decoder) -> tuple[str, str]:
    ids = net.input("input_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    mask = net.input("attention_mask", TensorProto.INT64, ("batch_size", "past_sequence_length + sequence_length"))
    return ids, mask


def _embedded(net: Decoder, ids: str) -> str:
    return net.op("Gather", net.const(net.rng.standard_normal((WORDS, WIDTH)) * 0.7), ids)


def _logits(net: Decoder, x: str) -> None:
    net.output(net.linear(net.norm(x), WIDTH, WORDS), "logits", ("batch_size", "sequence_length", WORDS))


def _bias(net: Decoder, ids: str, mask: str) -> str:
    """[B,1,S,T]: 0 where a query may look, a large negative number elsewhere. Queries are the last of all places."""
    zero, one = net.const(0, np.int64), net.const(1, np.int64)
    total, count = (net.op("Gather", net.op("Shape", x), one, axis=0) for x in (mask, ids))
    queries = net.op("Unsqueeze", net.op("Range", net.op("Sub", total, count), total, one), net.ints(0, 1, 3))
    padding = net.op("Equal", net.op("Unsqueeze", mask, net.ints(1, 2)), zero)
    hidden = net.op("Or", net.op("Greater", net.op("Range", zero, total, one), queries), padding)
    return net.op("Where", hidden, net.const(-3.4e38), net.const(0.0))


def llama(layers: int = LAYERS, seed: int = 0) -> bytes:
    """As optimum exports Llama: caches joined by Concat, heads repeated by Expand, attention in elementary nodes."""
    net = Decoder(seed=seed)
    ids, mask = _inputs(net)
    positions = net.input("position_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    x = _embedded(net, ids)
    tables = [np.concatenate([t, t], -1) for t in rotations()]
    cos, sin = (net.op("Unsqueeze", net.op("Gather", net.const(t), positions), net.ints(1)) for t in tables)
    bias = _bias(net, ids, mask)
    presents = []
    for layer in range(layers):
        past = _caches(net, layer)
        y = net.norm(x)
        q = _rotated(net, net.heads(net.linear(y, WIDTH, WIDTH), HEADS), cos, sin)
        k = _rotated(net, net.heads(net.linear(y, WIDTH, SHARED * SIZE), SHARED), cos, sin)
        v = net.heads(net.linear(y, WIDTH, SHARED * SIZE), SHARED)
        k, v = (net.op("Concat", old, new, axis=2) for old, new in zip(past, (k, v), strict=True))
        presents += [(f"present.{layer}.key", k), (f"present.{layer}.value", v)]
        k, v = (_repeated(net, c) for c in (k, v))
        scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.op("Add", net.op("Mul", scores, net.const(SIZE**-0.5)), bias)
        y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
        x = net.op("Add", x, net.linear(net.joined(y), WIDTH, WIDTH))
        x = net.feed_forward(x)
    _logits(net, x)
    for name, value in presents:
        net.output(value, name, PRESENT)
    return net.model("llama")


def _repeated(net: Decoder, x: str) -> str:
    """Each head for all the queries that share it."""
    shape = net.op("Shape", x)
    b, t = (net.op("Slice", shape, net.ints(i), net.ints(i + 1)) for i in (0, 2))
    wide = net.op("Concat", b, net.ints(SHARED, HEADS // SHARED), t, net.ints(SIZE), axis=0)
    flat = net.op("Concat", b, net.ints(HEADS), t, net.ints(SIZE), axis=0)
    return net.op("Reshape", net.op("Expand", net.op("Unsqueeze", x, net.ints(2)), wide), flat)


def gpt2(layers: int = LAYERS, seed: int = 1) -> bytes:
    """As older exporters write GPT-2: one product for queries, keys and values, positions learned, past_N stacked."""
    net = Decoder(seed=seed)
    ids, mask = _inputs(net)
    size = WIDTH // HEADS
    past_shape = (2, "batch_size", HEADS, "past_sequence_length", size)
    present_shape = (2, "batch_size", HEADS, "total_sequence_length", size)
    x = _embedded(net, ids)
    pasts = [net.input(f"past_{i}", TensorProto.FLOAT, past_shape) for i in range(layers)]
    long = net.op("Sub", net.op("CumSum", mask, net.const(1, np.int64)), net.const(1, np.int64))
    held = net.op("Slice", net.op("Shape", pasts[0]), net.ints(3), net.ints(4))
    positions = net.op("Slice", long, held, net.ints(1 << 40), net.ints(1))
    x = net.op("Add", x, net.op("Gather", net.const(net.rng.standard_normal((LONGEST, WIDTH)) * 0.3), positions))
    bias = _bias(net, ids, mask)
    presents = []
    for layer in range(layers):
        y = net.op("LayerNormalization", x, net.const(np.ones(WIDTH)), net.const(np.zeros(WIDTH)), axis=-1)
        q, k, v = net.op("Split", net.linear(y, WIDTH, 3 * WIDTH), outputs=3, axis=-1)
        q, k, v = (net.heads(p, HEADS) for p in (q, k, v))
        old = [net.op("Gather", pasts[layer], net.const(i, np.int64), axis=0) for i in (0, 1)]
        k, v = (net.op("Concat", o, n, axis=2) for o, n in zip(old, (k, v), strict=True))
        both = (net.op("Unsqueeze", c, net.ints(0)) for c in (k, v))
        presents.append(net.op("Concat", *both, axis=0))
        scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = net.op("Add", net.op("Div", scores, net.const(size**0.5)), bias)
        y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
        x = net.op("Add", x, net.linear(net.joined(y), WIDTH, WIDTH))
        x = net.feed_forward(x)
    _logits(net, x)
    for layer, value in enumerate(presents):
        net.output(value, f"present_{layer}", present_shape)
    return net.model("gpt2")


def packed(layers: int = LAYERS, seed: int = 5) -> bytes:
    """As onnxruntime's optimiser fuses GPT-2: Attention of com.microsoft, whose past and present are stacked."""
    net = Decoder(seed=seed)
    ids = net.input("input_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    mask = net.input("attention_mask", TensorProto.INT32, ("batch_size", "total_sequence_length"))
    size = WIDTH // HEADS
    x = _embedded(net, ids)
    presents = []
    for layer in range(layers):
        past = net.input(f"past_{layer}", TensorProto.FLOAT, (2, "batch_size", HEADS, "past_sequence_length", size))
        joint = net.const(net.rng.standard_normal((WIDTH, 3 * WIDTH)) * WIDTH**-0.5)
        bias = net.const(net.rng.standard_normal(3 * WIDTH) * 0.1)
        given = {"domain": "com.microsoft", "outputs": 2, "num_heads": HEADS, "unidirectional": 1}
        y, present = net.op("Attention", net.norm(x), joint, bias, mask, past, **given)
        presents.append(present)
        x = net.feed_forward(net.op("Add", x, net.linear(y, WIDTH, WIDTH)))
    _logits(net, x)
    for layer, value in enumerate(presents):
        net.output(value, f"present_{layer}", (2, "batch_size", HEADS, "total_sequence_length", size))
    return net.model("packed")


def grouped(layers: int = LAYERS, seed: int = 2, window: int = -1) -> bytes:
    """As onnxruntime-genai builds them: GroupQueryAttention with rotary embeddings inside."""
    net = Decoder(seed=seed)
    ids, mask = _inputs(net)
    x = _embedded(net, ids)
    cos, sin = (net.const(t) for t in rotations())
    count = net.op("ReduceSum", mask, net.ints(1), keepdims=1)
    ends = net.op("Cast", net.op("Sub", count, net.ints(1)), to=TensorProto.INT32)
    total = net.op("Gather", net.op("Shape", mask), net.const(1, np.int64), axis=0)
    total = net.op("Cast", total, to=TensorProto.INT32)
    presents = []
    for layer in range(layers):
        past = _caches(net, layer)
        y = net.norm(x)
        q, k, v = net.linear(y, WIDTH, WIDTH), net.linear(y, WIDTH, SHARED * SIZE), net.linear(y, WIDTH, SHARED * SIZE)
        y, k, v = net.op(
            "GroupQueryAttention",
            q,
            k,
            v,
            *past,
            ends,
            total,
            cos,
            sin,
            domain="com.microsoft",
            outputs=3,
            num_heads=HEADS,
            kv_num_heads=SHARED,
            do_rotary=1,
            local_window_size=window,
        )
        presents += [(f"present.{layer}.key", k), (f"present.{layer}.value", v)]
        x = net.feed_forward(net.op("Add", x, net.linear(y, WIDTH, WIDTH)))
    _logits(net, x)
    for name, value in presents:
        net.output(value, name, PRESENT)
    return net.model("grouped")


def fused(layers: int = LAYERS, seed: int = 3) -> bytes:
    """Opset 23: Attention with past keys and values, RotaryEmbedding, RMSNormalization."""
    net = Decoder(opset=23, seed=seed)
    ids, mask = _inputs(net)
    positions = net.input("position_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    x = _embedded(net, ids)
    cos, sin = (net.const(t) for t in rotations())
    bias = _bias(net, ids, mask)
    presents = []
    for layer in range(layers):
        past = _caches(net, layer)
        y = net.op("RMSNormalization", x, net.const(np.ones(WIDTH)), axis=-1)
        parts = [net.linear(y, WIDTH, c * SIZE) for c in (HEADS, SHARED, SHARED)]
        q, k, v = (net.heads(p, c) for p, c in zip(parts, (HEADS, SHARED, SHARED), strict=True))
        q, k = (net.op("RotaryEmbedding", p, cos, sin, positions) for p in (q, k))
        y, k, v = net.op("Attention", q, k, v, bias, *past, outputs=3)
        presents += [(f"present.{layer}.key", k), (f"present.{layer}.value", v)]
        x = net.op("Add", x, net.linear(net.joined(y), WIDTH, WIDTH))
        x = _opset18_feed_forward(net, x)
    y = net.op("RMSNormalization", x, net.const(np.ones(WIDTH)), axis=-1)
    net.output(net.linear(y, WIDTH, WORDS), "logits", ("batch_size", "sequence_length", WORDS))
    for name, value in presents:
        net.output(value, name, PRESENT)
    return net.model("fused")


def _opset18_feed_forward(net: Decoder, x: str) -> str:
    y = net.op("RMSNormalization", x, net.const(np.ones(WIDTH)), axis=-1)
    gate, up = net.linear(y, WIDTH, 2 * WIDTH), net.linear(y, WIDTH, 2 * WIDTH)
    gated = net.op("Mul", net.op("Mul", gate, net.op("Sigmoid", gate)), up)
    return net.op("Add", x, net.linear(gated, 2 * WIDTH, WIDTH))


def scattered(layers: int = LAYERS, seed: int = 4, length: int = 128) -> bytes:
    """Opset 24: TensorScatter into caches of a fixed size, Attention that is told how many keys count."""
    net = Decoder(opset=24, seed=seed)
    ids = net.input("input_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    positions = net.input("position_ids", TensorProto.INT64, ("batch_size", "sequence_length"))
    starts = net.input("write_indices", TensorProto.INT64, ("batch_size",))
    shape = ("batch_size", SHARED, length, SIZE)
    x = _embedded(net, ids)
    cos, sin = (net.const(t) for t in rotations())
    written = net.op("Gather", net.op("Shape", ids), net.const(1, np.int64), axis=0)
    ends = net.op("Add", starts, written)
    keys = net.op("Unsqueeze", net.const(np.arange(length), np.int64), net.ints(0, 1, 2))
    later = net.op("Greater", keys, net.op("Unsqueeze", positions, net.ints(1, 3)))
    bias = net.op("Where", later, net.const(-3.4e38), net.const(0.0))
    presents = []
    for layer in range(layers):
        past = [net.input(f"cache_{n}_{layer}", TensorProto.FLOAT, shape) for n in "kv"]
        y = net.op("RMSNormalization", x, net.const(np.ones(WIDTH)), axis=-1)
        parts = [net.linear(y, WIDTH, c * SIZE) for c in (HEADS, SHARED, SHARED)]
        q, k, v = (net.heads(p, c) for p, c in zip(parts, (HEADS, SHARED, SHARED), strict=True))
        q, k = (net.op("RotaryEmbedding", p, cos, sin, positions) for p in (q, k))
        k, v = (net.op("TensorScatter", old, new, starts, axis=2) for old, new in zip(past, (k, v), strict=True))
        presents += [(f"cache_k_{layer}_out", k), (f"cache_v_{layer}_out", v)]
        y = net.op("Attention", q, k, v, bias, "", "", ends)
        x = net.op("Add", x, net.linear(net.joined(y), WIDTH, WIDTH))
        x = _opset18_feed_forward(net, x)
    y = net.op("RMSNormalization", x, net.const(np.ones(WIDTH)), axis=-1)
    net.output(net.linear(y, WIDTH, WORDS), "logits", ("batch_size", "sequence_length", WORDS))
    for name, value in presents:
        net.output(value, name, shape)
    return net.model("scattered")


def merged(layers: int = LAYERS, seed: int = 0) -> bytes:
    """Llama with a switch `use_cache_branch`, as optimum merges decoders: one branch without the past, one with it."""
    whole = onnx.load_model_from_string(llama(layers, seed))
    graph = whole.graph
    names = [o.name for o in graph.output]
    swapped = {i.name for i in graph.input if i.name.startswith("past_")}
    branches = []
    for kind in ("then", "else"):
        renamed = {o: f"{kind}.{o}" for n in graph.node for o in n.output}
        nodes = []
        for n in graph.node:
            made = onnx.NodeProto()
            made.CopyFrom(n)
            if kind == "else" and made.op_type == "Concat" and made.input[0] in swapped:
                made = helper.make_node("Identity", [made.input[1]], list(made.output), made.name)
            made.name = f"{kind}.{made.name}"
            made.input[:] = [renamed.get(i, i) for i in made.input]
            made.output[:] = [renamed.get(o, o) for o in made.output]
            nodes.append(made)
        outputs = []
        for o in graph.output:
            out = onnx.ValueInfoProto()
            out.CopyFrom(o)
            out.name = renamed[o.name]
            outputs.append(out)
        branches.append(helper.make_graph(nodes, kind, [], outputs))
    chosen = helper.make_node(
        "If", ["use_cache_branch"], names, "merged", then_branch=branches[0], else_branch=branches[1]
    )
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    made_graph = helper.make_graph(
        [chosen], "merged", [*graph.input, flag], list(graph.output), list(graph.initializer)
    )
    opsets = list(whole.opset_import)
    return helper.make_model(made_graph, opset_imports=opsets, ir_version=10).SerializeToString()


KINDS = {"llama": llama, "gpt2": gpt2, "grouped": grouped, "fused": fused, "scattered": scattered, "merged": merged}


def feeds_of(kind: str, ids: Any, past: int) -> dict[str, Any]:
    """What a decoder of that kind takes besides its caches, for tokens [B,S] behind `past` positions."""
    ids = np.asarray(ids, np.int64)
    batch, count = ids.shape
    positions = np.broadcast_to(np.arange(past, past + count, dtype=np.int64), ids.shape).copy()
    mask = np.ones((batch, past + count), np.int64)
    match kind:
        case "scattered":
            return {"input_ids": ids, "position_ids": positions, "write_indices": np.full(batch, past, np.int64)}
        case "gpt2" | "grouped":
            return {"input_ids": ids, "attention_mask": mask}
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


def told(state: State, kind: str, tokens: list[int], held: int = 0) -> list[Any]:
    """Logits of a prompt of four tokens, then of the others one by one."""
    steps = [tokens[:4], *([t] for t in tokens[4:])] if not held else [[t] for t in tokens]
    found = []
    for step in steps:
        found.append(state.run(feeds_of(kind, np.array([step]), held))[0])
        held += len(step)
    return found
