"""Inputs that ONNX's documents omit or forbid and onnxruntime accepts: accepted with its result (docs/dropin.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from onnx import helper, numpy_helper
from opalite.errors import ShapeError

from ....helpers.numpy_session import NumpySession
from ....helpers.onnx_text import assert_same, by_onnxruntime

RNG = np.random.default_rng(39)
MS = "com.microsoft"


def f32(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def one_node(
    op: str,
    inputs: Mapping[str, Any],
    opset: int = 20,
    domain: str = "",
    names: str = "",
    outputs: Sequence[str] = ("y",),
    **attributes: Any,
) -> tuple[Any, dict[str, Any]]:
    """Return a model and its feeds. inputs: constants except those named x...; names: all names, '' for absent ones."""
    order = names.split(",") if names else list(inputs)
    free = {n: a for n, a in inputs.items() if n.startswith("x")}
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), None) for n, a in free.items()]
    constants = [numpy_helper.from_array(np.asarray(a), n) for n, a in inputs.items() if n not in free]
    node = helper.make_node(op, order, outputs, domain=domain, **attributes)
    graph = helper.make_graph([node], "g", infos, list(map(helper.make_empty_tensor_value_info, outputs)), constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), free


def norm_inputs(x: tuple[int, ...], *shape: int) -> dict[str, Any]:
    return {"x": f32(*x), "scale": f32(*shape), "bias": f32(*shape)}


BATCH = {"x": f32(5), "scale": f32(1), "bias": f32(1), "mean": f32(1), "variance": np.abs(f32(1))}
FRAMES = {"step": np.int64(4), "window": f32(16), "length": np.int64(16)}
QUERY = {"x": f32(1, 2, 3, 4), "cos": f32(5, 2), "sin": f32(5, 2), "xp": np.arange(3)[None]}

CASES: dict[str, Any] = {
    "STFT of [batch, n]": one_node("STFT", {"x": f32(2, 40), **FRAMES}),
    "STFT of [batch, n] without a window": one_node("STFT", {"x": f32(2, 40), **FRAMES}, names="x,step,,length"),
    "STFT of [batch, n], both sides": one_node("STFT", {"x": f32(2, 40), **FRAMES}, onesided=0),
    "Gemm of a vector": one_node("Gemm", {"x": f32(3), "b": f32(3, 5), "c": f32(5)}),
    "Squeeze of an axis named twice": one_node("Squeeze", {"x": f32(3, 1), "axes": i64(1, -1)}),
    "Squeeze of no axis": one_node("Squeeze", {"x": f32(3, 1), "axes": i64()}),
    "Conv with an empty auto_pad": one_node("Conv", {"x": f32(1, 2, 8, 8), "w": f32(4, 2, 3, 3)}, auto_pad=""),
    "AveragePool with an empty auto_pad": one_node(
        "AveragePool", {"x": f32(1, 2, 8, 8)}, auto_pad="", kernel_shape=[3, 3]
    ),
    "GroupNormalization by a row": one_node("GroupNormalization", norm_inputs((2, 4, 3), 1, 4), 21, num_groups=2),
    "GroupNormalization by one": one_node("GroupNormalization", norm_inputs((2, 4, 3), 1), 21, num_groups=2),
    "LayerNormalization by all of x": one_node("LayerNormalization", norm_inputs((2, 3, 4), 2, 3, 4)),
    "LayerNormalization by rows": one_node("LayerNormalization", norm_inputs((2, 3, 4), 3, 1)),
    "LayerNormalization from axis 1 by batches": one_node(
        "LayerNormalization", norm_inputs((2, 3, 4), 2, 1, 4), axis=1
    ),
    "LayerNormalization with an empty bias": one_node(
        "LayerNormalization", {"x": f32(2, 3, 4), "scale": f32(4), "bias": f32(0)}
    ),
    "BatchNormalization of a vector": one_node("BatchNormalization", BATCH),
    "ArgMax of a number": one_node("ArgMax", {"x": f32()}),
    "Concat with an empty one of other sizes": one_node("Concat", {"x": f32(2, 3), "x1": f32(0, 4)}, axis=0),
    "Concat with an empty one first": one_node("Concat", {"x": f32(0, 4), "x1": f32(2, 3)}, axis=0),
    "Concat with an empty one of another rank": one_node("Concat", {"x": f32(2, 3), "x1": f32(0, 3, 1)}, axis=-2),
    "Concat of empty ones of other ranks": one_node("Concat", {"x": f32(0, 5), "x1": f32(0, 4, 1)}, axis=0),
    "ReduceSum with keepdims 2": one_node("ReduceSum", {"x": f32(2, 3), "axes": i64(1)}, keepdims=2),
    "ReduceMax with noop_with_empty_axes 2": one_node("ReduceMax", {"x": f32(2, 3)}, noop_with_empty_axes=2),
    "ArgMin with keepdims -1": one_node("ArgMin", {"x": f32(2, 3)}, keepdims=-1),
    "TopK with largest 2": one_node("TopK", {"x": f32(2, 5), "k": i64(2)}, outputs=("y", "i"), largest=2),
    "MaxPool with ceil_mode 2": one_node(
        "MaxPool", {"x": f32(1, 2, 8, 8)}, ceil_mode=2, kernel_shape=[3, 3], strides=[2, 2]
    ),
    "Reshape with allowzero -1": one_node("Reshape", {"x": f32(2, 3, 4), "xshape": i64(0, -1)}, allowzero=-1),
    "Unique with sorted 2": one_node("Unique", {"x": np.array([3, 1, 3, 2], np.float32)}, sorted=2),
    "RotaryEmbedding with interleaved 2": one_node("RotaryEmbedding", QUERY, 23, interleaved=2),
    "EmbedLayerNormalization with segments but for their ids": one_node(
        "EmbedLayerNormalization",
        {
            "x": np.array([[0, 3, 2], [1, 1, 6]], np.int32),
            "words": f32(7, 4),
            "places": f32(5, 4),
            "segments": f32(2, 4),
            "scale": f32(4),
            "bias": f32(4),
        },
        domain=MS,
        outputs=("y", "i"),
        names="x,,words,places,segments,scale,bias",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_onnxruntime_takes_gives_its_result(name: str) -> None:
    model, feeds = CASES[name]
    assert_same(NumpySession(model).run(feeds), by_onnxruntime(model, feeds))


def test_ai_onnx_that_is_not_imported_is_the_newest() -> None:
    model, feeds = one_node("Slice", {"x": f32(2, 3), "starts": i64(0), "ends": i64(1)})
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid(MS, 1))
    assert_same(NumpySession(model).run(feeds), by_onnxruntime(model, feeds))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one_node("STFT", {"x": f32(40), **FRAMES}), r"needs a signal \[batch, n\], .* got f32\[40\]"),
        (one_node("STFT", {"x": f32(2, 2, 40), **FRAMES}), r"needs a signal \[batch, n\], .* got f32\[2,2,40\]"),
        (one_node("STFT", {"x": f32(2, 40), **FRAMES, "window": f32(1, 16)}), r"needs a vector as the window"),
        (one_node("DFT", {"x": f32(2, 40, 1), "axis": np.int64(-1)}, names="x,,axis"), r"along the last axis of f32"),
        (
            one_node("Concat", {"x": f32(2, 3), "x1": f32(2, 0)}, axis=0),
            r"f32\[2,0\] does not fit f32\[2,3\] off axis 0",
        ),
        (one_node("LayerNormalization", norm_inputs((2, 3, 4), 2, 2, 3, 4)), r"does not broadcast to x f32\[2,3,4\]"),
        (one_node("GroupNormalization", norm_inputs((2, 4, 3), 3), 21, num_groups=2), r"cannot reshape f32\[3\]"),
    ],
    ids=lambda v: None,
)
def test_what_has_no_meaning_is_refused(model: tuple[Any, dict[str, Any]], message: str) -> None:
    proto, feeds = model
    with pytest.raises(ShapeError, match=message):
        NumpySession(proto).run(feeds)
