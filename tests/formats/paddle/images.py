"""Resizing, detection, recurrent layers, attention, control flow, quantisation."""

from __future__ import annotations

import numpy as np
import paddle
from case import IMAGE, Lazy, X, case, positive, real
from paddle import nn
from paddle.nn import functional as F

# Images and detection
case("nearest", lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), (IMAGE, (None, 4, None, None)))
case("nearest_size", lambda x: F.interpolate(x, size=[5, 11], mode="nearest"), IMAGE)
case("bilinear_interp", lambda x: F.interpolate(x, size=[5, 11], mode="bilinear"), IMAGE)
case("bilinear_scale", lambda x: F.interpolate(x, scale_factor=[2, 1.5], mode="bilinear"), IMAGE)
case("bilinear_corners", lambda x: F.interpolate(x, size=[5, 11], mode="bilinear", align_corners=True), IMAGE)
case("bilinear_mode1", lambda x: F.interpolate(x, size=[5, 11], mode="bilinear", align_mode=1), IMAGE)
case(
    "bilinear_shape",
    lambda x, y: F.interpolate(x, size=paddle.shape(y)[2:], mode="bilinear"),
    (IMAGE, (None, 4, None, None)),
    (real(1, 2, 5, 7), (None, 2, None, None)),
)
case("bilinear_nhwc", lambda x: F.interpolate(x, size=[5, 11], mode="bilinear", data_format="NHWC"), IMAGE)
case("bicubic", lambda x: F.interpolate(x, size=[5, 11], mode="bicubic"), IMAGE)
case("bicubic_corners", lambda x: F.interpolate(x, size=[5, 11], mode="bicubic", align_corners=True), IMAGE)
case("linear_interp", lambda x: F.interpolate(x, size=[11], mode="linear", data_format="NCW"), real(1, 2, 5))
case(
    "trilinear", lambda x: F.interpolate(x, size=[5, 6, 7], mode="trilinear", data_format="NCDHW"), real(1, 2, 3, 4, 5)
)
case("grid_sample", lambda x, g: F.grid_sample(x, g), IMAGE, positive(1, 5, 6, 2) * 2 - 1)
case(
    "grid_sample_border",
    lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=False),
    IMAGE,
    3 * positive(1, 5, 6, 2) - 1,
)
case(
    "grid_sample_nearest",
    lambda x, g: F.grid_sample(x, g, mode="nearest", padding_mode="zeros", align_corners=False),
    IMAGE,
    positive(1, 5, 6, 2) * 2 - 1,
)
case("affine_grid", lambda t: F.affine_grid(t, [1, 3, 5, 6], align_corners=False), real(1, 2, 3))
case("affine_grid_corners", lambda t: F.affine_grid(t, [1, 3, 5, 6]), real(1, 2, 3))
case("affine_channel", lambda x: x * paddle.reshape(paddle.arange(4, dtype="float32"), [1, 4, 1, 1]), IMAGE)

BOXES = np.array([[0, 0, 6, 6], [1, 1, 7, 7], [2, 0, 5, 7.5], [4, 4, 7, 7], [0, 4, 3, 7]], np.float32)


def _nms(boxes, scores):
    from paddle.vision.ops import nms

    return nms(boxes, 0.3, scores)


def _roi_align(x, boxes):
    return paddle.vision.ops.roi_align(
        x, boxes, paddle.to_tensor([5], dtype="int32"), 3, spatial_scale=0.9, sampling_ratio=2
    )


def _roi_align_plain(x, boxes):
    return paddle.vision.ops.roi_align(x, boxes, paddle.to_tensor([5], dtype="int32"), 3, aligned=False)


def _roi_pool(x, boxes):
    return paddle.vision.ops.roi_pool(x, boxes, paddle.to_tensor([5], dtype="int32"), 3)


def multiclass_nms3(boxes, scores, rois_num=None, **attrs):
    """Append multiclass_nms3, for which paddle.vision has no function; returns boxes, index and counts."""
    given = {
        "background_label": -1, "score_threshold": 0.1, "nms_top_k": 10, "nms_threshold": 0.4, "keep_top_k": 4,
        "nms_eta": 1.0, "normalized": True, **attrs,
    }  # fmt: skip
    if paddle.framework.in_pir_mode():
        keys = [
            "score_threshold",
            "nms_top_k",
            "keep_top_k",
            "nms_threshold",
            "normalized",
            "nms_eta",
            "background_label",
        ]
        return paddle._C_ops.multiclass_nms3(boxes, scores, rois_num, *(given[k] for k in keys))
    from paddle.base.layer_helper import LayerHelper

    helper = LayerHelper("multiclass_nms3")
    outs = [helper.create_variable_for_type_inference(t) for t in ("float32", "int32", "int32")]
    inputs = {"BBoxes": boxes, "Scores": scores}
    if rois_num is not None:
        inputs["RoisNum"] = rois_num
    made = {"Out": outs[0], "Index": outs[1], "NmsRoisNum": outs[2]}
    helper.append_op(type="multiclass_nms3", inputs=inputs, outputs=made, attrs=given)
    return outs


case("nms", _nms, BOXES, np.float32([0.5, 0.9, 0.8, 0.3, 0.7]))
case("roi_align", _roi_align, IMAGE, BOXES)
case("roi_align_plain", _roi_align_plain, IMAGE, BOXES)
case("roi_pool", _roi_pool, IMAGE, BOXES)
case("multiclass_nms3", multiclass_nms3, np.stack([BOXES, BOXES[::-1] + 1]), positive(2, 3, 5))
case(
    "multiclass_nms3_background",
    lambda b, s: multiclass_nms3(b, s, background_label=0, keep_top_k=-1, normalized=False),
    np.stack([BOXES]),
    positive(1, 3, 5),
)
case(
    "multiclass_nms3_none",
    lambda b, s: multiclass_nms3(b, s, score_threshold=2.0),
    np.stack([BOXES]),
    positive(1, 3, 5),
)
REGIONS = np.stack([np.stack([BOXES + c for c in range(3)], 1), np.stack([BOXES[::-1] - c for c in range(3)], 1)])
case(
    "multiclass_nms3_regions",
    lambda b, s: multiclass_nms3(b, s, paddle.to_tensor([4, 6], dtype="int32"), keep_top_k=7),
    REGIONS.reshape(10, 3, 4),
    positive(10, 3),
)


def _matrix_nms(boxes, scores, **attrs):
    given = {"nms_top_k": 4, "keep_top_k": 7, "background_label": -1, "score_threshold": 0.15, **attrs}
    return paddle.vision.ops.matrix_nms(boxes, scores, post_threshold=0.05, return_index=True, **given)


PAIR = np.stack([BOXES, BOXES[::-1] * [1, 1, 1.5, 1] + 1]).astype(np.float32)
case("matrix_nms", _matrix_nms, PAIR, positive(2, 3, 5))
case(
    "matrix_nms_gaussian",
    lambda b, s: _matrix_nms(
        b, s, use_gaussian=True, normalized=False, background_label=0, keep_top_k=-1, nms_top_k=-1
    ),
    PAIR,
    positive(2, 3, 5),
)
case("matrix_nms_none", lambda b, s: _matrix_nms(b, s, score_threshold=2.0), PAIR, positive(2, 3, 5))


def _proposals(scores, deltas, **attrs):
    rows, columns = np.meshgrid(np.arange(4), 4 * np.arange(4), indexing="ij")
    anchors = BOXES[:3] * 3 + np.stack([columns, rows, columns, rows], -1)[:, :, None]
    given = {"pre_nms_top_n": 30, "post_nms_top_n": 8, "nms_thresh": 0.5, "return_rois_num": True, **attrs}
    return paddle.vision.ops.generate_proposals(
        scores,
        deltas,
        paddle.to_tensor([[20.0, 24.0], [24.0, 20.0]]),
        paddle.to_tensor(anchors.astype("float32")),
        paddle.full([4, 4, 3, 4], 0.5),
        **given,
    )


case("generate_proposals", _proposals, positive(2, 3, 4, 4), real(2, 12, 4, 4))
case(
    "generate_proposals_none",
    lambda s, d: _proposals(s, d, min_size=23.5, pixel_offset=True),
    positive(2, 3, 4, 4),
    0.3 * real(2, 12, 4, 4),
)
case(
    "distribute_fpn_proposals",
    lambda r: paddle.vision.ops.distribute_fpn_proposals(
        r, 2, 5, 4, 8, rois_num=paddle.to_tensor([2, 3], dtype="int32")
    ),
    BOXES * np.float32([[1], [4], [0.2], [2], [1]]),
)
case(
    "yolo_box",
    lambda x, s: paddle.vision.ops.yolo_box(x, s, [10, 13, 16, 30], 3, 0.1, 32),
    real(1, 16, 4, 4),
    np.array([[128, 96]], np.int32),
)
case(
    "prior_box",
    lambda x, i: paddle.vision.ops.prior_box(x, i, [4.0], [8.0], [1.0, 2.0], flip=True, clip=True),
    IMAGE,
    real(1, 3, 32, 32),
)
case(
    "box_coder",
    lambda p, t: paddle.vision.ops.box_coder(p, [0.1, 0.1, 0.2, 0.2], t, "decode_center_size", True, axis=0),
    BOXES,
    real(5, 5, 4),
)
case(
    "box_coder_unnormalized",
    lambda p, t: paddle.vision.ops.box_coder(p, [0.1, 0.1, 0.2, 0.2], t, "decode_center_size", False, axis=1),
    BOXES,
    real(5, 5, 4),
)

# Recurrent
case("lstm", Lazy(lambda: nn.LSTM(4, 5)), real(2, 6, 4))
case("lstm_two_ways", Lazy(lambda: nn.LSTM(4, 5, num_layers=2, direction="bidirect")), real(2, 6, 4))
case("lstm_time_major", Lazy(lambda: nn.LSTM(4, 5, time_major=True)), real(6, 2, 4))
case("gru", Lazy(lambda: nn.GRU(4, 5)), real(2, 6, 4))
case("gru_two_ways", Lazy(lambda: nn.GRU(4, 5, direction="bidirect")), real(2, 6, 4))
case("rnn_tanh", Lazy(lambda: nn.SimpleRNN(4, 5)), real(2, 6, 4))
case("lstm_lengths", lambda x, n: LSTM(x, sequence_length=n)[0], real(2, 6, 4), np.array([6, 3]))
LSTM = nn.LSTM(4, 5)

# Attention
case("multi_head_attention", Lazy(lambda: nn.MultiHeadAttention(8, 2)), real(2, 5, 8))
case("encoder_layer", Lazy(lambda: nn.TransformerEncoderLayer(8, 2, 16)), real(2, 5, 8))
case(
    "sdpa",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    real(2, 5, 2, 8),
    real(2, 5, 2, 8),
    real(2, 5, 2, 8),
)

# Control flow


class Count(nn.Layer):
    """Adds one as often as `n` says, in a loop."""

    def forward(self, x, n):
        """Return x plus n."""
        i = paddle.zeros([1], "int64")
        while i < n:
            x = x + 1
            i = i + 1
        return x


class Choose(nn.Layer):
    """Takes one of two branches by the sum."""

    def forward(self, x):
        """Return 2 x, or x - 1 where the sum of x is not positive."""
        if paddle.sum(x) > 0:
            y = x * 2
            z = y + 1
        else:
            y = x - 1
            z = x
        return y, z


def _count(x, n):
    i = paddle.zeros([1], "int64")
    test = lambda i, x: paddle.less_than(i, n)  # noqa: E731
    return paddle.static.nn.while_loop(test, lambda i, x: [i + 1, x + 1], [i, x])[1]


def _choose(x):
    zero = paddle.zeros([], "float32")
    return paddle.static.nn.cond(
        paddle.greater_than(paddle.sum(x), zero), lambda: (x * 2, x * 2 + 1), lambda: (x - 1, x * 1)
    )


class Gather(nn.Layer):
    """Gathers the steps of a loop in a list."""

    def forward(self, x, n):
        """Return x and what n steps make of it."""
        made, i = [x * 1], paddle.zeros([1], "int64")
        while i < n:
            x = x * 0.5 + 1
            made.append(x)
            i = i + 1
        return paddle.stack(made)


def _gather(x, n):
    i, made = paddle.zeros([1], "int64"), paddle.tensor.create_array("float32")
    paddle.tensor.array_write(paddle.scale(x, 1.0), i, made)
    i = paddle.increment(i)
    going = paddle.less_equal(i, n)
    loop = paddle.static.nn.control_flow.While(going)
    with loop.block():
        before = paddle.tensor.array_read(made, i - 1)
        paddle.tensor.array_write(paddle.scale(before, 0.5, 1.0), i, made)
        paddle.increment(i)
        paddle.assign(paddle.less_equal(i, n), going)
    return paddle.tensor.manipulation.tensor_array_to_tensor(made, axis=0, use_stack=True)[0]


case("array", Lazy(Gather, _gather), real(2, 3), np.array([3]))
case("while", Lazy(Count, _count), real(2, 3), np.array([3]))
case("while_none", Lazy(Count, _count), real(2, 3), np.array([0]))
case("if_true", Lazy(Choose, _choose), positive(2, 3))
case("if_false", Lazy(Choose, _choose), -positive(2, 3))

# Quantised


def quantize_linear(x, scale, axis=-1, inverse=False, dtype="int8"):
    """Append quantize_linear or dequantize_linear."""
    scale, zero = paddle.to_tensor(np.float32(scale)), paddle.to_tensor(np.float32(np.zeros(len(scale))))
    op = paddle._C_ops.dequantize_linear if inverse else paddle._C_ops.quantize_linear
    if paddle.framework.in_pir_mode():
        return op(x, scale, zero, paddle.ones([1]), paddle.ones([1]), axis, 8, -128, 127, 0, True, False)[0]
    from paddle.base.layer_helper import LayerHelper

    helper = LayerHelper("quantize")
    out = helper.create_variable_for_type_inference("float32")
    attrs = {"quant_axis": axis, "bit_length": 8, "round_type": 0, "is_test": True, "only_observer": False}
    attrs |= {"qmin": -128, "qmax": 127}
    kind = "dequantize_linear" if inverse else "quantize_linear"
    inputs = {"X": x, "Scale": scale, "ZeroPoint": zero}
    helper.append_op(type=kind, inputs=inputs, outputs={"Y": out}, attrs=attrs)
    return out


case("quantize", lambda x: quantize_linear(x, [1.5]), X)
case("quantize_dequantize", lambda x: quantize_linear(quantize_linear(x, [1.5]), [1.5], inverse=True), X)
case("quantize_axis", lambda x: quantize_linear(quantize_linear(x, [1.5, 2, 1], 1), [1.5, 2, 1], 1, inverse=True), X)
