"""Pool: maximum, average and Lp pooling over spatial windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.dtype import DType
from ..ir.tensor_type import TensorType
from .conv import Windowed, compute_dtype, pad_or_crop, tap_slices, taps
from .operator import Array, Arrays, Cost, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor


def pool_dims(sizes: Sequence[int], op: Pool) -> list[int]:
    """Output sizes. With ceil_mode a partial last window counts if it starts inside the input or its left pad.

    As in onnxruntime, a window that exceeds the padded input by less than a stride has one position; by a stride or
    more, none.
    """
    out, pads, rank = [], op.pads, len(sizes)
    for i, size in enumerate(sizes):
        extent, stride = op.dilations[i] * (op.kernel[i] - 1) + 1, op.strides[i]
        room = size + pads[i] + pads[i + rank] - extent
        count = 1 + (-(-room // stride) if op.ceil_mode or room < 0 else room // stride)
        beyond = op.ceil_mode and (count - 1) * stride >= size + pads[i]
        out.append(count - 1 if beyond else count)
    return out


@frozen_op
class Pool(Windowed):
    """y[n,c,o] = max, mean or p-norm of x[n, c, o*stride - pad + k*dilation] over the window positions k.

    Attributes: kind ("max", "average" or "lp"), kernel, strides, pads (begins, then ends; negative pads crop),
    dilations, ceil_mode, count_include_pad (average: padding counts in the divisor, except what ceil_mode adds beyond
    the pads), p (lp), with_indices (max: output 1 is the int64 position of the maximum in x, flattened over all axes),
    storage_order (indices: 0 row-major, 1 column-major within one channel's plane).
    """

    kind: str
    kernel: tuple[int, ...]
    ceil_mode: bool
    count_include_pad: bool
    p: int
    with_indices: bool
    storage_order: int

    arity = 1
    takes_epilogue = True

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        rank = x.rank - 2
        need(rank >= 1, f"x must be [N,C,D1,...], got {x}")
        need(self.kind in ("max", "average", "lp"), f"pooling kind must be max, average or lp, got {self.kind}")
        kernel = self.kernel
        need(len(kernel) == rank, f"kernel must hold {rank} numbers for {rank} spatial axes, got {kernel}")
        need(all(k >= 1 for k in kernel), f"kernel must be positive, got {kernel}")
        self.check_window(rank)
        need(self.kind != "lp" or self.p >= 1, f"p must be at least 1, got {self.p}")
        out = pool_dims(x.shape[2:], self)
        why = f"x {x} with its pads is smaller than the window {kernel}"
        need(all(d >= 0 for d in out), f"the output would have spatial size {tuple(out)}: {why}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        shape = (*x.shape[:2], *pool_dims(x.shape[2:], self))
        y = make_type(x.dtype, shape)
        return [y, make_type(DType.INT64, shape)] if self.with_indices else [y]

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        if self.kind == "max":
            return _max_pool(x, self)
        acc = compute_dtype(x.dtype)
        out = pool_dims(x.shape[2:], self)
        values = x.astype(acc)
        if self.kind == "lp":
            values = np.abs(values) ** self.p
        padded = _pad_for_windows(values, self, out, 0)
        y = sum((padded[s] for s in _windows(self, out)), np.zeros((*x.shape[:2], *out), acc))
        y = y ** (1 / self.p) if self.kind == "lp" else y / _divisor(x.shape[2:], self, out).astype(acc)
        return [y.astype(x.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        return Cost(1.0 * outs[0].count * math.prod(self.kernel), moved_bytes(ins, outs))


def _windows(op: Pool, out: Sequence[int]) -> list[tuple[slice, ...]]:
    """Slices of the padded input for each window position."""
    return [(slice(None), slice(None), *tap_slices(k, out, op)) for k in taps(op.kernel)]


def _pad_for_windows(x: Array, op: Pool, out: Sequence[int], value: float | int) -> Array:
    """`x` with its begin pads, and end pads up to the last window's end."""
    begins = op.pads[: len(out)]
    ends = [
        (o - 1) * s + d * (k - 1) + 1 - size - b
        for o, s, d, k, size, b in zip(out, op.strides, op.dilations, op.kernel, x.shape[2:], begins, strict=True)
    ]
    return pad_or_crop(x, [*begins, *ends], value)


def _divisor(sizes: Sequence[int], op: Pool, out: Sequence[int]) -> Array:
    """Number of elements that each window averages: inside x, or inside x and its pads with count_include_pad."""
    rank = len(sizes)
    total = np.ones((1,) * rank)
    for i, size in enumerate(sizes):
        begin, end = op.pads[i], op.pads[i + rank]
        low, high = (-begin, size + end) if op.count_include_pad else (0, size)
        starts = np.arange(out[i])[:, None] * op.strides[i] - begin
        at = starts + np.arange(op.kernel[i]) * op.dilations[i]
        count = ((at >= low) & (at < high)).sum(1)
        total = total * count.reshape([-1 if a == i else 1 for a in range(rank)])
    return np.maximum(total, 1)


def _max_pool(x: Array, op: Pool) -> list[Array]:
    out = pool_dims(x.shape[2:], op)
    lowest: float | int = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    values = _pad_for_windows(x, op, out, lowest)
    best = np.full((*x.shape[:2], *out), lowest, x.dtype)  # any number is larger than NaN
    at = np.full(best.shape, -1, np.int64)
    plane = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
    if op.storage_order:
        plane = np.arange(plane.size).reshape(x.shape[:1:-1]).T
    channel = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * plane.ndim) * plane.size
    index = _pad_for_windows(np.broadcast_to(plane, (1, 1, *plane.shape)), op, out, -1)
    for s in _windows(op, out):
        better = (index[s] >= 0) & ((values[s] > best) | (at < 0) | (best != best))
        best = np.where(better, values[s], best)
        at = np.where(better, channel + index[s], at)
    return [best, at] if op.with_indices else [best]
