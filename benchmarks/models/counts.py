"""Small models whose sizes depend on data, and models of many outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import onnx
from onnx import numpy_helper, parser

Feeds = dict[str, Any]

_HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'

_ROWS = """
g (float[300, 64] x) => (float[n, 64] y)
<float[64, 64] w, float zero = {0}, int64[1] last = {-1}, int64[1] first = {0}> {
    a = MatMul(x, w)
    s = ReduceSum <keepdims = 0> (a, last)
    chosen = Greater(s, zero)
    at = NonZero(chosen)
    rows = Squeeze(at, first)
    g = Gather(a, rows)
    p = MatMul(g, w)
    y = Relu(p)
}
"""

_COMPRESS = """
g (float[300, 64] x) => (float[n, 64] y) <float[64, 64] w, float least = {2.5}> {
    a = MatMul(x, w)
    s = ReduceMax <keepdims = 0, axes = [1]> (a)
    chosen = Greater(s, least)
    c = Compress <axis = 0> (a, chosen)
    p = MatMul(c, w)
    y = Softmax(p)
}
"""

_NMS = """
g (float[1, 300, 4] boxes, float[1, 3, 300] scores) => (int64[n, 3] found, float[n, 4] kept)
<int64[1] most = {300}, float[1] overlap = {0.5}, float[1] least = {0.3}, int64[1] two = {2}, int64[1] one = {1},
 int64[1] zero = {0}> {
    found = NonMaxSuppression(boxes, scores, most, overlap, least)
    column = Gather <axis = 1> (found, two)
    rows = Squeeze(column, one)
    all = Squeeze(boxes, zero)
    kept = Gather(all, rows)
}
"""

_TOPK = """
g (float[16, 64] x) => (float[16, k] y, int64[16, k] at) <float[64, 64] w, int64 most = {60}, int64[1] flat = {-1}> {
    a = MatMul(x, w)
    gate = Sigmoid(a)
    sum = ReduceSum <keepdims = 0> (gate)
    whole = Cast <to = 7> (sum)
    rest = Mod(whole, most)
    k = Reshape(rest, flat)
    v, at = TopK(a, k)
    y = Relu(v)
}
"""

_UNIQUE = """
g (int64[128] x) => (float[128, 64] y) <float[64, 64] w> {
    u, firsts, inverse, counts = Unique(x)
    e = Gather(w, u)
    p = MatMul(e, w)
    y = Gather(p, inverse)
}
"""


def _floats(*shape: int) -> Callable[[np.random.Generator], Feeds]:
    return lambda rng: {"x": rng.standard_normal(shape).astype(np.float32)}


def _boxes(rng: np.random.Generator) -> Feeds:
    boxes = rng.random((1, 300, 4), np.float32)
    boxes[..., 2:] = boxes[..., :2] + 0.3 * boxes[..., 2:]
    return {"boxes": boxes, "scores": rng.random((1, 3, 300), np.float32)}


def _outputs(count: int) -> str:
    """`count` outputs, each the input times a factor of its own."""
    factors = ", ".join(f"float f{i} = {{{i}.1}}" for i in range(count))
    outputs = ", ".join(f"float[16] y{i}" for i in range(count))
    return f"g (float[16] x) => ({outputs}) <{factors}> {{ {' '.join(f'y{i} = Mul(x, f{i})' for i in range(count))} }}"


_MODELS: dict[str, tuple[str, Callable[[np.random.Generator], Feeds]]] = {
    "rows": (_ROWS, _floats(300, 64)),
    "compress": (_COMPRESS, _floats(300, 64)),
    "nms": (_NMS, _boxes),
    "topk": (_TOPK, _floats(16, 64)),
    "unique": (_UNIQUE, lambda rng: {"x": rng.integers(0, 64, 128)}),
    "outputs_100": (_outputs(100), _floats(16)),
    "outputs_1000": (_outputs(1000), _floats(16)),
}
NAMES = tuple(_MODELS)


def build(name: str, runs: int) -> tuple[bytes, list[Feeds]]:
    """The model called `name`, with weights of its own, and inputs for `runs` runs, whose sizes differ inside."""
    text, make = _MODELS[name]
    model = parser.parse_model(_HEAD + text)
    rng = np.random.default_rng(0)
    for info in model.graph.value_info:  # what is declared without contents
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        array = (rng.standard_normal(dims) / dims[0] ** 0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del model.graph.value_info[:]
    onnx.checker.check_model(model)
    return model.SerializeToString(), [make(rng) for _ in range(runs)]
