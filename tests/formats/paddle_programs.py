"""Programs of one Paddle operator each, with inputs: saved by paddle.jit.save, and run by paddle for reference outputs.

Run by the Python of an environment with paddlepaddle: `python paddle_programs.py FOLDER pir|legacy [NAME...]`. It does not
import Opalite. Each program gives FOLDER/NAME.json or .pdmodel, .pdiparams and FOLDER/NAME.npz with inputs (x0, x1...)
and outputs (y0, y1...). Names that paddle cannot save are listed in FOLDER/refused.txt.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

if sys.argv[2] == "legacy":
    os.environ["FLAGS_enable_pir_api"] = "0"

import numpy as np

import paddle
from paddle import nn
from paddle.nn import functional as F

RNG = np.random.default_rng(7)


def real(*shape):
    """Return float32 numbers of about unit size."""
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape):
    """Return float32 numbers from 0.1 to 1."""
    return RNG.uniform(0.1, 1.0, shape).astype(np.float32)


def ints(low, high, *shape, dtype=np.int64):
    """Return integers from `low` to `high` - 1."""
    return RNG.integers(low, high, shape).astype(dtype)


def bools(*shape):
    """Return random booleans."""
    return RNG.integers(0, 2, shape).astype(bool)


_LIMIT_S = 20

CASES: dict[str, tuple] = {}
"""Programs by name: a function or a Layer, and its inputs; an input may be (array, declared shape)."""


class Lazy:
    """A Layer that is made when its program is: static graphs have parameters of their own."""

    def __init__(self, make, static=None):
        """Initialise; `static`: a function that builds the same as a static graph, where the Layer cannot."""
        self.make = make
        self.static = static

    def __call__(self):
        return self.make()


def case(name, fn, *inputs):
    """Add a program."""
    assert name not in CASES, name
    CASES[name] = (fn, inputs)


X = real(2, 3, 4)
IMAGE = real(1, 4, 8, 8)

# Elementwise functions of one argument
for _name in (
    "abs acos asin atan ceil cos cosh erf exp expm1 floor log log2 log10 log1p reciprocal round rsqrt sigmoid sign "
    "sin sinh sqrt square tan tanh acosh asinh atanh neg trunc logit"
).split():
    _shift = 1.2 if _name == "acosh" else 0.0
    _fn = getattr(paddle, _name, None) or getattr(F, _name)
    if _name in ("acos", "asin", "atanh", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "logit"):
        case(_name, _fn, np.minimum(positive(2, 3, 4), 0.9))
    elif _shift:
        case(_name, _fn, positive(2, 3, 4) + np.float32(_shift))
    else:
        case(_name, _fn, X)
for _name in (
    "relu relu6 elu selu gelu silu mish softplus softsign swish hardswish hardsigmoid hardtanh leaky_relu hardshrink "
    "softshrink tanhshrink thresholded_relu log_sigmoid celu"
).split():
    case(_name, getattr(F, _name), 3 * X)
case("gelu_tanh", lambda x: F.gelu(x, approximate=True), X)
case("softplus_beta", lambda x: F.softplus(x, beta=2.0, threshold=3.0), 3 * X)
case("logical_not", paddle.logical_not, bools(2, 3))
case("bitwise_not", paddle.bitwise_not, ints(0, 9, 2, 3))
for _name in ("isnan", "isinf", "isfinite"):
    case(_name, getattr(paddle, _name), np.array([1, np.nan, np.inf, -np.inf], np.float32))
case("scale", lambda x: paddle.scale(x, 2.0, 1.0), X)
case("scale_before", lambda x: paddle.scale(x, 2.0, 1.0, bias_after_scale=False), X)
case("scale_int", lambda x: x * 3 + 1, ints(0, 9, 2, 3))
case("clip", lambda x: paddle.clip(x, -0.5, 0.5), X)
case("clip_int", lambda x: paddle.clip(x, 2, 5), ints(0, 9, 2, 3))
case("pow", lambda x: paddle.pow(x, 3), X)
case("pow_tensor", lambda x, y: paddle.pow(x, y), positive(2, 3), positive(2, 3))
case("stanh", paddle.stanh, X)
case("prelu_all", lambda x: F.prelu(x, paddle.to_tensor(np.float32([0.2]))), IMAGE)
case("prelu_channel", Lazy(lambda: nn.PReLU(4)), IMAGE)
case("cast", lambda x: paddle.cast(x, "int32"), 5 * X)
case("cast_bool", lambda x: paddle.cast(x, "bool"), ints(0, 2, 5))
case("increment", lambda x: paddle.increment(x, 2), np.float32([3]))

# Of two arguments
for _name in "add subtract multiply divide maximum minimum fmax fmin".split():
    case(_name, getattr(paddle, _name), X, positive(3, 1))
for _name in "remainder floor_divide".split():
    case(_name, getattr(paddle, _name), 5 * X, positive(3, 1))
    case(f"{_name}_int", getattr(paddle, _name), ints(-9, 9, 2, 3), ints(1, 5, 3))
case("divide_int", paddle.divide, ints(-9, 9, 2, 3), ints(1, 5, 3))
case("atan2", paddle.atan2, X, real(2, 3, 4))
for _name in "equal not_equal less_than less_equal greater_than greater_equal".split():
    case(_name, getattr(paddle, _name), ints(0, 3, 4, 5), ints(0, 3, 5))
for _name in "logical_and logical_or logical_xor".split():
    case(_name, getattr(paddle, _name), bools(4, 5), bools(5))
for _name in "bitwise_and bitwise_or bitwise_xor".split():
    case(_name, getattr(paddle, _name), ints(0, 30, 4, 5), ints(0, 30, 5))
case("where", paddle.where, bools(2, 3), real(2, 3), real(2, 3))
case("lerp", paddle.lerp, real(2, 3), real(2, 3), positive(2, 3))
case("add_n", lambda a, b, c: paddle.add_n([a, b, c]), X, X, X)
case("dot", paddle.dot, real(5), real(5))
case("cross", lambda x, y: paddle.cross(x, y, axis=1), real(2, 3), real(2, 3))
case("equal_all", paddle.equal_all, ints(0, 2, 3), ints(0, 2, 3))
case("allclose", paddle.allclose, X, X)

# Products
case("matmul", paddle.matmul, real(2, 3, 4), real(4, 5))
case("matmul_t", lambda x, y: paddle.matmul(x, y, transpose_y=True), real(2, 3, 4), real(5, 4))
case("matmul_tx", lambda x, y: paddle.matmul(x, y, transpose_x=True), real(2, 4, 3), real(2, 4, 5))
case("matmul_vector", paddle.matmul, real(4), real(4, 5))
case("bmm", paddle.bmm, real(2, 3, 4), real(2, 4, 5))
case("mm", paddle.mm, real(3, 4), real(4, 5))
case("mv", paddle.mv, real(3, 4), real(4))
case("addmm", lambda i, x, y: paddle.addmm(i, x, y, alpha=2.0, beta=0.5), real(3, 5), real(3, 4), real(4, 5))
case("linear", Lazy(lambda: nn.Linear(4, 5)), real(2, 3, 4))
case("einsum", lambda x, y: paddle.einsum("bij,bjk->bik", x, y), real(2, 3, 4), real(2, 4, 5))
case("bilinear", Lazy(lambda: nn.Bilinear(3, 4, 5)), real(2, 3), real(2, 4))
case("outer", paddle.outer, real(3), real(4))

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
for _name in "sum mean max min prod amax amin logsumexp".split():
    case(f"reduce_{_name}", lambda x, f=getattr(paddle, _name): f(x, axis=[1], keepdim=True), X)
for _name in "sum mean max".split():
    case(f"reduce_{_name}_all", lambda x, f=getattr(paddle, _name): f(x), X)
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

# Shapes
case("reshape", lambda x: paddle.reshape(x, [0, -1]), (X, (None, 3, 4)))
case("reshape_tensor", lambda x: paddle.reshape(x, [paddle.shape(x)[0], 12]), (X, (None, 3, 4)))
case("reshape_shape", lambda x, y: paddle.reshape(x, paddle.shape(y)), (X, (None, 3, 4)), (real(2, 12), (None, 12)))
case("flatten", lambda x: paddle.flatten(x, 1, 2), (IMAGE, (None, 4, 8, 8)))
case("squeeze", lambda x: paddle.squeeze(x, [1]), real(2, 1, 3))
case("squeeze_all", paddle.squeeze, real(2, 1, 3, 1))
case("unsqueeze", lambda x: paddle.unsqueeze(x, [0, 2]), real(2, 3))
case("transpose", lambda x: paddle.transpose(x, [2, 0, 1]), X)
case("concat", lambda a, b: paddle.concat([a, b], axis=1), X, real(2, 2, 4))
case("stack", lambda a, b: paddle.stack([a, b], axis=1), X, X)
case("unstack", lambda x: paddle.unstack(x, axis=1), X)
case("unbind", lambda x: paddle.unbind(x, axis=1), X)
case("split_equal", lambda x: paddle.split(x, 2, axis=2), X)
case("split_sizes", lambda x: paddle.split(x, [1, -1, 1], axis=2), X)
case("chunk", lambda x: paddle.chunk(x, 3, axis=1), X)
case("slice", lambda x: x[:, 1:3, ::2], X)
case("slice_negative", lambda x: x[..., -2:], X)
case("slice_index", lambda x: x[:, 1], X)
case("slice_tensor", lambda x: x[:, : paddle.shape(x)[0]], (X, (None, 3, 4)))
case("strided_slice", lambda x: paddle.strided_slice(x, [1, 2], [2, 0], [0, 4], [-1, 2]), X)
case("crop", lambda x: paddle.crop(x, [1, 2, 2], [1, 0, 1]), X)
case("expand", lambda x: paddle.expand(x, [2, -1, 4]), real(3, 1))
case("expand_as", paddle.expand_as, real(3, 1), real(2, 3, 4))
case("broadcast_to", lambda x: paddle.broadcast_to(x, [2, 3, 4]), real(3, 1))
case("tile", lambda x: paddle.tile(x, [2, 1, 3]), X)
case("tile_short", lambda x: paddle.tile(x, [3]), X)
case("flip", lambda x: paddle.flip(x, [1, 2]), X)
case("roll", lambda x: paddle.roll(x, [1, -1], [1, 2]), X)
case("roll_flat", lambda x: paddle.roll(x, 2), X)
case("rot90", lambda x: paddle.rot90(x, 1, [1, 2]), X)
case("tril", paddle.tril, real(4, 5))
case("triu", lambda x: paddle.triu(x, 1), real(4, 5))
case("diag", paddle.diag, real(4))
case("diagonal", paddle.diagonal, real(4, 5))
case("pad_constant", lambda x: F.pad(x, [1, 2, 0, 1], value=0.5), IMAGE)
case("pad_reflect", lambda x: F.pad(x, [1, 2, 2, 1], mode="reflect"), IMAGE)
case("pad_replicate", lambda x: F.pad(x, [1, 2, 2, 1], mode="replicate"), IMAGE)
case("pad_circular", lambda x: F.pad(x, [1, 2, 2, 1], mode="circular"), IMAGE)
case("pad_nhwc", lambda x: F.pad(x, [1, 2, 0, 1], data_format="NHWC"), IMAGE)
case("pad_all", lambda x: F.pad(x, [0, 1, 1, 0, 2, 0]), X)
case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), IMAGE)
case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), IMAGE)
case("channel_shuffle", lambda x: F.channel_shuffle(x, 2), IMAGE)
case("shape", paddle.shape, (X, (None, 3, 4)))
case("meshgrid", lambda x, y: paddle.meshgrid(x, y), real(3), real(4))
case("repeat_interleave", lambda x: paddle.repeat_interleave(x, 2, axis=1), X)
case("swapaxes", lambda x: paddle.swapaxes(x, 0, 2), X)
case("moveaxis", lambda x: paddle.moveaxis(x, 0, 2), X)
case("temporal_shift", lambda x: F.temporal_shift(x, 2, 0.25), real(4, 8, 3, 3))
case("space_to_depth", lambda x: paddle.reshape(paddle.transpose(x, [0, 2, 3, 1]), [1, -1]), IMAGE)

# Indexing
case("gather", lambda x, i: paddle.gather(x, i, axis=1), X, ints(0, 3, 5))
case("gather_first", paddle.gather, X, ints(0, 2, 5, dtype=np.int32))
case("gather_nd", paddle.gather_nd, X, ints(0, 2, 5, 2))
case("index_select", lambda x, i: paddle.index_select(x, i, axis=2), X, ints(0, 4, 3))
case("index_sample", paddle.index_sample, real(3, 5), ints(0, 5, 3, 2))
case("take_along_axis", lambda x, i: paddle.take_along_axis(x, i, 1), X, ints(0, 3, 2, 2, 4))
case(
    "put_along_axis",
    lambda x, i, v: paddle.put_along_axis(x, i, v, 1),
    X,
    np.array([[[0, 1, 2, 0]], [[1, 1, 0, 2]]]),
    real(2, 1, 4),
)
case("scatter", lambda x, i, u: paddle.scatter(x, i, u), real(4, 3), np.array([2, 0]), real(2, 3))
case(
    "scatter_add", lambda x, i, u: paddle.scatter(x, i, u, overwrite=False), real(4, 3), np.array([2, 0, 2]), real(3, 3)
)
case("scatter_nd_add", paddle.scatter_nd_add, real(4, 3), np.array([[2], [0], [2]]), real(3, 3))
case("index_add", lambda x, i, v: paddle.index_add(x, i, 0, v), real(4, 3), np.array([2, 0, 2]), real(3, 3))
case("masked_fill", lambda x, m: paddle.masked_fill(x, m, 0.5), real(3, 4), bools(3, 4))
case("masked_select", paddle.masked_select, real(3, 4), bools(3, 4))
case("nonzero", paddle.nonzero, bools(3, 4))
case("where_index", lambda x: x[x > 0], X)
case("index_tensor", lambda x, i: x[i], X, np.array([1, 0, 1]))
case("embedding", Lazy(lambda: nn.Embedding(10, 4)), ints(0, 10, 2, 5))
case("embedding_padding", Lazy(lambda: nn.Embedding(10, 4, padding_idx=3)), ints(0, 10, 2, 5))
case("one_hot", lambda x: F.one_hot(x, 6), ints(0, 6, 2, 3))
case("unique", paddle.unique, ints(0, 5, 9))
case("searchsorted", paddle.searchsorted, np.float32([1, 2, 4, 8]), np.float32([0, 3, 8, 9]))
case(
    "multiplex",
    lambda a, b, i: paddle.multiplex([a, b], i),
    real(3, 4),
    real(3, 4),
    np.array([[0], [1], [0]], np.int32),
)


def _set_value(x):
    y = x * 1
    y[:, 1:3] = 5.0
    return y


def _set_tensor(x, v):
    y = x * 1
    y[:, 0] = v
    return y


case("set_value", _set_value, X)
case("set_value_tensor", _set_tensor, X, real(2, 4))

# Made from nothing
case("full_like", lambda x: paddle.full_like(x, 2.5), X)
case("zeros_like", lambda x: paddle.zeros_like(x) + x, X)
case("ones_like", lambda x: paddle.ones_like(x, dtype="int64"), X)
case("full_batch", lambda x: paddle.full([paddle.shape(x)[0], 3], 1.5), (X, (None, 3, 4)))
case("arange_size", lambda x: paddle.arange(0, paddle.shape(x)[1], 1), (X, (None, None, 4)))
case("arange", lambda x: x + paddle.arange(4, dtype="float32"), X)
case("linspace", lambda x: x + paddle.linspace(0, 1, 4), X)
case("eye", lambda x: x @ paddle.eye(4, 5), X)
case("to_tensor", lambda x: x + paddle.to_tensor(np.float32([1, 2, 3, 4])), X)
case("assign", paddle.assign, X)
case("create_parameter", lambda x: x + paddle.zeros([4]), X)
case("tril_indices", lambda x: paddle.tril_indices(4, 4, 0) + x, np.array([1]))

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
        keys = "score_threshold nms_top_k keep_top_k nms_threshold normalized nms_eta background_label".split()
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


class _Program(nn.Layer):
    """A function as a Layer; subclasses have as many inputs as it."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn


class _One(_Program):
    def forward(self, x0):
        return self.fn(x0)


class _Two(_Program):
    def forward(self, x0, x1):
        return self.fn(x0, x1)


class _Three(_Program):
    def forward(self, x0, x1, x2):
        return self.fn(x0, x1, x2)


_PROGRAMS = (_One, _Two, _Three)


def _vary(layer):
    """Change the parameters of a layer a little: they would be all zeros and ones in part."""
    for p in layer.parameters():
        change = 0.1 * np.random.default_rng(1).standard_normal(p.shape)
        p.set_value(p + paddle.to_tensor(change.astype(np.float32)))


def _save_pir(path: str, fn, specs) -> None:
    layer = fn() if isinstance(fn, Lazy) else _PROGRAMS[len(specs) - 1](fn)
    layer.eval()
    _vary(layer)
    paddle.jit.save(paddle.jit.to_static(layer, input_spec=specs, full_graph=True), path, input_spec=specs)


def _save_legacy(path: str, fn, specs) -> None:
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start):
        inputs = [paddle.static.data(s.name, s.shape, s.dtype) for s in specs]
        layer = (fn.static or fn()) if isinstance(fn, Lazy) else fn
        if isinstance(layer, nn.Layer):
            layer.eval()
        found = layer(*inputs)
        outputs = [v for v in paddle.utils.flatten(found) if v is not None]
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(start)
        paddle.static.save_inference_model(path, inputs, outputs, executor, program=main)


def save(folder: Path, name: str) -> None:
    """Save one program with its inputs and outputs."""
    paddle.seed(3)
    fn, given = CASES[name]
    pairs = [v if isinstance(v, tuple) else (v, v.shape) for v in given]
    specs = [paddle.static.InputSpec(list(s), str(a.dtype), f"x{i}") for i, (a, s) in enumerate(pairs)]
    legacy = sys.argv[2] == "legacy"
    (_save_legacy if legacy else _save_pir)(str(folder / name), fn, specs)
    params = folder / f"{name}.pdiparams"
    config = paddle.inference.Config(
        str(folder / f"{name}.{'pdmodel' if legacy else 'json'}"), str(params) if params.exists() else ""
    )
    config.disable_gpu()
    config.disable_glog_info()
    config.disable_mkldnn()
    config.switch_ir_optim(False)
    predictor = paddle.inference.create_predictor(config)
    for n in predictor.get_input_names():
        predictor.get_input_handle(n).copy_from_cpu(pairs[int(n[1:])][0])
    predictor.run()
    outs = [predictor.get_output_handle(n).copy_to_cpu() for n in predictor.get_output_names()]
    arrays = {f"x{i}": a for i, (a, _) in enumerate(pairs)} | {f"y{i}": a for i, a in enumerate(outs)}
    np.savez(folder / f"{name}.npz", **arrays)


def save_all(folder: Path, names: list[str]) -> None:
    """Save the named programs; write what paddle refuses to FOLDER/NAME.refused."""
    guard = paddle.pir_utils.OldIrGuard if sys.argv[2] == "legacy" else contextlib.nullcontext
    for name in names:
        try:
            if sys.argv[2] == "legacy":
                paddle.enable_static()
            with guard():
                save(folder, name)
        except Exception as e:  # paddle refuses some programs in one of the formats
            lines = [n for n in str(e).splitlines() if n.strip()]
            (folder / f"{name}.refused").write_text(f"{type(e).__name__}: {lines[-1][:150] if lines else ''}")


def main() -> None:
    """Save the named programs, or all, in processes of their own: paddle crashes in some."""
    folder, names = Path(sys.argv[1]), sys.argv[3:]
    if names:
        save_all(folder, names)
        return
    folder.mkdir(parents=True, exist_ok=True)
    names = list(CASES)
    while names:
        with subprocess.Popen([sys.executable, *sys.argv[:3], *names]) as child:
            while child.poll() is None:
                before = len(os.listdir(folder))
                try:
                    child.wait(_LIMIT_S)
                except subprocess.TimeoutExpired:
                    if len(os.listdir(folder)) == before:
                        child.kill()
        names = [n for n in names if not any((folder / f"{n}.{e}").exists() for e in ("npz", "refused"))]
        if names and child.returncode:
            (folder / f"{names.pop(0)}.refused").write_text("paddle crashed or hung")


if __name__ == "__main__":
    main()
