"""Shapes, indexing, constants."""

from __future__ import annotations

import numpy as np
import paddle
from case import IMAGE, Lazy, X, bools, case, ints, real
from paddle import nn
from paddle.nn import functional as F

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
