"""Importers of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import ShapeError
from ...ir import DType, Value
from ...ir.symbols import fixed, is_symbolic
from ...ops.conv import Conv, ConvTranspose
from ...ops.pool import Pool
from ..onnx.conv import split_pads
from .common import Found, PaddleNode, paddle_op


def _pads(
    n: PaddleNode, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """Return begins, then ends, of the padding of each spatial axis."""
    rank, algorithm = len(sizes), n.text("padding_algorithm", default="EXPLICIT")
    if algorithm == "VALID":
        return (0,) * (2 * rank)
    if algorithm == "SAME":
        totals = []
        for size, k, s in zip(sizes, kernel, strides, strict=True):
            rest = fixed(size % s) or s
            totals.append(max(0, k - rest))
        return split_pads(totals, more_at_end=True)
    given = n.whole("paddings", "padding", default=(0,) * rank)
    if len(given) == rank:
        return (*given, *given)
    if len(given) == 2 * rank:  # begin and end of each axis
        return (*given[::2], *given[1::2])
    raise ShapeError(f"{n.label} has {len(given)} paddings for {rank} spatial axes")


def _per_axis(n: PaddleNode, rank: int, *names: str) -> tuple[int, ...]:
    given = n.whole(*names, default=(1,) * rank)
    if len(given) != rank:
        raise ShapeError(f"{n.label} has {names[0]} {given}; {rank} numbers are expected")
    return tuple(given)


def _window(n: PaddleNode, x: Value, w: Value) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides, pads and dilations of a convolution of `x` with filters `w`. ShapeError if their ranks differ."""
    rank = len(x.shape) - 2
    if len(w.shape) != len(x.shape) or rank < 1:
        raise ShapeError(f"{n.label} has filters {w.type} for {x.type}: the ranks must be equal")
    strides, dilations = _per_axis(n, rank, "strides"), _per_axis(n, rank, "dilations")
    if n.text("padding_algorithm") == "SAME":
        dilations = (1,) * rank
    return strides, _pads(n, x.shape[2:], w.shape[2:], strides, dilations), dilations


_CONVS = ("conv2d", "depthwise_conv2d", "conv3d", "conv1d", "conv2d_fusion", "fused_conv2d")


@paddle_op(*_CONVS, operands="input filter bias residual")
def conv(n: PaddleNode) -> Value:
    """Import a convolution; filters are [M, C / group, ...] in both layouts."""
    x, w = n.first(n.value("input", "x")), n.value("filter")
    strides, pads, dilations = _window(n, x, w)
    group = int(n.number("groups", "group", default=1))
    out = n.add(Conv(strides, pads, dilations, group), [x, w, n.maybe("bias")])
    residual = n.maybe("residual_data", "residual")
    if residual is not None:
        out = n.elementwise(lambda a, b: a + b, out, n.first(residual))
    kind = n.text("activation", "fuse_activation", default="identity")
    if kind == "relu":
        out = n.elementwise(lambda v: v.call("max", 0), out)
    elif kind not in ("identity", ""):
        raise n.refuse(f"has the fused activation '{kind}'; relu is known")
    return n.back(out)


_TRANSPOSED = ("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose", "conv2d_transpose_bias")


@paddle_op(*_TRANSPOSED, operands="x filter output_size bias")
def conv_transpose(n: PaddleNode) -> Value:
    """Import a transposed convolution; output_size is reached by padding at the end."""
    x, w = n.first(n.value("x", "input")), n.value("filter")
    strides, pads, dilations = _window(n, x, w)
    rank = len(strides)
    extra = tuple(n.whole("output_padding", default=())) or (0,) * rank
    wanted = n.whole("output_size_tensor", "output_size", default=())
    if wanted:
        sizes = [wanted[0]] * rank if len(wanted) == 1 else wanted
        reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
        plain = [(x.shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + reach[i] for i in range(rank)]
        extra = tuple(fixed(s - p) for s, p in zip(sizes, plain, strict=True))
        if not all(0 <= e < s for e, s in zip(extra, strides, strict=True)):
            raise ShapeError(f"{n.label} has output_size {sizes}; {plain}, or less than a stride more, is possible")
    group = int(n.number("groups", default=1))
    op = ConvTranspose(strides=strides, pads=pads, dilations=dilations, group=group, output_padding=extra)
    return n.back(n.add(op, [x, w, n.maybe("bias")]))


@paddle_op("deformable_conv", operands="x offset filter mask")
def deformable_conv(n: PaddleNode) -> Value:
    """Import deformable_conv, version 1 (without mask) and 2."""
    x, w = n.value("x", "input"), n.value("filter")
    inputs = [x, w, n.value("offset"), None, n.maybe("mask")]
    pads = n.whole("paddings", default=(0, 0))
    return n.emit(
        "DeformConv",
        inputs,
        kernel_shape=tuple(w.shape[2:]),
        strides=tuple(n.whole("strides", default=(1, 1))),
        dilations=tuple(n.whole("dilations", default=(1, 1))),
        pads=(*pads, *pads),
        group=int(n.number("groups", default=1)),
        offset_group=int(n.number("deformable_groups", default=1)),
    )


# Pooling


@paddle_op("pool2d", "pool3d", "lp_pool2d", operands="x kernel_size")
def pool(n: PaddleNode) -> Value:
    """Import pooling over windows, whole images, or bins that cover the image (adaptive)."""
    x = n.first(n.value("x"))
    kinds = {"max": "max", "avg": "average"}
    kind = "lp" if n.op_type.startswith("lp") else kinds.get(n.text("pooling_type", default="max"))
    if kind is None:
        raise n.refuse(f"pools by '{n.text('pooling_type')}'; max and avg are known")
    return n.back(_pooled(n, x, kind)[0])


@paddle_op("max_pool2d_with_index", "max_pool3d_with_index", operands="x", outputs="out mask")
def pool_with_index(n: PaddleNode) -> Found:
    """Import max pooling that gives positions within each channel, too."""
    x = n.value("x")
    if not n.wants("mask"):
        return {"out": _pooled(n, x, "max")[0]}
    out, flat = _pooled(n, x, "max", with_indices=True)
    plane = int(np.prod([fixed(d) for d in x.shape[2:]]))
    return {"out": out, "mask": n.elementwise(lambda i: i.call("mod", plane).cast(DType.INT32), flat)}


def _pooled(n: PaddleNode, x: Value, kind: str, with_indices: bool = False) -> list[Value]:
    rank = len(x.shape) - 2
    spatial = tuple(range(2, 2 + rank))
    kernel = tuple(n.whole("ksize", "kernel_size"))
    adaptive = n.is_set("adaptive")
    kernel = kernel * rank if len(kernel) == 1 else kernel
    if len(kernel) != rank:
        raise ShapeError(f"{n.label} has a window {kernel} for {x.type}")
    whole = n.is_set("global_pooling") or (adaptive and all(k == 1 for k in kernel))
    if whole and not with_indices and kind != "lp":
        return [n.reduce(x, "max" if kind == "max" else "mean", spatial)]
    if adaptive and not all(not is_symbolic(d) and d % k == 0 for d, k in zip(x.shape[2:], kernel, strict=True)):
        if with_indices:
            raise n.refuse(f"gives positions in {kernel} bins of {x.type}, which are of different sizes")
        return [_adaptive(n, x, kind, kernel)]
    strides = tuple(n.whole("strides", default=(1,) * rank))
    strides = strides * rank if len(strides) == 1 else strides
    if whole:
        kernel = tuple(fixed(d) for d in x.shape[2:])
        strides, pads = kernel, (0,) * (2 * rank)
    elif adaptive:
        kernel = strides = tuple(fixed(d // k) for d, k in zip(x.shape[2:], kernel, strict=True))
        pads = (0,) * (2 * rank)
    else:
        pads = _pads(n, x.shape[2:], kernel, strides, (1,) * rank)
    op = Pool(
        kind=kind,
        kernel=kernel,
        ceil_mode=n.is_set("ceil_mode"),
        count_include_pad=not n.is_set("exclusive", default=True),
        p=int(n.number("norm_type", default=2)),
        with_indices=with_indices,
        storage_order=0,
        strides=strides,
        pads=pads,
        dilations=(1,) * rank,
    )
    return n.add_many(op, [x], 2 if with_indices else 1)


def _adaptive(n: PaddleNode, x: Value, kind: str, bins: Sequence[int]) -> Value:
    """Reduce each bin i of k, from floor(i d / k) to ceil((i + 1) d / k), along one axis after another."""
    for axis, count in enumerate(bins, 2):
        size = fixed(x.shape[axis])
        pieces = [
            n.reduce(n.slice_axis(x, axis, i * size // count, -(-(i + 1) * size // count)), _REDUCTIONS[kind], [axis])
            for i in range(count)
        ]
        x = n.concat(pieces, axis)
    return x


_REDUCTIONS = {"max": "max", "average": "mean"}


@paddle_op("unpool", operands="x indices output_size")
def unpool(n: PaddleNode) -> Value:
    """Import unpool: values at their positions in each channel, zeros elsewhere."""
    x, indices = n.value("x"), n.value("indices")
    rows, columns = n.whole("output_size", default=())[-2:] or (0, 0)
    if not rows:
        kernel, strides = n.whole("ksize"), n.whole("strides")
        pads = n.whole("padding", "paddings", default=(0, 0))
        rows, columns = ((x.shape[2 + i] - 1) * strides[i] - 2 * pads[i] + kernel[i] for i in (0, 1))
    count, each = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
    empty = n.full(0, x.dtype, (count, rows * columns))
    flat = [n.reshape(n.cast(indices, DType.INT64), (count, each)), n.reshape(x, (count, each))]
    out = n.emit("ScatterElements", [empty, *flat], axis=1)
    return n.reshape(out, (x.shape[0], x.shape[1], rows, columns))
