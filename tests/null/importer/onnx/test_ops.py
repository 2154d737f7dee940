"""Importer functions of the default domain where node cases of onnx do not reach: old versions and rare attributes.

Longer than 400 lines: a list of cases.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from opalite.errors import ModelError, OpaliteError, ShapeError, UnsupportedOpError

from ..oracles import Values, assert_same, by_onnx, by_ort, f32, imported

V = Values()
X = V.f(2, 3, 5, 7)


def _i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


# Before opset 7 the second operand was aligned by attributes.


@pytest.mark.parametrize(
    ("axis", "shape"), [(1, (3,)), (1, (3, 5)), (None, (7,)), (None, (5, 7)), (0, (2,)), (-3, (3, 5))]
)
def test_add_6_broadcast_axis(axis: int | None, shape: tuple[int, ...]) -> None:
    b = V.f(*shape)
    attrs = {} if axis is None else {"axis": axis}
    at = 4 - len(shape) if axis is None else axis % 4
    want = X + b.reshape(*shape, *(1,) * (4 - at - len(shape)))
    assert_same(imported("Add", [X, b], opset=6, broadcast=1, **attrs), [want])


def test_prelu_6_slope_by_channel() -> None:
    slope = V.f(3)
    want = np.where(X < 0, X * slope.reshape(3, 1, 1), X)
    assert_same(imported("PRelu", [X, slope], opset=6), [want])


def _softmax(x: Any, axis: Any) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_before_13_flattens(op: str, axis: int) -> None:
    assert_same(imported(op, [X], opset=11, axis=axis), by_ort(op, [X], opset=11, axis=axis))


def test_softmax_before_13_defaults_to_axis_1() -> None:
    assert_same(imported("Softmax", [X], opset=11), [_softmax(X.reshape(2, -1), 1).reshape(X.shape)])


@pytest.mark.parametrize(
    ("op", "opset", "attrs", "want"),
    [
        ("Slice", 9, {"starts": [1, -4], "ends": [3, 1000], "axes": [1, 3]}, X[:, 1:3, :, -4:]),
        ("Slice", 9, {"starts": [1], "ends": [2]}, X[1:2]),
        ("Pad", 2, {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "value": 2.5}, None),
        ("Pad", 10, {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": "reflect"}, None),
        ("Clip", 6, {"min": -0.5}, np.maximum(X, -0.5)),
        ("Clip", 6, {"max": 0.25}, np.minimum(X, 0.25)),
        ("Unsqueeze", 11, {"axes": [0, 5]}, X[None, ..., None]),
        ("Flatten", 9, {"axis": 2}, X.reshape(6, 35)),
        ("Flatten", 13, {"axis": -1}, X.reshape(30, 7)),
        ("ReduceSum", 11, {"axes": [-1], "keepdims": 0}, X.sum(-1)),
        ("ReduceMean", 17, {"axes": [0, 2]}, X.mean((0, 2), keepdims=True)),
        ("Cast", 5, {"to": "INT32"}, X.astype(np.int32)),
        ("Reshape", 1, {"shape": [0, -1]}, X.reshape(2, -1)),
        ("Upsample", 7, {"scales": [1.0, 1.0, 2.0, 3.0]}, X.repeat(2, 2).repeat(3, 3)),
        ("Dropout", 9, {"ratio": 0.5}, X),
        ("Affine", 1, {"alpha": 2.0, "beta": 0.5}, 2 * X + 0.5),
        ("ScaledTanh", 1, {"alpha": 2.0, "beta": 0.5}, 2 * np.tanh(0.5 * X)),
        ("ParametricSoftplus", 1, {"alpha": 2.0, "beta": 0.5}, 2 * np.log1p(np.exp(0.5 * X))),
        ("ImageScaler", 1, {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}, 2 * X + np.float32([1, 2, 3]).reshape(3, 1, 1)),
        ("Crop", 1, {"border": [1, 2, 3, 0]}, X[:, :, 2:, 1:-3]),
        ("Crop", 1, {"border": [1, 2, 0, 0], "scale": [2, 3]}, X[:, :, 2:4, 1:4]),
        ("MeanVarianceNormalization", 1, {"normalize_variance": 0}, X - X.mean((2, 3), keepdims=True)),
        ("GlobalLpPool", 2, {"p": 3}, (np.abs(X) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)),
    ],
)
def test_attributes_of_old_versions(op: str, opset: int, attrs: dict[str, Any], want: Any) -> None:
    if want is None:
        mode = attrs.get("mode", "constant")
        p = attrs["pads"]
        extra = {"constant_values": attrs["value"]} if mode == "constant" else {}
        want = np.pad(X, list(zip(p[:4], p[4:], strict=True)), mode, **extra)
    assert_same(imported(op, [X], opset=opset, **attrs), [want])


def test_split_2_by_attribute_and_evenly() -> None:
    assert_same(imported("Split", [X], (0, 1), opset=11, axis=3, split=[2, 5]), [X[..., :2], X[..., 2:]])
    assert_same(imported("Split", [X], (0, 1, 2), opset=11, axis=1), [X[:, :1], X[:, 1:2], X[:, 2:]])


def test_split_18_leaves_the_smaller_piece_last() -> None:
    got = imported("Split", [X], (0, 1, 2), opset=18, axis=3, num_outputs=3)
    assert_same(got, [X[..., :3], X[..., 3:6], X[..., 6:]])


def test_dropout_masks_are_ones() -> None:
    assert_same(imported("Dropout", [X], (0, 1), opset=7), [X, np.ones_like(X)])
    assert_same(imported("Dropout", [X], (0, 1), opset=12), [X, np.ones(X.shape, bool)])


def test_top_k_1_takes_k_as_attribute() -> None:
    values, places = imported("TopK", [X], (0, 1), opset=9, axis=3, k=2)
    order = np.argsort(-X, 3)[..., :2]
    assert_same([values, places], [np.take_along_axis(X, order, 3), order])


# Shapes given as inputs: known ones, and fed ones (a second segment knows them).


@pytest.mark.parametrize("const", [(), (1,)])
def test_reshape_copies_and_infers(const: tuple[int, ...]) -> None:
    got = imported("Reshape", [X, _i64(0, -1, 5, 7)], const=const)
    assert_same(got, [X])


def test_reshape_allowzero() -> None:
    empty = np.zeros((0, 4), np.float32)
    got = imported("Reshape", [empty, _i64(3, 0, 2)], const=(1,), allowzero=1)
    assert_same(got, [empty.reshape(3, 0, 2)])


@pytest.mark.parametrize(
    ("pads", "axes", "mode"),
    [
        ([1, -1, 0, 2], [2, 3], "constant"),
        ([0, -2, 0, -1], [2, 3], "constant"),
        ([1, 2, 2, 1], [-2, -1], "edge"),
        ([2, 1, 1, 3], [2, 3], "wrap"),
    ],
)
def test_pad_of_some_axes(pads: list[int], axes: list[int], mode: str) -> None:
    arrays = [X, _i64(*pads), f32(1.5), _i64(*axes)]
    assert_same(
        imported("Pad", arrays, opset=19, const=(1, 2, 3), mode=mode),
        by_ort("Pad", arrays, opset=19, const=(1, 2, 3), mode=mode),
    )


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([6, -1], [-100, -100], [3, 2], [-2, -1]),
        ([1], [100], [2], [3]),
        ([4], [1], [3], [1]),
    ],
)
def test_slice_with_steps(starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> None:
    arrays = [X, _i64(*starts), _i64(*ends), _i64(*axes), _i64(*steps)]
    assert_same(imported("Slice", arrays, const=(1, 2, 3, 4)), by_ort("Slice", arrays, const=(1, 2, 3, 4)))


def test_tile_expand_and_their_empty_results() -> None:
    assert_same(imported("Tile", [X, _i64(2, 1, 3, 1)], const=(1,)), [np.tile(X, (2, 1, 3, 1))])
    assert_same(imported("Tile", [X, _i64(0, 1, 1, 1)], const=(1,)), [np.zeros((0, 3, 5, 7), np.float32)])
    assert_same(imported("Expand", [X[:, :1], _i64(3, 1, 1)], const=(1,)), [X[:, :1].repeat(3, 1)])


# Arithmetic


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.5, 1.0, 2.0, 3.0, 1.7])
def test_pow_of_common_exponents(exponent: float) -> None:
    x = np.abs(X) + 0.1
    assert_same(imported("Pow", [x, f32(exponent)], const=(1,)), [x**exponent])


def test_pow_of_whole_numbers_by_fractions_truncates() -> None:
    x, y = np.array([1, 2, 3, 5, 9], np.int64), np.array([4, 5, 6, 3, 0.5], np.float32)
    assert_same(imported("Pow", [x, y]), [np.array([1, 32, 729, 125, 3], np.int64)])


def test_clip_accepts_bounds_from_inputs() -> None:
    for const in ((), (1, 2)):
        assert_same(imported("Clip", [X, f32(-0.3), f32(0.6)], const=const), [np.clip(X, -0.3, 0.6)])
    assert_same(imported("Clip", [X, None, f32(0.6)], const=(2,)), [np.minimum(X, 0.6)])


def test_sum_of_more_inputs_than_one_expression_takes() -> None:
    parts = [V.f(3, 4) for _ in range(19)]
    assert_same(imported("Sum", parts), [np.sum(parts, 0)])
    assert_same(imported("Mean", parts), [np.mean(parts, 0)])
    assert_same(imported("Max", parts), [np.max(parts, 0)])


def test_modulo_of_a_zero_divisor_does_not_trap() -> None:
    got = imported("Mod", [np.array([5, -5], np.int32), np.array([0, 3], np.int32)])
    assert_same(got, [np.array([0, 1], np.int32)])


# Convolution and pooling


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool"])
def test_auto_pad(op: str, auto_pad: str) -> None:
    arrays = [X, V.f(4, 3, 2, 3)] if op == "Conv" else [X]
    attrs = {"auto_pad": auto_pad, "strides": [2, 3]}
    if op != "Conv":
        attrs["kernel_shape"] = [2, 3]
    assert_same(imported(op, arrays, **attrs), by_ort(op, arrays, **attrs))


@pytest.mark.parametrize(
    "attrs",
    [
        {"output_shape": [11, 15], "strides": [2, 2]},
        {"output_shape": [10, 14], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID", "strides": [2, 3]},
        {"pads": [1, 0, 1, 2], "strides": [2, 2], "output_padding": [1, 1], "dilations": [2, 1]},
    ],
)
def test_conv_transpose(attrs: dict[str, Any]) -> None:
    arrays = [X, V.f(3, 2, 3, 3), V.f(2)]
    assert_same(imported("ConvTranspose", arrays, **attrs), by_ort("ConvTranspose", arrays, **attrs))


@pytest.mark.parametrize("storage_order", [0, 1])
def test_max_pool_indices(storage_order: int) -> None:
    attrs = {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [0, 1, 1, 1], "storage_order": storage_order}
    assert_same(imported("MaxPool", [X], (0, 1), **attrs), by_ort("MaxPool", [X], (0, 1), **attrs))


def test_lp_pool_and_lrn() -> None:
    attrs = {"kernel_shape": [2, 3], "p": 3, "strides": [1, 2]}
    assert_same(imported("LpPool", [X], **attrs), by_ort("LpPool", [X], **attrs))
    attrs = {"size": 3, "alpha": 0.02, "beta": 0.6, "bias": 1.5}
    assert_same(imported("LRN", [X], **attrs), by_ort("LRN", [X], **attrs))


def test_col2im_where_blocks_do_not_reach_the_end() -> None:
    columns = V.f(1, 2 * 6, 2 * 3)
    arrays = [columns, _i64(6, 8), _i64(2, 3)]
    attrs = {"strides": [3, 2], "dilations": [1, 1], "pads": [0, 0, 0, 0]}
    assert_same(imported("Col2Im", arrays, const=(1, 2), **attrs), by_onnx("Col2Im", arrays, const=(1, 2), **attrs))


# Normalisation


def test_group_normalization_18_scales_groups() -> None:
    x = V.f(2, 6, 4)
    scale, bias = V.f(3), V.f(3)
    want = imported("GroupNormalization", [x, scale.repeat(2), bias.repeat(2)], opset=21, num_groups=3)
    assert_same(imported("GroupNormalization", [x, scale, bias], opset=18, num_groups=3), want)


def test_layer_normalization_statistics() -> None:
    arrays = [X, V.f(5, 7), V.f(5, 7)]
    assert_same(
        imported("LayerNormalization", arrays, (0, 1, 2), axis=2),
        by_ort("LayerNormalization", arrays, (0, 1, 2), axis=2),
    )


def test_batch_normalization_folds_its_parameters_in_float32() -> None:
    x = X.astype(np.float16)
    parameters = [np.abs(V.f(3)).astype(np.float16) for _ in range(4)]
    got = imported("BatchNormalization", [x, *parameters], opset=15, const=(1, 2, 3, 4))
    s, b, m, v = (p.astype(np.float32).reshape(3, 1, 1) for p in parameters)
    want = (x.astype(np.float32) - m) / np.sqrt(v + 1e-5) * s + b
    assert_same(got, [want.astype(np.float16)], tol=4e-3)


# Quantisation


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_saturates_and_rounds_half_to_even(dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, np.inf, -np.inf], np.float32)
    zero = np.asarray(info.max // 2, dtype)
    got = imported("QuantizeLinear", [x, f32(1.0), zero], opset=21)
    want = np.clip(np.rint(x.astype(np.float64)) + float(zero), info.min, info.max).astype(dtype)
    assert_same(got, [want])


@pytest.mark.parametrize(("axis", "block"), [(0, 2), (1, 4), (1, 5)])
def test_blocked_quantisation(axis: int, block: int) -> None:
    x = V.f(4, 12)
    blocks = -(-x.shape[axis] // block)
    shape = (blocks, 12) if axis == 0 else (4, blocks)
    scale, zero = np.abs(V.f(*shape)) + 0.01, V.i8(*shape)
    attrs = {"axis": axis, "block_size": block, "opset": 21}
    q = imported("QuantizeLinear", [x, scale, zero], **attrs)
    assert_same(q, by_onnx("QuantizeLinear", [x, scale, zero], **attrs))
    assert_same(
        imported("DequantizeLinear", [q[0], scale, zero], **attrs),
        by_onnx("DequantizeLinear", [q[0], scale, zero], **attrs),
    )


def test_dequantize_widens_constants_of_four_bits() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, zero = V.ints(-8, 8, 3, 8).astype(ml_dtypes.int4), V.ints(-8, 8, 3).astype(ml_dtypes.int4)
    scale = np.abs(V.f(3))
    want = (x.astype(np.float32) - zero.astype(np.float32)[:, None]) * scale[:, None]
    assert_same(imported("DequantizeLinear", [x, scale, zero], opset=21, const=(0, 2), axis=0), [want])


def test_qlinear_conv_by_output_channel() -> None:
    arrays = [
        V.u8(1, 3, 6, 6), f32(0.02), np.uint8(120) * np.ones((), np.uint8),
        V.i7(4, 3, 3, 3), np.abs(V.f(4)) * 0.01 + 0.001, np.zeros(4, np.int8),
        f32(0.05), np.ones((), np.uint8) * np.uint8(100), V.ints(-500, 500, 4, dtype=np.int32),
    ]  # fmt: skip
    attrs = {"pads": [1, 1, 1, 1], "strides": [2, 1]}
    const = (1, 2, 3, 4, 5, 6, 7, 8)
    got = imported("QLinearConv", arrays, const=const, **attrs)
    assert_same(got, by_ort("QLinearConv", arrays, const=const, **attrs), steps=1)


def test_integer_products_take_zero_points_by_row_and_column() -> None:
    a, b = V.u8(2, 3, 4), V.i8(4, 5)
    a_zero, b_zero = V.u8(), V.i8(5)
    want = (a.astype(np.int32) - np.int32(a_zero)) @ (b.astype(np.int32) - b_zero.astype(np.int32))
    assert_same(imported("MatMulInteger", [a, b, a_zero, b_zero]), [want])


# Attention and recurrent layers


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_attention_gives_its_scores(mode: int) -> None:
    arrays = [V.f(2, 4, 3, 8), V.f(2, 2, 5, 8), V.f(2, 2, 5, 6), V.f(3, 5)]
    # In mode 0 onnx's reference gives capped scores, against its own text: so no cap there.
    attrs = {"softcap": 2.0 if mode else 0.0, "qk_matmul_output_mode": mode, "opset": 23}
    assert_same(imported("Attention", arrays, (0, 3), **attrs), by_onnx("Attention", arrays, (0, 3), **attrs))


def test_attention_of_a_query_that_sees_nothing_is_zero() -> None:
    q = V.f(1, 1, 2, 4)
    mask = np.array([[False, False, False], [True, False, True]])
    y = imported("Attention", [q, V.f(1, 1, 3, 4), V.f(1, 1, 3, 4), mask], opset=23)[0]
    assert not y[0, 0, 0].any()
    assert y[0, 0, 1].any()


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers(op: str, direction: str) -> None:
    gates, d = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    t, b, i, h = 5, 3, 4, 6
    own = Values(gates + d)
    arrays = [own.f(t, b, i), own.f(d, gates * h, i), own.f(d, gates * h, h), own.f(d, 2 * gates * h)]
    arrays += [np.array([5, 2, 3], np.int32), own.f(d, b, h)]
    outs = (0, 1, 2) if op == "LSTM" else (0, 1)
    if op == "LSTM":
        arrays.append(own.f(d, b, h) * 5)
    attrs = {"hidden_size": h, "direction": direction, "clip": 1.5}
    assert_same(imported(op, arrays, outs, **attrs), by_ort(op, arrays, outs, **attrs))


def test_recurrent_activations_take_their_parameters_in_order() -> None:
    arrays = [V.f(4, 2, 3), V.f(1, 20, 3), V.f(1, 20, 5)]
    attrs = {
        "hidden_size": 5,
        "activations": ["HardSigmoid", "LeakyRelu", "ScaledTanh"],
        "activation_alpha": [0.3, 0.05, 0.9],
        "activation_beta": [0.4, 0.8],
    }
    assert_same(imported("LSTM", arrays, (0, 1, 2), **attrs), by_ort("LSTM", arrays, (0, 1, 2), **attrs))


# Images and signals


@pytest.mark.parametrize("score", [None, f32(0.4)])
def test_non_max_suppression_gives_as_many_rows_as_boxes_are_kept(score: Any) -> None:
    rng = np.random.default_rng(5)
    centres, sizes = rng.uniform(0, 4, (2, 13, 2)), rng.uniform(0.5, 2, (2, 13, 2))
    boxes = np.concatenate([centres - sizes, centres + sizes], -1).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 3, 13)).astype(np.float32)
    arrays = [boxes, scores, np.asarray(4, np.int64), f32(0.3), *([score] if score is not None else [])]
    const = tuple(range(2, len(arrays)))
    got = imported("NonMaxSuppression", arrays, const=const)
    assert_same(got, by_ort("NonMaxSuppression", arrays, const=const))


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, coordinates: str) -> None:
    x = V.f(2, 3, 9, 11)
    rois = np.array([[0, 0, 8, 7], [2.5, 1.5, 20, 6], [-4, -3, 3, 30], [5, 5, 5, 5]], np.float32)
    arrays = [x, rois, _i64(0, 1, 1, 0)]
    attrs = {
        "mode": mode, "output_height": 3, "output_width": 2, "sampling_ratio": 2,
        "spatial_scale": 0.7, "coordinate_transformation_mode": coordinates,
    }  # fmt: skip
    assert_same(imported("RoiAlign", arrays, **attrs), by_ort("RoiAlign", arrays, **attrs))


def test_resize_keeps_the_aspect_ratio() -> None:
    for policy in ("not_larger", "not_smaller"):
        arrays = [X, None, None, _i64(9, 9)]
        attrs = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "nearest"}
        assert_same(imported("Resize", arrays, const=(3,), **attrs), by_ort("Resize", arrays, const=(3,), **attrs))


@pytest.mark.parametrize("scale", [0.35, 0.5, 0.6, 1.5, 2.0])
def test_nearest_of_opset_10(scale: float) -> None:
    arrays = [V.f(1, 2, 3, 10), np.array([1, 1, 1, scale], np.float32)]
    got = imported("Resize", arrays, const=(1,), opset=10, mode="nearest")
    assert_same(got, by_ort("Resize", arrays, const=(1,), opset=10, mode="nearest"))


@pytest.mark.parametrize("length", [4, 6, 7])
def test_real_fourier_transform_and_its_inverse(length: int) -> None:
    x = V.f(2, 6, 1)
    n = np.asarray(length, np.int64)
    spectrum = imported("DFT", [x, n], opset=20, const=(1,), onesided=1)[0]
    want = np.fft.rfft(x[..., 0], length, axis=1)
    assert_same([spectrum], [np.stack([want.real, want.imag], -1).astype(np.float32)])
    back = imported("DFT", [spectrum, n], opset=20, const=(1,), onesided=1, inverse=1)[0]
    assert_same([back], [np.fft.irfft(want, length, axis=1)[..., None].astype(np.float32)])


@pytest.mark.parametrize("parts", [1, 2])
def test_transform_of_no_elements(parts: int) -> None:
    arrays = [np.zeros((6, 0, parts), np.float32)]
    assert_same(imported("DFT", arrays, opset=17, axis=1), by_ort("DFT", arrays, opset=17, axis=1))


@pytest.mark.parametrize("onesided", [None, 0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_short_time_fourier_transform(parts: int, onesided: int | None) -> None:
    """Complex signals give one side too, unless onesided=0."""
    attrs = {} if onesided is None else {"onesided": onesided}
    arrays = [V.f(2, 40, parts), np.asarray(8, np.int64), np.hanning(16).astype(np.float32)]
    assert_same(imported("STFT", arrays, const=(1, 2), **attrs), by_ort("STFT", arrays, const=(1, 2), **attrs))


def test_multinomial_draws_by_log_probability() -> None:
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]], np.float32) + 1e-9)
    drawn = imported("Multinomial", [logits], sample_size=20000, seed=3.0)[0]
    assert drawn.dtype == np.int32
    shares = np.stack([np.bincount(row, minlength=3) / 20000 for row in drawn])
    np.testing.assert_allclose(shares, np.exp(logits), atol=0.02)


@pytest.mark.parametrize("op", ["RandomUniform", "RandomNormal"])
def test_random_numbers_repeat_with_a_seed_alone(op: str) -> None:
    runs = [imported(f"{op}Like", [X], seed=seed) for seed in (1.0, 1.0, 2.0)]
    assert_same(runs[0], runs[1])
    assert (runs[0][0] != runs[2][0]).any()
    assert runs[0][0].shape == X.shape


# Refusals say which node, what came and what would do.


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "error", "part"),
    [
        ("Concat", [X, X], {"axis": 4}, ShapeError, "axis 4"),
        ("Transpose", [X], {"perm": [0, 1, 1, 2]}, ShapeError, "perm"),
        ("Conv", [X, V.f(4, 3, 3, 3)], {"auto_pad": "SAME"}, UnsupportedOpError, "auto_pad"),
        ("Conv", [X, V.f(4, 3, 3, 3)], {"strides": [1]}, ShapeError, "strides"),
        ("Conv", [X, V.f(4, 3, 3)], {}, ShapeError, "ranks"),
        ("GridSample", [X, V.f(2, 4, 4, 2)], {"padding_mode": "wrap"}, UnsupportedOpError, "padding_mode"),
        ("MaxPool", [X], {}, ModelError, "kernel_shape"),
        ("DepthToSpace", [X], {"blocksize": 2}, ShapeError, "channels"),
        ("ScatterND", [X, _i64(0).reshape(1, 1), X[:1]], {"reduction": "mean"}, UnsupportedOpError, "reduction"),
        ("LSTM", [X[0], V.f(1, 8, 7), V.f(1, 8, 2)], {"activations": ["Sine"] * 3}, UnsupportedOpError, "Sine"),
        ("Split", [X], {"axis": 3, "num_outputs": 2}, OpaliteError, "pieces"),
    ],
)
def test_refusals(op: str, arrays: list[Any], attrs: dict[str, Any], error: Any, part: str) -> None:
    with pytest.raises(error, match=part):
        imported(op, arrays, **attrs)


@pytest.mark.parametrize(
    ("op", "indices", "updates", "attrs", "said"),
    [
        ("Gather", [0, 5], None, {"axis": 2}, "index 5 for axis 2 of f32[2,3,5,7]; expected -5 to 4"),
        ("GatherElements", [[[[-4]]]], None, {"axis": 1}, "index -4 for axis 1 of f32[2,3,5,7]; expected -3 to 2"),
        ("GatherND", [[0, 0], [1, 3]], None, {}, "index 3 for axis 1 of f32[2,3,5,7]; expected -3 to 2"),
        (
            "ScatterElements",
            [[[[7]]]],
            (1, 1, 1, 1),
            {"axis": 3},
            "index 7 for axis 3 of f32[2,3,5,7]; expected -7 to 6",
        ),
        ("ScatterND", [[1], [-3]], (2, 3, 5, 7), {}, "index -3 for axis 0 of f32[2,3,5,7]; expected -2 to 1"),
    ],
)
def test_constant_indices_outside_are_refused(
    op: str, indices: Any, updates: tuple[int, ...] | None, attrs: dict[str, Any], said: str
) -> None:
    """Computed indices are not checked: gathers clamp them, scatters drop their updates."""
    arrays = [X, np.array(indices, np.int64), *([] if updates is None else [V.f(*updates)])]
    with pytest.raises(ShapeError, match=f"{op} node .* has the {re.escape(said)}"):
        imported(op, arrays, const=(1,), **attrs)
    assert [a.dtype for a in imported(op, arrays, **attrs)] == [X.dtype]


@pytest.mark.parametrize("op", ["ReduceLogSum", "ReduceLogSumExp"])
def test_logarithms_of_sums_of_integers(op: str) -> None:
    """Versions up to 27 accept integers."""
    x = V.ints(1, 9, 2, 3)
    for axes in ([1], []):
        given = [x, np.array(axes, np.int64)]
        attrs = {"noop_with_empty_axes": 1}
        assert_same(imported(op, given, const=(1,), **attrs), by_ort(op, given, const=(1,), **attrs))


@pytest.mark.parametrize("scales", [[1.0, 1.0, 0.6, 2.0], [1.0, 2.0, 0.5, 0.7], [1.0, 1.0, 1.5, 2.3]])
def test_old_resizing_rounds_by_axis(scales: list[float]) -> None:
    """Rounds up along axes that shrink, down along others."""
    given = [X, np.array(scales, np.float32)]
    assert_same(imported("Resize", given, const=(1,), opset=10), by_ort("Resize", given, const=(1,), opset=10))


def test_the_region_of_interest_leaves_the_size_alone() -> None:
    given = [X, np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], np.float32), np.array([1, 1, 1.5, 0.7], np.float32)]
    attrs = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"}
    assert_same(imported("Resize", given, const=(1, 2), **attrs), by_ort("Resize", given, const=(1, 2), **attrs))


@pytest.mark.parametrize("condition", [[0, 1, 1, 1], [1], [1, 0, 0, 0, 0, 1, 1], []])
@pytest.mark.parametrize("const", [(1,), ()])
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_compress_by_a_condition_of_another_length(
    condition: list[int], const: tuple[int, ...], axis: int | None
) -> None:
    given = [V.f(2, 3), np.array(condition, bool)]
    attrs = {} if axis is None else {"axis": axis}
    got = imported("Compress", given, const=const, may_use_host=True, **attrs)
    assert_same(got, by_ort("Compress", given, const=const, **attrs))


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceSum", "ReduceL2"])
def test_an_axis_named_twice_is_reduced_once(op: str) -> None:
    given = [X, np.array([2, 0, -2], np.int64)]
    assert_same(imported(op, given, const=(1,)), by_ort(op, given, const=(1,)))


@pytest.mark.parametrize(("shape", "axis"), [((1, 0), -1), ((0, 3), 0), ((2, 0, 3), 1), ((0,), 0)])
@pytest.mark.parametrize("opset", [11, 13])
def test_hardmax_of_nothing(shape: tuple[int, ...], axis: int, opset: int) -> None:
    x = np.zeros(shape, np.float32)
    assert_same(imported("Hardmax", [x], opset=opset, axis=axis), by_ort("Hardmax", [x], opset=opset, axis=axis))


def test_positions_of_extremes_along_an_empty_axis() -> None:
    """No position exists; if another axis is empty too, none is needed."""
    (got,) = imported("ArgMax", [np.zeros((0, 0, 3), np.float32)], axis=1, keepdims=0)
    assert (got.shape, got.dtype) == ((0, 3), np.dtype(np.int64))
    with pytest.raises(ShapeError, match="no elements to choose from"):
        imported("ArgMax", [np.zeros((2, 0), np.float32)], axis=1)


def test_unique_slices_of_an_empty_axis() -> None:
    x = np.zeros((0, 3, 2), np.float32)
    got = imported("Unique", [x], (0, 1, 2, 3), may_use_host=True, axis=0)
    assert_same(got, by_ort("Unique", [x], (0, 1, 2, 3), axis=0))


def test_the_scale_of_zeros_is_one() -> None:
    x = np.zeros((2, 3), np.float32)
    got = imported("DynamicQuantizeLinear", [x], (0, 1, 2))
    assert_same(got, by_ort("DynamicQuantizeLinear", [x], (0, 1, 2)))


def test_the_triangle_of_a_vector_is_refused() -> None:
    with pytest.raises(ShapeError, match="needs matrices"):
        imported("Trilu", [V.f(3)])


@pytest.mark.parametrize("opset", [13, 18])
def test_types_are_checked_in_versions_that_lack_the_operator(opset: int) -> None:
    with pytest.raises(ShapeError, match="does not take float"):
        imported("BitwiseNot", [X], opset=opset)


@pytest.mark.parametrize(
    ("start", "end", "step"), [(-100, -(2**63), -1), (-7, -(2**31), -2), (-100, 100, 1), (100, 0, -1), (-3, -100, -1)]
)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_slices_that_start_outside(start: int, end: int, step: int, size: int) -> None:
    """With a negative step, a start before the first element means the first element."""
    given = [V.f(size, 2), _i64(start), _i64(end), _i64(0), _i64(step)]
    assert_same(imported("Slice", given, const=(1, 2, 3, 4)), by_ort("Slice", given, const=(1, 2, 3, 4)))


@pytest.mark.parametrize("opset", [10, 16])
def test_roi_align_with_samples_by_size(opset: int) -> None:
    given = [X, np.array([[0, 0.5, 4, 3], [1, 1, 6.5, 4]], np.float32), _i64(0, 1)]
    attrs = {"output_height": 2, "output_width": 2, "opset": opset}
    assert_same(imported("RoiAlign", given, **attrs), by_ort("RoiAlign", given, **attrs))


@pytest.mark.parametrize("op", ["HannWindow", "BlackmanWindow", "HammingWindow"])
@pytest.mark.parametrize("size", [1, 6])
def test_windows_that_are_not_periodic(op: str, size: int) -> None:
    given = [np.array(size)]
    assert_same(imported(op, given, const=(0,), periodic=0), by_ort(op, given, const=(0,), periodic=0))


@pytest.mark.parametrize("pads", [(4, -2), (-3, 5), (2, -3), (-1, 0), (7, -7)])
@pytest.mark.parametrize("size", [0, 1, 2])
def test_cutting_off_reaches_into_padding(pads: tuple[int, int], size: int) -> None:
    given = [V.f(size, 2), _i64(pads[0], 0, pads[1], 0), f32(3.0)]
    if size + sum(pads) < 0:
        with pytest.raises(ShapeError, match="cuts more than there is"):
            imported("Pad", given, const=(1, 2))
    else:
        assert_same(imported("Pad", given, const=(1, 2)), by_ort("Pad", given, const=(1, 2)))


def test_clipping_bounds_gates_and_not_the_cell() -> None:
    """The standard clips the input of every activation; onnxruntime omits the last one, h(C)."""
    w, r = np.zeros((1, 4, 1), np.float32), np.zeros((1, 4, 1), np.float32)
    state, cell = np.zeros((1, 1, 1), np.float32), np.full((1, 1, 1), 3, np.float32)
    given = [np.zeros((1, 1, 1), np.float32), w, r, None, None, state, cell]
    y, _, kept = imported("LSTM", given, (0, 1, 2), hidden_size=1, clip=0.5)
    assert_same([kept], [np.full((1, 1, 1), 1.5, np.float32)])  # the state itself is not clipped
    assert_same([y.reshape(1)], [0.5 * np.tanh(np.float32([1.5]))])
    given[6], attrs = cell * 4, {"hidden_size": 1, "clip": 0.5}
    assert_same(imported("LSTM", given, (0, 1, 2), **attrs), by_ort("LSTM", given, (0, 1, 2), **attrs))


# Where onnxruntime deviates from the standard or from itself, the standard is followed.


def test_a_grid_of_one_position_lies_in_the_middle() -> None:
    """As in PyTorch; onnxruntime places the position at the end, and onnx's reference divides by zero."""
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    (grid,) = imported("AffineGrid", [theta, _i64(1, 1, 1, 3)], const=(1,), opset=20, align_corners=1)
    np.testing.assert_array_equal(grid[0, 0], [[-1, 0], [0, 0], [1, 0]])


def test_reducing_nothing_along_the_last_axis() -> None:
    """onnxruntime leaves an empty tensor unchanged if axes count from the end."""
    x = np.zeros((2, 3, 0), np.float32)
    for axes in ([2], [-1]):
        assert_same(imported("ReduceSum", [x, _i64(*axes)], const=(1,)), [np.zeros((2, 3, 1), np.float32)])


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 37, 50])
def test_a_transform_too_long_for_a_matrix(
    length: int | None, parts: int, onesided: int, inverse: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's FFT on the host gives the result of the matrix."""
    given = [V.f(2, 42, parts), None if length is None else np.array(length)]
    how: dict[str, Any] = {
        "opset": 20,
        "const": () if length is None else (1,),
        "onesided": onesided,
        "inverse": inverse,
    }
    want = imported("DFT", given, **how)
    monkeypatch.setattr("opalite.importer.onnx.fourier.LONGEST", 8)
    assert_same(imported("DFT", given, may_use_host=True, **how), want, tol=1e-5)


def test_frames_that_do_not_fit_are_refused() -> None:
    for step, length in ((0, 4), (2, 0), (2, 30)):
        with pytest.raises(ShapeError, match="frames of"):
            imported("STFT", [V.f(1, 20, 1), np.array(step), None, np.array(length)], const=(1, 3))
