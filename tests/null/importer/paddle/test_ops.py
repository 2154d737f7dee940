"""Importers of Paddle's operators beside NumPy; `make test-formats` compares all of them with paddle itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opalite.errors import ModelError, UnsupportedOpError
from tests.helpers.numpy_session import NumpySession
from tests.helpers.paddle_files import PaddleProgram

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)
I64 = np.array([1, 0, 1])
ROW = np.float32([[0.5, -1.5, 2.5, 3]])


def run(kind: str, given: Mapping[str, Any], outputs: Any = "Out", **attrs: Any) -> list[Any]:
    """Run one operator of a ProgramDesc; given: arrays by slot, or lists of arrays."""
    inputs, slots = {}, {}
    for slot, value in given.items():
        arrays = value if isinstance(value, list) else [value]
        names = [f"{slot}{i}" for i in range(len(arrays))]
        inputs.update(zip(names, arrays, strict=True))
        slots[slot] = names
    made = outputs.split() if isinstance(outputs, str) else outputs
    program = PaddleProgram(inputs, outputs=tuple(f"out{i}" for i in range(len(made))))
    results: dict[str, list[str]] = {}
    for i, slot in enumerate(made):
        results.setdefault(slot, []).append(f"out{i}")
    return NumpySession(program.op(kind, slots, results, **attrs).program_desc()).run(inputs)


def softmax(x: Any, axis: int) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = [
    ("round", {"X": ROW}, {}, [[1, -2, 3, 3]]),  # halves away from zero
    ("expm1", {"X": X}, {}, np.expm1(X)),
    ("isfinite_v2", {"X": np.float32([1, np.inf, np.nan])}, {}, [True, False, False]),
    ("scale", {"X": X}, {"scale": 2.0, "bias": 1.0, "bias_after_scale": True}, X * 2 + 1),
    ("scale", {"X": X}, {"scale": 2.0, "bias": 1.0, "bias_after_scale": False}, (X + 1) * 2),
    ("scale", {"X": np.array([3, -4])}, {"scale": 2.0, "bias": 1.0, "bias_after_scale": True}, [7, -7]),
    ("scale", {"X": X, "ScaleTensor": np.float32([3])}, {"bias": 0.0, "bias_after_scale": True}, X * 3),
    ("clip", {"X": X, "Min": np.float32([0])}, {"max": 0.5}, np.clip(X, 0, 0.5)),
    ("pow", {"X": X}, {"factor": 2.0}, X**2),
    ("cast", {"X": ROW}, {"in_dtype": 5, "out_dtype": 2}, ROW.astype(np.int32)),
    ("elementwise_add", {"X": IMAGE, "Y": np.float32([1, 2, 3, 4])}, {"axis": 1}, IMAGE + np.c_[1:5].reshape(4, 1, 1)),
    ("elementwise_sub", {"X": X, "Y": X[0]}, {"axis": -1}, X - X[0]),
    ("elementwise_div", {"X": np.array([7, -7]), "Y": np.array([2, 2])}, {"axis": -1}, [3, -3]),
    ("elementwise_floordiv", {"X": np.array([7, -7]), "Y": np.array([2, 2])}, {"axis": -1}, [3, -4]),
    ("elementwise_mod", {"X": np.float32([5, -5]), "Y": np.float32([3, 3])}, {"axis": -1}, [2, 1]),
    ("elementwise_pow", {"X": np.float32([2, 3]), "Y": np.float32([3, 2])}, {"axis": -1}, [8, 9]),
    ("not_equal", {"X": I64, "Y": np.array([1, 1, 1])}, {}, [False, True, False]),
    ("greater_equal", {"X": I64, "Y": np.array([1, 1, 1])}, {}, [True, False, True]),
    ("where", {"Condition": X > 0, "X": X, "Y": -X}, {}, np.abs(X)),
    ("sum", {"X": [X, X, X]}, {}, 3 * X),
    ("relu6", {"X": 9 * X}, {"threshold": 6.0}, np.clip(9 * X, 0, 6)),
    ("hard_swish", {"X": X}, {"threshold": 6.0, "scale": 6.0, "offset": 3.0}, X * np.clip(X + 3, 0, 6) / 6),
    ("hard_sigmoid", {"X": X}, {"slope": 0.2, "offset": 0.5}, np.clip(X * 0.2 + 0.5, 0, 1)),
    ("leaky_relu", {"X": X}, {"alpha": 0.1}, np.where(X < 0, X * 0.1, X)),
    ("softplus", {"X": X}, {"beta": 2.0, "threshold": 1.0}, np.where(2 * X > 1, X, np.log1p(np.exp(2 * X)) / 2)),
    ("softmax", {"X": X}, {"axis": 1}, softmax(X, 1)),
    ("prelu", {"X": IMAGE, "Alpha": np.float32([0, 1, 2, 3]).reshape(1, 4, 1, 1)},
     {"mode": "channel", "data_format": "NCHW"},
     np.where(IMAGE < 0, IMAGE * np.arange(4).reshape(4, 1, 1), IMAGE)),
    ("dropout", {"X": X}, {"dropout_prob": 0.25, "dropout_implementation": "downgrade_in_infer"}, X * 0.75),
    ("maxout", {"X": IMAGE}, {"groups": 2, "axis": 1}, IMAGE.reshape(1, 2, 2, 6, 6).max(2)),
    ("matmul", {"X": X, "Y": X}, {"transpose_X": False, "transpose_Y": True, "alpha": 0.5}, X @ X.swapaxes(1, 2) / 2),
    ("mul", {"X": X, "Y": X.reshape(12, 2)}, {"x_num_col_dims": 1, "y_num_col_dims": 1},
     X.reshape(2, 12) @ X.reshape(12, 2)),
    ("fc", {"Input": X, "W": X.reshape(4, 6), "Bias": np.float32(range(6))},
     {"in_num_col_dims": 2, "activation_type": "relu"}, np.maximum(X @ X.reshape(4, 6) + np.arange(6), 0)),
    ("reduce_mean", {"X": X}, {"dim": (0, 2), "keep_dim": True}, X.mean((0, 2), keepdims=True)),
    ("reduce_max", {"X": X}, {"reduce_all": True, "dim": (0,)}, X.max()),
    ("mean", {"X": X}, {}, X.mean()),
    ("arg_max", {"X": X}, {"axis": 1, "keepdims": False, "dtype": 2}, X.argmax(1).astype(np.int32)),
    ("cumsum", {"X": X}, {"axis": 1, "reverse": True}, X[:, ::-1].cumsum(1)[:, ::-1]),
    ("reshape2", {"X": X, "ShapeTensor": [np.int32([4]), np.int32([-1])]}, {"shape": (1, 1)}, X.reshape(4, 6)),
    ("reshape2", {"X": X}, {"shape": (0, -1)}, X.reshape(2, 12)),
    ("flatten_contiguous_range", {"X": X}, {"start_axis": 1, "stop_axis": -1}, X.reshape(2, 12)),
    ("squeeze2", {"X": X[:, :1]}, {"axes": (1, 2)}, X[:, 0]),
    ("unsqueeze2", {"X": X}, {"axes": (0, -1)}, X[None, ..., None]),
    ("transpose2", {"X": X}, {"axis": (2, 0, 1)}, X.transpose(2, 0, 1)),
    ("concat", {"X": [X, X], "AxisTensor": np.int32([2])}, {"axis": 0}, np.concatenate([X, X], 2)),
    ("stack", {"X": [X, X]}, {"axis": 1}, np.stack([X, X], 1)),
    ("slice", {"Input": X}, {"axes": (1, 2), "starts": (1, -2), "ends": (2, 9), "decrease_axis": (1,)}, X[:, 1, -2:]),
    ("slice", {"Input": X, "StartsTensorList": [np.int32([1])], "EndsTensor": np.int32([3])}, {"axes": (1,)},
     X[:, 1:3]),
    ("strided_slice", {"Input": X}, {"axes": (2,), "starts": (3,), "ends": (0,), "strides": (-2,)}, X[..., 3:0:-2]),
    ("expand_v2", {"X": X[:1]}, {"shape": (2, -1, -1)}, np.repeat(X[:1], 2, 0)),
    ("expand", {"X": X}, {"expand_times": (2, 1, 1)}, np.tile(X, (2, 1, 1))),
    ("tile", {"X": X}, {"repeat_times": (2,)}, np.tile(X, 2)),
    ("flip", {"X": X}, {"axis": (0, 2)}, X[::-1, :, ::-1]),
    ("roll", {"X": X}, {"shifts": (1, -5), "axis": (1, 2)}, np.roll(X, (1, -5), (1, 2))),
    ("pad3d", {"X": IMAGE}, {"paddings": (1, 2, 0, 1, 0, 0), "mode": "reflect", "data_format": "NCDHW"},
     np.pad(IMAGE, ((0, 0), (0, 0), (0, 1), (1, 2)), "reflect")),
    ("pad2d", {"X": IMAGE}, {"paddings": (1, 0, 2, 0), "mode": "edge", "data_format": "NCHW"},
     np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (2, 0)), "edge")),
    ("shape", {"Input": X}, {}, np.int32([2, 3, 4])),
    ("gather", {"X": X, "Index": I64, "Axis": np.int32([1])}, {"axis": 0}, X[:, I64]),
    ("gather_nd", {"X": X, "Index": np.array([[1, 2]])}, {}, X[[1], [2]]),
    ("index_sample", {"X": X[0], "Index": np.array([[3], [0], [1]])}, {}, X[0][[0, 1, 2], [3, 0, 1]][:, None]),
    ("lookup_table_v2", {"Ids": I64, "W": X[0]}, {"padding_idx": 0}, np.where(I64[:, None] == 0, 0, X[0][I64])),
    ("lookup_table", {"Ids": I64[:, None], "W": X[0]}, {"padding_idx": -1}, X[0][I64]),
    ("one_hot_v2", {"X": I64}, {"depth": 3, "dtype": 5}, np.eye(3, dtype=np.float32)[I64]),
    ("tril_triu", {"X": X[0]}, {"diagonal": 1, "lower": False}, np.triu(X[0], 1)),
    ("scatter", {"X": X[0], "Ids": np.array([0, 0]), "Updates": X[1][:2]}, {"overwrite": False},
     np.concatenate([X[1][:1] + X[1][1:2], X[0][1:]])),
    ("set_value", {"Input": X[0]}, {"axes": (1,), "starts": (1,), "ends": (3,), "steps": (1,), "shape": (1,),
                                    "values": (5.0,)}, np.c_[X[0][:, :1], np.full((3, 2), 5), X[0][:, 3:]]),
    ("where_index", {"Condition": X[0] > 0}, {}, np.argwhere(X[0] > 0)),
    ("fill_constant", {"ShapeTensorList": [np.int32([2]), np.int32([3])]}, {"dtype": 5, "value": 1.5},
     np.full((2, 3), 1.5)),
    ("fill_constant", {}, {"dtype": 3, "shape": (2,), "str_value": "9007199254740993"}, [9007199254740993] * 2),
    ("fill_constant_batch_size_like", {"Input": X}, {"shape": (-1, 5), "dtype": 5, "value": 2.0}, np.full((2, 5), 2)),
    ("fill_any_like", {"X": X}, {"value": 3.0, "dtype": -1}, np.full_like(X, 3)),
    ("range", {"Start": np.int64([1]), "End": np.int64([7]), "Step": np.int64([2])}, {}, [1, 3, 5]),
    ("nearest_interp_v2", {"X": IMAGE}, {"scale": (2.0, 0.5), "align_corners": False, "data_layout": "NCHW"},
     IMAGE.repeat(2, 2)[..., ::2]),
    ("affine_channel", {"X": IMAGE, "Scale": np.float32([1, 2, 3, 4]), "Bias": np.float32([0, 1, 0, 1])}, {},
     IMAGE * np.arange(1, 5).reshape(4, 1, 1) + np.float32([0, 1, 0, 1]).reshape(4, 1, 1)),
    ("shuffle_channel", {"X": IMAGE}, {"group": 2}, IMAGE[:, [0, 2, 1, 3]]),
    ("fake_channel_wise_dequantize_max_abs", {"X": np.float32([[127], [64]]), "Scales": [np.float32([1, 2])]},
     {"quant_bits": (8,), "quant_axis": 0}, [[1], [128 / 127]]),
    ("fake_quantize_dequantize_moving_average_abs_max", {"X": ROW, "InScale": np.float32([2.54])}, {"bit_length": 8},
     np.clip(np.rint(ROW / 0.02), -128, 127) * 0.02),
]  # fmt: skip


def test_quantisation_of_constants_and_of_observers(tmp_path: Path) -> None:
    """Constants are levels of 8 bits where all of them are; a node that only observes changes nothing."""
    for numbers in ([300, -5], [127, -128], [2.5, 1]):
        levels = np.float32(numbers)
        program = PaddleProgram({"x": np.float32([1, 1])}, {"q": levels, "s": np.float32([2.54])}, ("y",))
        program.op("dequantize_linear", {"X": ["q"], "Scale": ["s"]}, {"Y": ["d"]}, quant_axis=-1, bit_length=8)
        program.op("elementwise_mul", {"X": ["x"], "Y": ["d"]}, {"Out": ["y"]}, axis=-1)
        (found,) = NumpySession(str(program.write(tmp_path, "pdmodel"))).run(program.inputs)
        np.testing.assert_allclose(found, levels * 0.02, rtol=1e-5)
    scale = {"X": ROW, "Scale": np.float32([2.54])}
    for kind in ("quantize_linear", "dequantize_linear"):
        np.testing.assert_array_equal(run(kind, scale, "Y", only_observer=True, bit_length=8)[0], ROW)


@pytest.mark.parametrize(
    ("scales", "attrs", "why"),
    [
        ([1.0], {"bit_length": 17}, "has 17 bits; 2 to 16 are known"),
        ([1.0], {"bit_length": 1}, "has 1 bits"),
        ([1.0, 2.0], {"quant_axis": 1, "bit_length": 8}, "has 2 scales for axis 1"),
        ([1.0, 2.0], {"quant_axis": 5, "bit_length": 8}, "has 2 scales for axis 5"),
    ],
)
def test_scales_and_bits_that_no_level_has(scales: list[float], attrs: dict[str, Any], why: str) -> None:
    with pytest.raises((ModelError, UnsupportedOpError), match=why):
        run("quantize_linear", {"X": ROW, "Scale": np.float32(scales)}, "Y", **attrs)


@pytest.mark.parametrize(("kind", "given", "attrs", "wanted"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_operator(kind: str, given: dict[str, Any], attrs: dict[str, Any], wanted: Any) -> None:
    (found,) = run(kind, given, "Y" if kind == "stack" else "Out", **attrs)
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape
    assert (found.dtype.kind == "f") == (wanted.dtype.kind == "f" or found.dtype == np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_outputs_are_found_by_their_slots() -> None:
    out, indices = run("top_k_v2", {"X": X}, "Out Indices", k=2, axis=1)
    order = np.argsort(-X, 1)[:, :2]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(out, np.take_along_axis(X, order, 1))
    indices, out = run("argsort", {"X": X}, "Indices Out", axis=-1, descending=True)
    np.testing.assert_array_equal(out, -np.sort(-X, -1))
    pieces = run("split", {"X": X}, ["Out", "Out", "Out"], sections=(1, -1, 2), axis=2, num=0)
    assert [p.shape[2] for p in pieces] == [1, 1, 2]


def test_batch_norm_gives_its_statistics_as_they_are() -> None:
    mean, var = np.float32([0, 1, 2, 3]), np.float32([1, 2, 3, 4])
    given = {"X": IMAGE, "Scale": var, "Bias": mean, "Mean": mean, "Variance": var}
    y, same = run("batch_norm", given, "Y MeanOut", epsilon=1e-5, is_test=True, data_layout="NCHW")
    m, v = mean.reshape(4, 1, 1), var.reshape(4, 1, 1)
    np.testing.assert_allclose(y, (IMAGE - m) / np.sqrt(v + 1e-5) * v + m, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(same, mean)
    with pytest.raises(UnsupportedOpError, match="trains"):
        run("batch_norm", given, "Y", is_test=False)


def test_boxes_of_several_images_and_classes() -> None:
    boxes = np.float32([[[0, 0, 4, 4], [0, 0, 4, 5], [5, 5, 9, 9]]] * 2)
    scores = np.float32([[[0.9, 0.8, 0.3], [0.2, 0.7, 0.6]], [[0.05, 0.05, 0.05], [0.05, 0.05, 0.4]]])
    attrs = {"score_threshold": 0.1, "nms_top_k": 5, "keep_top_k": 3, "nms_threshold": 0.5, "background_label": -1}
    given = {"BBoxes": boxes, "Scores": scores}
    out, index, counts = run("multiclass_nms3", given, "Out Index NmsRoisNum", normalized=True, nms_eta=1.0, **attrs)
    np.testing.assert_array_equal(counts, [3, 1])
    np.testing.assert_allclose(out[:, 0], [0, 1, 1, 1])
    np.testing.assert_allclose(out[:, 1], [0.9, 0.7, 0.6, 0.4])
    np.testing.assert_array_equal(index[:, 0], [0, 1, 2, 5])
    np.testing.assert_array_equal(out[:, 2:], boxes.reshape(6, 4)[index[:, 0]])


def test_boxes_of_each_class_in_regions_of_two_images() -> None:
    boxes = np.float32([[[0, 0, 4, 4], [1, 1, 9, 9]], [[0, 0, 4, 5], [1, 1, 9, 8]], [[0, 0, 4, 4], [5, 5, 9, 9]]])
    scores = np.float32([[0.3, 0.9], [0.6, 0.05], [0.5, 0.4]])
    attrs = {"score_threshold": 0.1, "nms_top_k": 5, "keep_top_k": 2, "nms_threshold": 0.5, "background_label": -1}
    given = {"BBoxes": boxes, "Scores": scores, "RoisNum": np.int32([2, 1])}
    out, index, counts = run("multiclass_nms3", given, "Out Index NmsRoisNum", normalized=True, nms_eta=1.0, **attrs)
    np.testing.assert_array_equal(counts, [2, 2])
    np.testing.assert_allclose(out[:, :2], [[0, 0.6], [1, 0.9], [0, 0.5], [1, 0.4]], rtol=1e-6)
    np.testing.assert_array_equal(index[:, 0], [2, 1, 4, 5])  # region times classes, plus class
    np.testing.assert_array_equal(out[:, 2:], boxes.reshape(6, 4)[index[:, 0]])


def test_scores_are_lowered_by_overlaps_with_better_boxes() -> None:
    boxes = np.float32([[[0, 0, 4, 4], [0, 0, 4, 2], [5, 5, 9, 9]]] * 2)
    scores = np.float32([[[0.8, 0.4, 0.3]], [[0.4, 0.8, 0.05]]])
    attrs = {"score_threshold": 0.1, "nms_top_k": -1, "keep_top_k": 2, "post_threshold": 0.0, "background_label": -1}
    out, index, counts = run("matrix_nms", {"BBoxes": boxes, "Scores": scores}, "Out Index RoisNum", **attrs)
    np.testing.assert_array_equal(counts, [2, 2])
    # The second box of each image shares half of the union with the best one.
    np.testing.assert_allclose(out[:, 1], [0.8, 0.3, 0.8, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(index[:, 0], [0, 2, 4, 3])


def test_regions_by_the_level_of_their_size() -> None:
    rois = np.float32([[0, 0, 16, 16], [0, 0, 4, 4], [1, 1, 17, 17], [0, 0, 8, 8]])
    attrs = {"min_level": 2, "max_level": 3, "refer_level": 3, "refer_scale": 16, "pixel_offset": False}
    outputs = "MultiFpnRois MultiFpnRois MultiLevelRoIsNum MultiLevelRoIsNum RestoreIndex"
    given = {"FpnRois": rois, "RoisNum": np.int32([3, 1])}
    low, high, *numbers, restore = run("distribute_fpn_proposals", given, outputs, **attrs)
    np.testing.assert_array_equal(low, rois[[1, 3]])
    np.testing.assert_array_equal(high, rois[[0, 2]])
    np.testing.assert_array_equal(numbers, [[1, 1], [2, 0]])
    np.testing.assert_array_equal(np.concatenate([low, high])[restore[:, 0]], rois)


def test_proposals_are_cut_to_the_image_and_an_image_without_any_has_zeros() -> None:
    anchors = np.float32([[[[-4, -4, 4, 4]], [[0, 0, 8, 8]]]])
    given = {
        "Scores": np.float32([[[[0.2, 0.7]]], [[[0.2, 0.7]]]]),
        "BboxDeltas": np.zeros((2, 4, 1, 2), np.float32),
        "ImShape": np.float32([[6, 8], [0.5, 0.5]]),
        "Anchors": anchors,
        "Variances": np.ones_like(anchors),
    }
    attrs = {"pre_nms_topN": 9, "post_nms_topN": 9, "nms_thresh": 0.5, "min_size": 1.0, "eta": 1.0}
    rois, probs, counts = run(
        "generate_proposals_v2", given, "RpnRois RpnRoiProbs RpnRoisNum", pixel_offset=False, **attrs
    )
    np.testing.assert_array_equal(counts, [2, 1])
    np.testing.assert_array_equal(rois, [[0, 0, 8, 6], [0, 0, 4, 4], [0, 0, 0, 0]])
    np.testing.assert_allclose(probs[:, 0], [0.7, 0.2, 0])


def test_what_is_not_there_is_refused_by_name() -> None:
    boxes, scores = np.zeros((1, 2, 4), np.float32), np.ones((1, 1, 2), np.float32)
    with pytest.raises(UnsupportedOpError, match="multiclass_nms3 node 'out0' lowers its threshold"):
        run("multiclass_nms3", {"BBoxes": boxes, "Scores": scores}, nms_eta=0.9)
    with pytest.raises(UnsupportedOpError, match="pools by 'odd'"):
        run("pool2d", {"X": IMAGE}, ksize=(2, 2), pooling_type="odd")
    with pytest.raises(ModelError, match="has 5 paddings for 2 spatial axes"):
        run("conv2d", {"Input": IMAGE, "Filter": IMAGE}, "Output", paddings=(1,) * 5)
    with pytest.raises(ModelError, match=r"has strides \[1\]; 2 numbers are expected"):
        run("conv2d", {"Input": IMAGE, "Filter": IMAGE}, "Output", strides=(1,))
