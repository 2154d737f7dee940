"""Pool: maximum, average and Lp pooling over spatial windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.dtype import DType
from ..ir.types import TensorType
from .base import Array, Attrs, Cost, Op, Types, make_type, moved_bytes, need, register_op, tensor
from .conv import check_window, compute_dtype, pad_or_crop, tap_slices, taps


def pool_dims(sizes: Sequence[int], attrs: Attrs) -> list[int]:
    """Output sizes. With ceil_mode a partial last window counts if it starts inside the input or its left pad.

    As in onnxruntime, a window that reaches less than a stride beyond the padded input has one position, and none
    if it reaches just a stride beyond.
    """
    out, pads, rank = [], attrs["pads"], len(sizes)
    for i, size in enumerate(sizes):
        extent, stride = attrs["dilations"][i] * (attrs["kernel"][i] - 1) + 1, attrs["strides"][i]
        room = size + pads[i] + pads[i + rank] - extent
        count = 1 + (-(-room // stride) if attrs["ceil_mode"] or room < 0 else room // stride)
        beyond = attrs["ceil_mode"] and (count - 1) * stride >= size + pads[i]
        out.append(count - 1 if beyond else count)
    return out


@register_op
class Pool(Op):
    """y[n,c,o] = max, mean or p-norm of x[n, c, o*stride - pad + k*dilation] over the window positions k.

    attrs: kind ("max", "average" or "lp"), kernel, strides, pads (begins, then ends; negative ones skip elements),
    dilations, ceil_mode,
    count_include_pad (average: padding counts in the divisor; what ceil_mode adds beyond the pads never does),
    p (lp), with_indices (max: output 1 is the int64 position of the maximum in x, flattened over all axes),
    storage_order (indices: 0 row-major, 1 column-major within one channel's plane).
    """

    name = "Pool"
    arity = 1
    takes_epilogue = True

    def check_shape(self, attrs: Attrs, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        rank = x.rank - 2
        need(rank >= 1, f"x must be [N,C,D1,...], got {x}")
        need(attrs["kind"] in ("max", "average", "lp"), f"pooling kind must be max, average or lp, got {attrs['kind']}")
        kernel = tuple(attrs["kernel"])
        need(len(kernel) == rank, f"kernel must hold {rank} numbers for {rank} spatial axes, got {kernel}")
        need(all(k >= 1 for k in kernel), f"kernel must be positive, got {kernel}")
        check_window(attrs, rank)
        need(attrs["kind"] != "lp" or attrs["p"] >= 1, f"p must be at least 1, got {attrs['p']}")
        out = pool_dims(x.shape[2:], attrs)
        need(
            all(d >= 0 for d in out),
            f"the output would have spatial size {tuple(out)}: x {x} with its pads is smaller than the window {kernel}",
        )

    def infer_shape(self, attrs: Attrs, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        shape = (*x.shape[:2], *pool_dims(x.shape[2:], attrs))
        y = make_type(x.dtype, shape)
        return [y, make_type(DType.INT64, shape)] if attrs["with_indices"] else [y]

    def reference(self, attrs: Attrs, arrays: Sequence[Array | None]) -> list[Array]:
        x = arrays[0]
        assert x is not None
        if attrs["kind"] == "max":
            return _max_pool(x, attrs)
        acc = compute_dtype(x.dtype)
        out = pool_dims(x.shape[2:], attrs)
        values = x.astype(acc)
        if attrs["kind"] == "lp":
            values = np.abs(values) ** attrs["p"]
        padded = _pad_for_windows(values, attrs, out, 0)
        y = sum((padded[s] for s in _windows(attrs, out)), np.zeros((*x.shape[:2], *out), acc))
        y = y ** (1 / attrs["p"]) if attrs["kind"] == "lp" else y / _divisor(x.shape[2:], attrs, out).astype(acc)
        return [y.astype(x.dtype)]

    def cost(self, attrs: Attrs, ins: Types, outs: Sequence[TensorType]) -> Cost:
        return Cost(float(outs[0].count * math.prod(attrs["kernel"])), moved_bytes(ins, outs))


def _windows(attrs: Attrs, out: Sequence[int]) -> list[tuple[slice, ...]]:
    """For each window position, the slices of the padded input that it meets."""
    strides, dilations = attrs["strides"], attrs["dilations"]
    return [(slice(None), slice(None), *tap_slices(k, out, strides, dilations)) for k in taps(attrs["kernel"])]


def _pad_for_windows(x: Array, attrs: Attrs, out: Sequence[int], value: float | int) -> Array:
    """`x` with its begin pads, and behind as much as the last window reaches."""
    begins = attrs["pads"][: len(out)]
    ends = [
        (o - 1) * s + d * (k - 1) + 1 - size - b
        for o, s, d, k, size, b in zip(
            out, attrs["strides"], attrs["dilations"], attrs["kernel"], x.shape[2:], begins, strict=True
        )
    ]
    return pad_or_crop(x, [*begins, *ends], value)


def _divisor(sizes: Sequence[int], attrs: Attrs, out: Sequence[int]) -> Array:
    """How many elements each window averages: those inside x, or inside x and its pads with count_include_pad."""
    rank = len(sizes)
    total = np.ones((1,) * rank)
    for i, size in enumerate(sizes):
        begin, end = attrs["pads"][i], attrs["pads"][i + rank]
        low, high = (-begin, size + end) if attrs["count_include_pad"] else (0, size)
        starts = np.arange(out[i])[:, None] * attrs["strides"][i] - begin
        at = starts + np.arange(attrs["kernel"][i]) * attrs["dilations"][i]
        count = ((at >= low) & (at < high)).sum(1)
        total = total * count.reshape([-1 if a == i else 1 for a in range(rank)])
    return np.maximum(total, 1)


def _max_pool(x: Array, attrs: Attrs) -> list[Array]:
    out = pool_dims(x.shape[2:], attrs)
    lowest: float | int = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    values = _pad_for_windows(x, attrs, out, lowest)
    best = np.full((*x.shape[:2], *out), lowest, x.dtype)  # any number is larger than NaN
    at = np.full(best.shape, -1, np.int64)
    plane = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
    if attrs["storage_order"]:
        plane = np.arange(plane.size).reshape(x.shape[:1:-1]).T
    channel = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * plane.ndim) * plane.size
    index = _pad_for_windows(np.broadcast_to(plane, (1, 1, *plane.shape)), attrs, out, -1)
    for s in _windows(attrs, out):
        better = (index[s] >= 0) & ((values[s] > best) | (at < 0) | (best != best))
        best = np.where(better, values[s], best)
        at = np.where(better, channel + index[s], at)
    return [best, at] if attrs["with_indices"] else [best]
