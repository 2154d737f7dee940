"""Small programs of Paddle whose files are damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..helpers.paddle_files import PaddleProgram

_RNG = np.random.default_rng(3)


def _draw(*shape: int) -> Any:
    return _RNG.standard_normal(shape, np.float32)


def convolutions() -> PaddleProgram:
    """A convolution, normalisation, pooling, a branch of shapes, and resizing."""
    params = {"f": _draw(4, 3, 3, 3), "s": _draw(4), "b": _draw(4), "m": _draw(4), "v": np.abs(_draw(4)) + 1}
    p = PaddleProgram({"x": _draw(1, 3, 8, 8)}, params, shapes={"x": (-1, 3, -1, -1)})
    window = {"strides": (2, 2), "paddings": (1, 1), "data_format": "NCHW"}
    p.op("conv2d", {"Input": ["x"], "Filter": ["f"]}, {"Output": ["c"]}, groups=1, dilations=(1, 1), **window)
    norm = {"X": ["c"], "Mean": ["m"], "Variance": ["v"], "Scale": ["s"], "Bias": ["b"]}
    p.op("batch_norm", norm, {"Y": ["n"]}, epsilon=1e-5, is_test=True, data_layout="NCHW")
    p.op("relu", {"X": ["n"]}, {"Out": ["r"]})
    p.op("pool2d", {"X": ["r"]}, {"Out": ["q"]}, ksize=(2, 2), pooling_type="avg", adaptive=False, **window)
    p.op("concat", {"X": ["q", "q"]}, {"Out": ["k"]}, axis=1)
    resized = {"out_h": 4, "out_w": 4, "align_corners": False, "align_mode": 0, "data_layout": "NCHW"}
    return p.op("bilinear_interp", {"X": ["k"]}, {"Out": ["y"]}, **resized)


def products() -> PaddleProgram:
    """Embedding, products, softmax, slices and reshapes."""
    p = PaddleProgram({"i": np.array([[1, 0, 2]])}, {"w": _draw(4, 6), "u": _draw(6, 6), "g": _draw(6)})
    p.op("embedding", {"Ids": ["i"], "W": ["w"]}, {"Out": ["e"]}, padding_idx=-1)
    p.op("matmul", {"X": ["e"], "Y": ["u"]}, {"Out": ["a"]}, trans_x=False, trans_y=True)
    p.op("layer_norm", {"X": ["a"], "Scale": ["g"], "Bias": ["g"]}, {"Y": ["l"]}, epsilon=1e-5, begin_norm_axis=2)
    p.op("transpose", {"X": ["l"]}, {"Out": ["t"]}, perm=(0, 2, 1))
    p.op("softmax", {"X": ["t"]}, {"Out": ["s"]}, axis=-1)
    p.op("split_with_num", {"X": ["s"]}, {"Out": ["p", "q"]}, num=2, axis=1)
    return p.op("add", {"X": ["p"], "Y": ["q"]}, {"Out": ["y"]})


def boxes() -> PaddleProgram:
    """Suppression of boxes, whose number depends on data."""
    given = {"b": np.abs(_draw(1, 5, 4)).cumsum(-1), "s": np.abs(_draw(1, 2, 5))}
    p = PaddleProgram(given, outputs=("y", "n"))
    attrs = {"score_threshold": 0.1, "nms_top_k": 4, "keep_top_k": 3, "nms_threshold": 0.5, "background_label": -1}
    outs = {"Out": ["y"], "Index": ["k"], "NmsRoisNum": ["n"]}
    return p.op("multiclass_nms3", {"BBoxes": ["b"], "Scores": ["s"]}, outs, nms_eta=1.0, normalized=True, **attrs)


def loop() -> PaddleProgram:
    """A while with a counter, and a branch in it."""
    p = PaddleProgram({"x": _draw(3), "n": np.array([3])})
    p.op("fill_constant", {}, {"Out": ["i"]}, shape=(1,), value=0.0, dtype=3)
    p.op("assign", {"X": ["x"]}, {"Out": ["y"]})
    p.op("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["c"]})
    p.op("while", {"X": ["i", "n", "y"], "Condition": ["c"]}, {"Out": ["i", "y", "c"]}, sub_block=1)
    p.blocks = [
        [
            ("scale", {"X": ["y"]}, {"Out": ["y"]}, {"scale": 2.0, "bias": 1.0, "bias_after_scale": True}),
            ("increment", {"X": ["i"]}, {"Out": ["i"]}, {"step": 1.0}),
            ("less_than", {"X": ["i"], "Y": ["n"]}, {"Out": ["c"]}, {}),
            ("conditional_block", {"Cond": ["c"]}, {"Out": ["y"]}, {"sub_block": 2}),
        ],
        [("relu", {"X": ["y"]}, {"Out": ["y"]}, {})],
    ]
    return p


PROGRAMS: dict[str, Callable[[], PaddleProgram]] = {
    "convolutions": convolutions,
    "products": products,
    "boxes": boxes,
    "loop": loop,
}
