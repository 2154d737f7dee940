"""Convolutions, pooling, normalisation, reductions."""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle
from case import IMAGE, Lazy, X, bools, case, ints, positive, real
from paddle import nn
from paddle.nn import functional as F

# Convolutions and pooling
case("conv2d", Lazy(lambda: nn.Conv2D(4, 6, 3, padding=1, stride=2)), (IMAGE, (None, 4, None, None)))
case("conv2d_group", Lazy(lambda: nn.Conv2D(4, 8, 3, groups=2, dilation=2)), IMAGE)
case("conv2d_depthwise", Lazy(lambda: nn.Conv2D(4, 4, 3, padding=1, groups=4, bias_attr=False)), IMAGE)
case("conv2d_same", Lazy(lambda: nn.Conv2D(4, 6, 3, padding="SAME", stride=2)), IMAGE)
case("conv2d_valid", Lazy(lambda: nn.Conv2D(4, 6, 3, padding="VALID")), IMAGE)
case("conv2d_pads", Lazy(lambda: nn.Conv2D(4, 6, 3, padding=[1, 2, 0, 1])), IMAGE)
case("conv2d_nhwc", Lazy(lambda: nn.Conv2D(8, 6, 3, padding=1, data_format="NHWC")), IMAGE)
case("conv1d", Lazy(lambda: nn.Conv1D(4, 6, 3, padding=1)), real(2, 4, 9))
case("conv3d", Lazy(lambda: nn.Conv3D(2, 3, 3, padding=1)), real(1, 2, 4, 5, 6))
case("conv2d_transpose", Lazy(lambda: nn.Conv2DTranspose(4, 6, 3, stride=2, padding=1, output_padding=1)), IMAGE)
case("conv2d_transpose_group", Lazy(lambda: nn.Conv2DTranspose(4, 6, 2, stride=2, groups=2)), IMAGE)
case(
    "conv2d_transpose_size",
    lambda x: F.conv2d_transpose(x, paddle.ones([4, 2, 3, 3]), stride=2, output_size=[18, 18]),
    IMAGE,
)
case("conv2d_transpose_depthwise", Lazy(lambda: nn.Conv2DTranspose(4, 4, 3, stride=2, groups=4)), IMAGE)
case("conv1d_transpose", Lazy(lambda: nn.Conv1DTranspose(4, 3, 3, stride=2)), real(2, 4, 9))
case("conv3d_transpose", Lazy(lambda: nn.Conv3DTranspose(2, 3, 3, stride=2)), real(1, 2, 3, 4, 4))
case("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE)
case("max_pool2d_ceil", lambda x: F.max_pool2d(x, 3, 2, 0, ceil_mode=True), IMAGE)
case("max_pool2d_mask", lambda x: F.max_pool2d(x, 2, 2, return_mask=True), IMAGE)
case("max_pool2d_same", lambda x: F.max_pool2d(x, 3, 2, "SAME"), IMAGE)
case("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE)
case("avg_pool2d_inclusive", lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False), IMAGE)
case("avg_pool2d_ceil", lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE)
case("avg_pool2d_nhwc", lambda x: F.avg_pool2d(x, 2, 2, data_format="NHWC"), IMAGE)
case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2), real(1, 2, 9))
case("max_pool1d", lambda x: F.max_pool1d(x, 3, 2), real(1, 2, 9))
case("avg_pool3d", lambda x: F.avg_pool3d(x, 2, 2), real(1, 2, 4, 4, 4))
case("max_pool3d", lambda x: F.max_pool3d(x, 2, 2), real(1, 2, 4, 4, 4))
case("adaptive_avg_1", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE)
case("adaptive_avg_open", lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE, (1, 4, None, None)))
case("adaptive_avg_even", lambda x: F.adaptive_avg_pool2d(x, 4), IMAGE)
case("adaptive_avg_odd", lambda x: F.adaptive_avg_pool2d(x, [3, 5]), IMAGE)
case("adaptive_max_odd", lambda x: F.adaptive_max_pool2d(x, [3, 5]), IMAGE)
case("adaptive_avg_1d", lambda x: F.adaptive_avg_pool1d(x, 4), real(1, 2, 9))
case("lp_pool2d", lambda x: F.lp_pool2d(x, 2.0, 2, 2), positive(1, 4, 8, 8))
case("unpool", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_mask=True), 2, 2), IMAGE)
case(
    "deformable_conv",
    lambda x, o, m: paddle.vision.ops.deform_conv2d(x, o, paddle.ones([5, 4, 3, 3]), mask=m, padding=1),
    IMAGE,
    0.3 * real(1, 18, 8, 8),
    positive(1, 9, 8, 8),
)
case("unfold", lambda x: F.unfold(x, 3, 2, 1), IMAGE)
case("fold", lambda x: F.fold(x, [8, 8], 2, 2), real(1, 16, 16))

# Normalisation
case("batch_norm", Lazy(lambda: nn.BatchNorm2D(4)), IMAGE)
case("batch_norm_1d", Lazy(lambda: nn.BatchNorm1D(4)), real(3, 4))
case("batch_norm_nhwc", Lazy(lambda: nn.BatchNorm2D(8, data_format="NHWC")), IMAGE)
case("sync_batch_norm", Lazy(lambda: nn.SyncBatchNorm(4)), IMAGE)
case("layer_norm", Lazy(lambda: nn.LayerNorm(4)), X)
case("layer_norm_2", Lazy(lambda: nn.LayerNorm([3, 4])), X)
case("layer_norm_plain", lambda x: F.layer_norm(x, [4]), X)
case("group_norm", Lazy(lambda: nn.GroupNorm(2, 4)), IMAGE)
case("instance_norm", Lazy(lambda: nn.InstanceNorm2D(4)), IMAGE)
case("local_response_norm", lambda x: F.local_response_norm(x, 3), IMAGE)
case("normalize", lambda x: F.normalize(x, axis=1), IMAGE)
case("norm_p1", lambda x: paddle.norm(x, 1, axis=1), X)
case("norm_fro", lambda x: paddle.linalg.norm(x), real(3, 4))
case("norm_inf", lambda x: paddle.norm(x, np.inf, axis=1), X)
case("dropout", Lazy(lambda: nn.Dropout(0.5)), X)
case("dropout_downscale", Lazy(lambda: nn.Dropout(0.5, mode="downscale_in_infer")), X)
case("softmax", lambda x: F.softmax(x, axis=1), X)
case("log_softmax", lambda x: F.log_softmax(x, axis=-1), X)
case("label_smooth", F.label_smooth, positive(2, 4))
case("rms_norm", lambda x: x * paddle.rsqrt(paddle.mean(x * x, -1, keepdim=True) + 1e-6), X)
case("maxout", lambda x: F.maxout(x, 2), IMAGE)
case("glu", F.glu, X)

# Reductions
for _name in ["sum", "mean", "max", "min", "prod", "amax", "amin", "logsumexp"]:
    case(f"reduce_{_name}", partial(getattr(paddle, _name), axis=[1], keepdim=True), X)
for _name in ["sum", "mean", "max"]:
    case(f"reduce_{_name}_all", getattr(paddle, _name), X)
case("reduce_all", lambda x: paddle.all(x, axis=1), bools(3, 4))
case("reduce_any", lambda x: paddle.any(x, axis=1), bools(3, 4))
case("reduce_sum_int", lambda x: paddle.sum(x, axis=1), ints(0, 9, 3, 4, dtype=np.int32))
case("var", lambda x: paddle.var(x, axis=1), X)
case("std", lambda x: paddle.std(x, axis=1), X)
case("argmax", lambda x: paddle.argmax(x, axis=1), X)
case("argmax_keep", lambda x: paddle.argmax(x, axis=-1, keepdim=True, dtype="int32"), X)
case("argmax_flat", paddle.argmax, X)
case("argmin", lambda x: paddle.argmin(x, axis=1), X)
case("topk", lambda x: paddle.topk(x, 2, axis=1), X)
case("topk_small", lambda x: paddle.topk(x, 2, axis=-1, largest=False), X)
case("argsort", lambda x: paddle.argsort(x, axis=1), X)
case("argsort_down", lambda x: paddle.argsort(x, axis=1, descending=True), X)
case("sort", lambda x: paddle.sort(x, axis=1), X)
case("cumsum", lambda x: paddle.cumsum(x, axis=1), X)
case("cumsum_flat", paddle.cumsum, X)
case("cumprod", lambda x: paddle.cumprod(x, dim=1), X)
case("kthvalue", lambda x: paddle.kthvalue(x, 2, axis=1), X)
case("median", lambda x: paddle.median(x, axis=1), real(2, 3, 4))
case("numel", paddle.numel, X)
case("trace", paddle.trace, real(4, 4))
case("frobenius", lambda x: paddle.norm(x, "fro", axis=[1, 2]), X)
case("dist", lambda x, y: paddle.dist(x, y, 2), real(2, 3), real(2, 3))
