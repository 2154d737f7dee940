"""Shape operators: views, permutations, concatenation, slicing, padding, and queries of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Value
from ...ir.symbols import always_equal, is_symbolic, symbolic_max
from ...ops.data_movement import Pad, Slice
from ...ops.operator import normalize_axis
from ..walk.emitter import default_element
from ..walk.node_context import NodeContext, onnx_op

END_BOUND = 2**31 - 1
"""Slice bounds from here on mean the end, for any size."""


# Views


@onnx_op("Reshape")
def reshape(ctx: NodeContext) -> Value:
    """Import Reshape: 0 keeps a dimension (unless allowzero), -1 is inferred; the shape is an input since opset 5."""
    x, wanted = ctx.input(0), ctx.ints("shape", ()) if ctx.version < 5 else ctx.const_ints(1)
    dims = list(wanted)
    if not ctx.flag("allowzero"):
        for i, d in enumerate(dims):
            if d == 0:
                if i >= len(x.shape):
                    raise ShapeError(f"{ctx.label} keeps dimension {i} in {tuple(wanted)}, which {x.type} lacks")
                dims[i] = x.shape[i]
    return ctx.reshape_open(x, dims, wanted)


@onnx_op("Flatten", since=1)
def flatten(ctx: NodeContext) -> Value:
    """Import Flatten: to two dimensions: the product of those before `axis`, and of the others."""
    x = ctx.input(0)
    axis = ctx.attr("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        raise ShapeError(f"{ctx.label} flattens at axis {axis}, which {x.type} lacks")
    axis += len(x.shape) if axis < 0 else 0
    return ctx.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@onnx_op("Squeeze", since=1)
def squeeze_(ctx: NodeContext) -> Value:
    """Import Squeeze: removes the given dimensions of size 1, by default all; duplicates are allowed."""
    x = ctx.input(0)
    axes = ctx.ints_of("axes", 1, input_since=13)
    if not axes:
        return ctx.squeeze(x, [i for i, d in enumerate(x.shape) if d == 1])
    return ctx.squeeze(x, sorted({normalize_axis(a, len(x.shape)) for a in axes}))


@onnx_op("Unsqueeze", since=1)
def unsqueeze_(ctx: NodeContext) -> Value:
    """Import Unsqueeze: inserts dimensions of size 1 at the given axes."""
    axes = ctx.ints_of("axes", 1, input_since=13)
    return ctx.unsqueeze(ctx.input(0), axes or ())


# Moving


@onnx_op("Transpose", since=1)
def transpose(ctx: NodeContext) -> Value:
    """Import Transpose: axes in the order of `perm`, by default reversed."""
    x = ctx.input(0)
    rank = len(x.shape)
    perm = [normalize_axis(a, rank, "perm") for a in ctx.ints("perm", range(rank - 1, -1, -1))]
    if sorted(perm) != list(range(rank)):
        raise ShapeError(f"{ctx.label} has perm {tuple(perm)}, which is not a permutation of the axes of {x.type}")
    return ctx.transpose(x, perm)


@onnx_op("Concat", since=1)
def concat(ctx: NodeContext) -> Value:
    """Import Concat: inputs along `axis` (default 1 in opset 1).

    As in onnxruntime, an empty input may have any shape: it adds its size along the axis to that of the first nonempty
    input, or of the first input.
    """
    values = ctx.present
    if not values:
        raise ShapeError(f"{ctx.label} has no inputs")
    if len({v.dtype for v in values}) == 1 and len({_other_sizes(v, ctx.attr("axis", 1)) for v in values}) > 1:
        filled = [v for v in values if v.type.count]
        model = (filled or values)[0]
        axis = ctx.axis_of(len(model.shape), 1)
        if filled:
            values = [v for v in values if v.type.count or (v.shape[axis] if axis < len(v.shape) else 0)]
        elif math.prod(_other_sizes(model, axis)) == 0 or not any(v.shape[axis] for v in values if axis < len(v.shape)):
            shape = list(model.shape)
            shape[axis] = sum(v.shape[axis] for v in values if axis < len(v.shape))
            return ctx.constant(np.zeros(shape, model.dtype.np))
    axis = ctx.axis_of(len(values[0].shape), 1)
    return ctx.concat(values, axis)


def _other_sizes(v: Value, axis: int) -> tuple[int, ...]:
    """Return the sizes of all axes but one."""
    axis += len(v.shape) if axis < 0 else 0
    return v.shape[:axis] + v.shape[axis + 1 :]


@onnx_op("Split", since=1)
def split(ctx: NodeContext) -> Sequence[Value]:
    """Import Split: pieces of given sizes (attribute; input since 13), else equal ones (the last smaller since 18)."""
    x = ctx.input(0)
    axis = ctx.axis_of(len(x.shape), 0)
    given = ctx.get(1) is not None  # opset 1 allows both, 2 to 12 the attribute, 13 the input
    sizes = ctx.const_ints(1) if given else ctx.ints("split", ())
    if not sizes:
        sizes = _even_sizes(ctx, x.shape[axis])
    if len(sizes) != ctx.n_outputs:
        raise ShapeError(f"{ctx.label} has {ctx.n_outputs} outputs, but {len(sizes)} pieces")
    return ctx.split_axis(x, axis, sizes)


def _even_sizes(ctx: NodeContext, size: int) -> tuple[int, ...]:
    pieces = ctx.attr("num_outputs", ctx.n_outputs)
    if ctx.version < 18 and size % pieces:
        raise ShapeError(f"{ctx.label} splits {size} elements into {pieces} equal pieces")
    chunk = -(-size // pieces)
    return tuple(max(0, min(chunk, size - i * chunk)) for i in range(pieces))


@onnx_op("Slice")
def slice_(ctx: NodeContext) -> Value:
    """Import Slice: x[starts:ends:steps] along axes, attributes before opset 10; bounds are clamped as in NumPy."""
    x, rank = ctx.input(0), len(ctx.input(0).shape)
    starts, ends = (ctx.ints(n, ()) if ctx.version < 10 else ctx.const_ints(i) for i, n in ((1, "starts"), (2, "ends")))
    axes, steps = ctx.ints_of("axes", 3, 10), ctx.ints_of("steps", 4, 10)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError(f"{ctx.label} has starts, ends, axes and steps of different lengths")
    begin, stride, size = [0] * rank, [1] * rank, list(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        a = normalize_axis(axis, rank)
        if step == 0:
            raise ShapeError(f"{ctx.label} has step 0 on axis {a}")
        begin[a], stride[a], size[a] = _slice_range(start, end, int(step), x.shape[a])
    if all(s == 1 for s in stride) and always_equal(size, x.shape):
        return x
    return ctx.add(Slice(starts=tuple(begin), steps=tuple(stride), sizes=tuple(size)), [x])


def _slice_range(start: int, end: int, step: int, size: int) -> tuple[int, int, int]:
    """Return first element, step and count of start:end:step in an axis of `size`."""
    if step < 0:  # a start before the first element is clamped to it, unlike NumPy
        start = max(start, -size)
    if not is_symbolic((start, end, size)):
        covered = range(*slice(start, end, step).indices(size))
        return (covered.start if covered else 0), step, len(covered)
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def place(at: int) -> int:  # comparisons of symbolic sizes record guards
        at = at + size if at < 0 else at
        return low if at < low else high if at > high else at

    first = place(start)
    last = high if end >= END_BOUND else low if end <= -END_BOUND else place(end)
    count = -(-(last - first) // step) if step > 0 else -((last - first) // -step)
    return (first, step, count) if count > 0 else (0, step, 0)


@onnx_op("Tile")
def tile(ctx: NodeContext) -> Value:
    """Import Tile: copies along every axis, before opset 6 along one, which is an input.

    Each tiled axis becomes two by a broadcast, [repeats, size].
    """
    x = ctx.input(0)
    if ctx.version < 6:
        axis, count = normalize_axis(int(ctx.const_scalar(2)), len(x.shape)), int(ctx.const_scalar(1))
        repeats = tuple(count if i == axis else 1 for i in range(len(x.shape)))
    else:
        repeats = ctx.const_ints(1)
    if len(repeats) != len(x.shape):
        raise ShapeError(f"{ctx.label} has repeats {tuple(repeats)} for {x.type}")
    if any(r < 0 for r in repeats):
        raise ShapeError(f"{ctx.label} has repeats {tuple(repeats)}; they must not be negative")
    shape = tuple(d * r for d, r in zip(x.shape, repeats, strict=True))
    if 0 in shape:
        return ctx.full(0, x.dtype, shape)
    view: list[int] = []
    spread: list[int] = []
    for d, r in zip(x.shape, repeats, strict=True):
        view += [1, d] if r != 1 and d != 1 else [d]
        spread += [r, d] if r != 1 and d != 1 else [d * r]
    return ctx.reshape(ctx.expand(ctx.reshape(x, view), spread), shape)


@onnx_op("Expand", since=8)
def expand_(ctx: NodeContext) -> Value:
    """Import Expand: broadcasts x and the shape against each other."""
    return ctx.expand(ctx.input(0), ctx.const_ints(1))


@onnx_op("Pad", since=1)
def pad_attributes(ctx: NodeContext) -> Value:
    """Import Pad: by attributes (`paddings` in opset 1)."""
    pads = ctx.ints("pads", ctx.attr("paddings", ()))
    return _pad(ctx, pads, range(len(ctx.input(0).shape)), ctx.attr("value", 0.0))


@onnx_op("Pad", since=11)
def pad(ctx: NodeContext) -> Value:
    """Import Pad: by inputs: pads, constant value, and (since 18) axes; negative pads crop."""
    x = ctx.input(0)
    axes: Sequence[int] = range(len(x.shape))
    if ctx.get(3) is not None:
        axes = ctx.const_ints(3)
    value = ctx.const(2).reshape(-1).tolist() if ctx.get(2) is not None else []
    return _pad(ctx, ctx.const_ints(1), axes, value[0] if value else default_element(x.dtype))


def _pad(ctx: NodeContext, pads: Sequence[int], axes: Sequence[int], value: Any) -> Value:
    x = ctx.input(0)
    rank, mode = len(x.shape), ctx.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"{ctx.label} has {len(pads)} pads for {len(axes)} axes")
    begin, end = [0] * rank, [0] * rank
    for i, axis in enumerate(axes):
        a = normalize_axis(axis, rank)
        begin[a], end[a] = pads[i], pads[len(axes) + i]
    for a in range(rank):
        size = x.shape[a]
        missing = max(0, -begin[a]) + max(0, -end[a]) - size
        if missing > 0 and mode == "constant":  # cropping at one end reaches into the padding of the other
            shift = -missing if begin[a] > 0 else missing
            begin[a], end[a] = begin[a] + shift, end[a] - shift
        if max(0, -begin[a]) + max(0, -end[a]) > size:
            raise ShapeError(f"{ctx.label} with pads {tuple(pads)} cuts more than there is off axis {a} of {x.type}")
        x = ctx.slice_axis(x, a, max(0, -begin[a]), size - max(0, -end[a]))
    grown = tuple(symbolic_max([p, 0]) for p in (*begin, *end))
    if all(always_equal(p, 0) for p in grown):
        return x
    return _pad_nonnegative(ctx, x, grown, mode, value)


def _pad_nonnegative(ctx: NodeContext, x: Value, pads: Sequence[int], mode: str, value: Any) -> Value:
    """Pad x; strings and complex numbers are concatenated with constant blocks along each axis."""
    rank = len(x.shape)
    if x.dtype.on_device or mode != "constant":
        number = value if x.dtype.is_float else int(value) if x.dtype.on_device else 0
        return ctx.add(Pad(pads=tuple(pads), mode=mode, value=number), [x])
    for a in range(rank):
        shapes = [tuple(p if i == a else d for i, d in enumerate(x.shape)) for p in (pads[a], pads[rank + a])]
        before, after = (ctx.full(value, x.dtype, shape) for shape in shapes)
        x = ctx.concat([before, x, after], a)
    return x


@onnx_op("CenterCropPad", since=18)
def center_crop_pad(ctx: NodeContext) -> Value:
    """Import CenterCropPad: crops or zero-pads axes around their centre to given sizes."""
    x = ctx.input(0)
    rank = len(x.shape)
    axes = [normalize_axis(a, rank) for a in ctx.ints("axes", range(rank))]
    pads, sizes = [0] * (2 * rank), ctx.const_ints(1)
    if len(sizes) != len(axes):
        raise ShapeError(f"{ctx.label} has {len(sizes)} sizes for {len(axes)} axes of {x.type}")
    for a, size in zip(axes, sizes, strict=True):
        have = x.shape[a]
        if size <= have:
            start = (have - size) // 2
            x = ctx.slice_axis(x, a, start, start + size)
        else:
            pads[a] = (size - have) // 2
            pads[rank + a] = size - have - pads[a]
    return x if not any(pads) else _pad_nonnegative(ctx, x, pads, "constant", default_element(x.dtype))


@onnx_op("DepthToSpace", since=1)
def depth_to_space(ctx: NodeContext) -> Value:
    """Import DepthToSpace: blocks of channels become blocks of pixels, depth outermost (DCR) or innermost (CRD)."""
    x, b = ctx.input(0), _block(ctx)
    n, c, h, w = _image(ctx, x)
    if c % (b * b):
        raise ShapeError(f"{ctx.label} needs channels in blocks of {b * b}, got {x.type}")
    if ctx.attr("mode", "DCR") == "DCR":
        out = ctx.transpose(ctx.reshape(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        out = ctx.transpose(ctx.reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return ctx.reshape(out, (n, c // (b * b), h * b, w * b))


@onnx_op("SpaceToDepth", since=1)
def space_to_depth(ctx: NodeContext) -> Value:
    """Import SpaceToDepth: blocks of pixels become blocks of channels."""
    x, b = ctx.input(0), _block(ctx)
    n, c, h, w = _image(ctx, x)
    if h % b or w % b:
        raise ShapeError(f"{ctx.label} needs height and width in multiples of {b}, got {x.type}")
    view = ctx.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 1, 3, 5, 2, 4) if ctx.attr("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return ctx.reshape(ctx.transpose(view, order), (n, c * b * b, h // b, w // b))


def _block(ctx: NodeContext) -> int:
    size = ctx.attr("blocksize", 1)
    if size < 1:
        raise ShapeError(f"{ctx.label} needs a blocksize of 1 or more, got {size}")
    return size


def _image(ctx: NodeContext, x: Value) -> tuple[int, int, int, int]:
    if len(x.shape) != 4:
        raise ShapeError(f"{ctx.label} expects [N,C,H,W], got {x.type}")
    n, c, h, w = x.shape
    return n, c, h, w


# Shape queries


@onnx_op("Shape", since=1)
def shape(ctx: NodeContext) -> Value:
    """Import Shape: dimensions from `start` to `end`."""
    dims = ctx.input(0).shape
    start, end = ctx.attr("start", 0), ctx.attr("end", None)
    return ctx.shape_tensor(dims[start : None if end is None else int(end)])


@onnx_op("Size", since=1)
def size(ctx: NodeContext) -> Value:
    """Import Size: number of elements."""
    return ctx.shape_tensor([ctx.input(0).type.count], shape=())
