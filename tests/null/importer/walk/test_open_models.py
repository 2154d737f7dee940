"""Exported models with dynamic dimensions: one segment for all sizes, with onnxruntime's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.numpy_helper as nph
import pytest

from onnx import TensorProto, helper

from ....helpers.numpy_session import NumpySession

LAYERS, WIDTH, HEADS, WORDS, LONGEST = 2, 32, 4, 20, 64
SIZE = WIDTH // HEADS


class Net:
    """Builder of nodes and weights of one graph."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, *shape: int) -> str:
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def constant(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(nph.from_array(np.asarray(value), name))
        return name

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name


def decoder() -> Any:
    """A decoder: keys and values grow by Concat; positions and mask depend on their lengths."""
    n = Net()
    f, i = TensorProto.FLOAT, TensorProto.INT64
    inputs = [helper.make_tensor_value_info("ids", i, ["batch", "sequence"])]
    outputs = [helper.make_tensor_value_info("logits", f, ["batch", "sequence", WORDS])]
    zero, one, first, second = (n.constant(np.int64(v)) for v in (0, 1, [0], [1]))
    ids = n.add("Shape", "ids")
    batch, steps = n.add("Gather", ids, zero), n.add("Gather", ids, one)
    past = n.add("Gather", n.add("Shape", "past.0.key"), n.constant(np.int64(2)))
    total = n.add("Add", past, steps)
    queries, keys = n.add("Range", past, total, one), n.add("Range", zero, total, one)
    seen = n.add("LessOrEqual", n.add("Unsqueeze", keys, first), n.add("Unsqueeze", queries, second))
    mask = n.add("Where", seen, n.constant(np.float32(0)), n.constant(np.float32(-1e9)))
    rows = [n.add("Unsqueeze", v, first) for v in (batch, steps)]
    apart = n.add("Concat", *rows, n.constant(np.int64([HEADS])), n.constant(np.int64([SIZE])), axis=0)
    joined = n.add("Concat", *rows, n.constant(np.int64([-1])), axis=0)
    positions = n.add("Gather", n.weight(LONGEST, WIDTH), n.add("Unsqueeze", queries, first))
    x = n.add("Add", n.add("Gather", n.weight(WORDS, WIDTH), "ids"), positions)
    for layer in range(LAYERS):
        heads = []
        for _ in range(3):
            part = n.add("Reshape", n.add("MatMul", x, n.weight(WIDTH, WIDTH)), apart)
            heads.append(n.add("Transpose", part, perm=[0, 2, 1, 3]))
        for k, kind in enumerate(("key", "value"), 1):
            name, grown = f"past.{layer}.{kind}", f"present.{layer}.{kind}"
            inputs.append(helper.make_tensor_value_info(name, f, ["batch", HEADS, "past", SIZE]))
            outputs.append(helper.make_tensor_value_info(grown, f, ["batch", HEADS, "past + sequence", SIZE]))
            heads[k] = n.add("Concat", name, heads[k], out=grown, axis=2)
        scores = n.add("MatMul", heads[0], n.add("Transpose", heads[1], perm=[0, 1, 3, 2]))
        weights = n.add("Softmax", n.add("Add", scores, mask), axis=-1)
        together = n.add("Transpose", n.add("MatMul", weights, heads[2]), perm=[0, 2, 1, 3])
        x = n.add("Add", x, n.add("MatMul", n.add("Reshape", together, joined), n.weight(WIDTH, WIDTH)))
    n.add("MatMul", x, n.weight(WIDTH, WORDS), out="logits")
    graph = helper.make_graph(n.nodes, "decoder", inputs, outputs, n.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def decoder_feeds(batch: int, steps: int, past: int) -> dict[str, Any]:
    rng = np.random.default_rng(past)
    feeds: dict[str, Any] = {"ids": rng.integers(0, WORDS, (batch, steps))}
    for layer in range(LAYERS):
        for kind in ("key", "value"):
            feeds[f"past.{layer}.{kind}"] = rng.standard_normal((batch, HEADS, past, SIZE)).astype(np.float32)
    return feeds


def detector() -> Any:
    """A feature pyramid: downsampled maps are resized to the size of their addend, then flattened by their shape."""
    n = Net()
    x = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, "H", "W"])]
    fine = n.add("Conv", "x", n.weight(8, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    middle = n.add("Conv", fine, n.weight(8, 8, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    coarse = n.add("Conv", middle, n.weight(8, 8, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    front = n.add("Slice", n.add("Shape", coarse), n.constant(np.int64([0])), n.constant(np.int64([2])))
    back = n.add("Slice", n.add("Shape", middle), n.constant(np.int64([2])), n.constant(np.int64([4])))
    grown = n.add("Resize", coarse, "", "", n.add("Concat", front, back, axis=0), mode="nearest")
    both = n.add("Concat", grown, middle, axis=1)
    doubled = n.add("Resize", both, "", n.constant(np.float32([1, 1, 2, 2])), mode="linear")
    whole = n.add("Slice", n.add("Shape", "x"), n.constant(np.int64([0])), n.constant(np.int64([1])))
    rows = n.add("Concat", whole, n.constant(np.int64([-1, 16])), axis=0)
    n.add("Reshape", n.add("Transpose", doubled, perm=[0, 2, 3, 1]), rows, out="y")
    y = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "cells", 16])]
    graph = helper.make_graph(n.nodes, "detector", x, y, n.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(model: Any, runs: list[dict[str, Any]]) -> NumpySession:
    onnxruntime = pytest.importorskip("onnxruntime")
    other = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session = NumpySession(model, symbols=True)
    for feeds in runs:
        for got, want in zip(session.run(feeds), other.run(None, feeds), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    return session


def test_a_cache_of_any_length_is_one_segment() -> None:
    session = check(decoder(), [decoder_feeds(1, 1, past) for past in (2, 3, 4, 17, 40, 5)])
    (segment,) = session.imported
    assert [g.text for g in segment.graph.trace.guards] == ["s0 >= 2"]
    session = check(decoder(), [decoder_feeds(*sizes) for sizes in ((2, 3, 5), (3, 2, 9), (2, 30, 31))])
    assert len(session.imported) == 1


def test_images_of_any_size_are_one_segment() -> None:
    sizes = ((64, 96), (70, 50), (33, 47), (128, 32), (96, 64))
    pictures = [{"x": np.random.default_rng(h).random((2, 3, h, w), np.float32)} for h, w in sizes]
    session = check(detector(), pictures)
    assert len(session.imported) == 1, [g.text for s in session.imported for g in s.graph.trace.guards]
