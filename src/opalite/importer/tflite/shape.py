"""Importers of views, permutations, joins, cuts and borders, and of queries of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...errors import ShapeError
from ...ir import DType, Value
from ...ir.symbols import int_or_symbolic, is_symbolic
from ...ops.data_movement import Pad
from ...ops.operator import broadcast_shape, normalize_axis
from ..walk.node_context import NodeContext
from .common import activated, check_rank, one, out_dtype, rank_of, tensors_of, tflite_op, unsupported


@tflite_op("RESHAPE", moves=True, pairs=True)
def reshape(ctx: NodeContext) -> Value:
    """Import RESHAPE: to the shape in input 1, or in the options; -1 is inferred."""
    x = ctx.input(0)
    if ctx.get(1) is not None:
        dims = list(ctx.const_ints(1))
    else:
        dims = list(ctx.ints("new_shape", tensors_of(ctx).outputs[0].shape))
        dims = [] if dims == [0] else dims  # converters once wrote so of a scalar
    return ctx.reshape_open(x, [*dims, *x.shape[rank_of(ctx, x) :]], dims)


@tflite_op("SQUEEZE", moves=True, pairs=True)
def squeeze(ctx: NodeContext) -> Value:
    """Import SQUEEZE: without the given axes of size 1, by default without all."""
    x = ctx.input(0)
    rank = rank_of(ctx, x)
    axes = {normalize_axis(a, rank) for a in ctx.ints("squeeze_dims", ())}
    return ctx.squeeze(x, sorted(axes or {i for i, d in enumerate(x.shape[:rank]) if d == 1}))


@tflite_op("EXPAND_DIMS", moves=True, pairs=True)
def expand_dims(ctx: NodeContext) -> Value:
    """Import EXPAND_DIMS: a new axis of size 1 at the place in input 1."""
    x = ctx.input(0)
    return ctx.unsqueeze(x, (normalize_axis(int(ctx.const_scalar(1)), rank_of(ctx, x) + 1),))


@tflite_op("TRANSPOSE", moves=True)
def transpose(ctx: NodeContext) -> Value:
    """Import TRANSPOSE: axes in the order of input 1."""
    x = ctx.input(0)
    perm = [normalize_axis(a, len(x.shape)) for a in ctx.const_ints(1)]
    if sorted(perm) != list(range(len(x.shape))):
        raise ShapeError(f"{ctx.label} has the order {tuple(perm)} for {x.type}")
    return ctx.transpose(x, perm)


@tflite_op("CONCATENATION")
def concatenation(ctx: NodeContext) -> Value:
    """Import CONCATENATION along an axis."""
    values = ctx.present
    return activated(ctx, ctx.concat(values, normalize_axis(ctx.attr("axis", 0), len(values[0].shape))))


@tflite_op("PACK", moves=True)
def pack(ctx: NodeContext) -> Value:
    """Import PACK: tensors of one shape stacked along a new axis."""
    values = ctx.present
    axis = normalize_axis(ctx.attr("axis", 0), len(values[0].shape) + 1)
    return ctx.concat([ctx.unsqueeze(v, (axis,)) for v in values], axis)


@tflite_op("UNPACK", moves=True)
def unpack(ctx: NodeContext) -> Sequence[Value]:
    """Import UNPACK: the slices along an axis, without it."""
    x = ctx.input(0)
    axis = normalize_axis(ctx.attr("axis", 0), len(x.shape))
    return [ctx.squeeze(part, (axis,)) for part in ctx.split_axis(x, axis, (1,) * ctx.n_outputs)]


@tflite_op("SPLIT", moves=True)
def split(ctx: NodeContext) -> Sequence[Value]:
    """Import SPLIT: equal parts along the axis in input 0."""
    x = ctx.input(1)
    axis = normalize_axis(int(ctx.const_scalar(0)), len(x.shape))
    if x.shape[axis] % ctx.n_outputs:
        raise ShapeError(f"{ctx.label} splits axis {axis} of {x.type} into {ctx.n_outputs} equal parts")
    return ctx.split_axis(x, axis, (x.shape[axis] // ctx.n_outputs,) * ctx.n_outputs)


@tflite_op("SPLIT_V", moves=True)
def split_v(ctx: NodeContext) -> Sequence[Value]:
    """Import SPLIT_V: parts of the sizes in input 1 along the axis in input 2; one size may be left open."""
    x, sizes = ctx.input(0), list(ctx.const_ints(1))
    axis = normalize_axis(int(ctx.const_scalar(2)), len(x.shape))
    if sizes.count(-1) > 1:
        raise ShapeError(f"{ctx.label} leaves two sizes open in {tuple(sizes)}")
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(s for s in sizes if s != -1)
    return ctx.split_axis(x, axis, sizes)


@tflite_op("SLICE", moves=True)
def slice_(ctx: NodeContext) -> Value:
    """Import SLICE: from the places in input 1 as much as input 2 says; -1 means to the end."""
    x, begins, sizes = ctx.input(0), ctx.const_ints(1), ctx.const_ints(2)
    if not len(begins) == len(sizes) == len(x.shape):
        raise ShapeError(f"{ctx.label} cuts {begins} and {sizes} out of {x.type}")
    for axis, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        end = x.shape[axis] if size == -1 else begin + size
        if not 0 <= begin <= end <= x.shape[axis]:
            raise ShapeError(f"{ctx.label} cuts {begin} to {end} out of axis {axis} of {x.type}")
        x = ctx.slice_axis(x, axis, begin, end)
    return x


@tflite_op("STRIDED_SLICE", moves=True)
def strided_slice(ctx: NodeContext) -> Value:
    """Import STRIDED_SLICE: x[begin:end:stride, ...] with new, dropped and skipped axes, as masks of bits say."""
    x = ctx.input(0)
    begins, ends, strides = (ctx.const_ints(i) for i in (1, 2, 3))
    masks = [int(ctx.attr(f"{n}_mask", 0)) for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")]
    if not len(begins) == len(ends) == len(strides):
        raise ShapeError(f"{ctx.label} has {begins}, {ends} and {strides} of different lengths")

    def has(which: int, i: int) -> bool:
        return bool(masks[which] >> i & 1)

    named = sum(not has(2, i) and not has(3, i) for i in range(len(begins)))
    starts: list[int] = []
    stops: list[int] = []
    axes: list[int] = []
    every: list[int] = []
    added: list[int] = []
    dropped: list[int] = []
    axis = place = 0
    for i, (begin, end, stride) in enumerate(zip(begins, ends, strides, strict=True)):
        if has(2, i):
            skipped = len(x.shape) - named
            axis, place = axis + skipped, place + skipped
        elif has(3, i):
            added.append(place)
            place += 1
        else:
            if axis >= len(x.shape) or stride == 0:
                raise ShapeError(f"{ctx.label} cuts {begins}, {ends} by {strides} out of {x.type}")
            if has(4, i):
                # One element; the end does not count.
                begin = 0 if has(0, i) else begin
                end, stride = begin + 1 if begin != -1 else _END, 1
                dropped.append(axis)
            else:
                forward = stride > 0
                begin = (0 if forward else _END) if has(0, i) else begin
                end = (_END if forward else -_END) if has(1, i) else end
                if ctx.attr("offset", False) and not has(1, i):
                    end = begin + end
                place += 1
            size = x.shape[axis]
            if stride < 0 and not is_symbolic((begin, size)) and begin < -size:
                begin, end = 0, _END  # nothing is before the first element
            starts.append(begin)
            stops.append(end)
            axes.append(axis)
            every.append(stride)
            axis += 1
    cut = _cut(ctx, x, starts, stops, axes, every)
    for a in dropped:
        if cut.shape[a] != 1:
            raise ShapeError(f"{ctx.label} takes one element of axis {a} of {x.type}, and there is none")
    return ctx.unsqueeze(ctx.squeeze(cut, dropped) if dropped else cut, added) if added or dropped else cut


_END = 2**31 - 1
"""A bound beyond every size."""


def _cut(
    ctx: NodeContext, x: Value, starts: Sequence[int], stops: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Value:
    if not axes:
        return x
    parts = [ctx.shape_tensor(list(numbers)) for numbers in (starts, stops, axes, steps)]
    return one(ctx.onnx("Slice", [x, *parts]))


@tflite_op("PAD", "PADV2", moves=True)
def pad(ctx: NodeContext) -> Value:
    """Import PAD, with zeros, and PADV2, with the number in input 2."""
    x = ctx.input(0)
    value = ctx.const_scalar(2) if ctx.op_type == "PADV2" else _zero(ctx)
    return ctx.pad_zeros(x, pads_of(ctx, x), value)


def pads_of(ctx: NodeContext, x: Value) -> tuple[int, ...]:
    """Return begins, then ends, of the pairs in input 1."""
    pairs = ctx.const_ints(1)
    if len(pairs) != 2 * len(x.shape):
        raise ShapeError(f"{ctx.label} has paddings {pairs} for {x.type}")
    return (*pairs[::2], *pairs[1::2])


@tflite_op("MIRROR_PAD", moves=True)
def mirror_pad(ctx: NodeContext) -> Value:
    """Import MIRROR_PAD: reflected without the outermost elements (REFLECT) or with them (SYMMETRIC)."""
    x, mode = ctx.input(0), ("reflect", "symmetric")[int(ctx.attr("mode", 0))]
    pads, rank = pads_of(ctx, x), len(x.shape)
    for axis in range(rank):
        before, after, size = pads[axis], pads[rank + axis], x.shape[axis]
        if max(before, after) > size - (mode == "reflect"):
            raise ShapeError(f"{ctx.label} pads axis {axis} of {x.type} by {before} and {after}, more than there is")
    return ctx.add(Pad(pads=tuple(int_or_symbolic(p) for p in pads), mode=mode, value=0), [x]) if any(pads) else x


def _reversed(ctx: NodeContext, x: Value, axis: int) -> Value:
    return _cut(ctx, x, [-1], [-_END], [axis], [-1])


@tflite_op("REVERSE_V2", moves=True)
def reverse(ctx: NodeContext) -> Value:
    """Import REVERSE_V2: backward along the axes in input 1."""
    x = ctx.input(0)
    for axis in {normalize_axis(a, len(x.shape)) for a in ctx.const_ints(1)}:
        x = _reversed(ctx, x, axis)
    return x


@tflite_op("REVERSE_SEQUENCE", moves=True)
def reverse_sequence(ctx: NodeContext) -> Value:
    """Import REVERSE_SEQUENCE: the first steps of each batch entry backward; input 1 says how many."""
    x, rank = ctx.input(0), len(ctx.input(0).shape)
    time, batch = (normalize_axis(ctx.attr(n, d), rank) for n, d in (("seq_dim", 0), ("batch_dim", 0)))
    if time == batch:
        raise ShapeError(f"{ctx.label} has axis {time} for both steps and batch")
    perm = [batch, time, *(i for i in range(rank) if i not in (batch, time))]
    moved = one(ctx.onnx("ReverseSequence", [ctx.transpose(x, perm), ctx.input(1)], batch_axis=0, time_axis=1))
    return ctx.transpose(moved, [perm.index(i) for i in range(rank)])


@tflite_op("TILE", moves=True)
def tile(ctx: NodeContext) -> Value:
    """Import TILE: copies along every axis, as many as input 1 says."""
    return one(ctx.onnx("Tile", [ctx.input(0), ctx.input(1)]))


@tflite_op("BROADCAST_TO", moves=True)
def broadcast_to(ctx: NodeContext) -> Value:
    """Import BROADCAST_TO the shape in input 1."""
    return ctx.expand(ctx.input(0), ctx.const_ints(1))


@tflite_op("BROADCAST_ARGS")
def broadcast_args(ctx: NodeContext) -> Value:
    """Import BROADCAST_ARGS: the shape to which two shapes broadcast."""
    return ctx.shape_tensor(broadcast_shape([ctx.const_ints(0), ctx.const_ints(1)]), out_dtype(ctx))


@tflite_op("SHAPE", moves=True, pairs=True)
def shape(ctx: NodeContext) -> Value:
    """Import SHAPE: the sizes of all axes."""
    x = ctx.input(0)
    return ctx.shape_tensor(x.shape[: rank_of(ctx, x)], out_dtype(ctx))


@tflite_op("RANK", moves=True)
def rank(ctx: NodeContext) -> Value:
    """Import RANK: the number of axes."""
    return ctx.scalar(len(ctx.input(0).shape), DType.INT32)


# Blocks of pixels


@tflite_op("DEPTH_TO_SPACE", moves=True)
def depth_to_space(ctx: NodeContext) -> Value:
    """Import DEPTH_TO_SPACE: blocks of channels of x[N,H,W,C] become blocks of pixels."""
    x, b = ctx.input(0), int(ctx.attr("block_size", 1))
    check_rank(ctx, 4, x)
    n, h, w, c = x.shape
    if b < 1 or c % (b * b):
        raise ShapeError(f"{ctx.label} needs channels in blocks of {b * b}, got {x.type}")
    view = ctx.reshape(x, (n, h, w, b, b, c // (b * b)))
    return ctx.reshape(ctx.transpose(view, (0, 1, 3, 2, 4, 5)), (n, h * b, w * b, c // (b * b)))


@tflite_op("SPACE_TO_DEPTH", moves=True)
def space_to_depth(ctx: NodeContext) -> Value:
    """Import SPACE_TO_DEPTH: blocks of pixels of x[N,H,W,C] become blocks of channels."""
    x, b = ctx.input(0), int(ctx.attr("block_size", 1))
    check_rank(ctx, 4, x)
    n, h, w, c = x.shape
    if b < 1 or h % b or w % b:
        raise ShapeError(f"{ctx.label} needs height and width in multiples of {b}, got {x.type}")
    view = ctx.reshape(x, (n, h // b, b, w // b, b, c))
    return ctx.reshape(ctx.transpose(view, (0, 1, 3, 2, 4, 5)), (n, h // b, w // b, c * b * b))


@tflite_op("SPACE_TO_BATCH_ND", moves=True)
def space_to_batch(ctx: NodeContext) -> Value:
    """Import SPACE_TO_BATCH_ND: padded x[N,sizes...,rest...], its blocks moved to the batch axis."""
    x, block = ctx.input(0), ctx.const_ints(1)
    pads, m, rank = ctx.const_ints(2), len(block), len(x.shape)
    _check_blocks(ctx, x, block, pads)
    value = _zero(ctx)
    x = ctx.pad_zeros(x, (0, *pads[::2], *(0,) * (rank - m), *pads[1::2], *(0,) * (rank - m - 1)), value)
    n, sizes, rest = x.shape[0], x.shape[1 : 1 + m], x.shape[1 + m :]
    if any(s % b for s, b in zip(sizes, block, strict=True)):
        raise ShapeError(f"{ctx.label} divides sizes {tuple(sizes)} into blocks of {block}")
    view = [n, *(v for s, b in zip(sizes, block, strict=True) for v in (s // b, b)), *rest]
    order = (*range(2, 2 * m + 1, 2), 0, *range(1, 2 * m + 1, 2), *range(2 * m + 1, len(view)))
    moved = ctx.transpose(ctx.reshape(x, view), order)
    return ctx.reshape(moved, (n * math.prod(block), *(s // b for s, b in zip(sizes, block, strict=True)), *rest))


@tflite_op("BATCH_TO_SPACE_ND", moves=True)
def batch_to_space(ctx: NodeContext) -> Value:
    """Import BATCH_TO_SPACE_ND: parts of the batch axis become blocks, which are then cropped."""
    x, block = ctx.input(0), ctx.const_ints(1)
    crops, m = ctx.const_ints(2), len(block)
    _check_blocks(ctx, x, block, crops)
    n, sizes, rest = x.shape[0], x.shape[1 : 1 + m], x.shape[1 + m :]
    if n % math.prod(block):
        raise ShapeError(f"{ctx.label} divides a batch of {n} into blocks of {block}")
    view = ctx.reshape(x, (*block, n // math.prod(block), *sizes, *rest))
    order = (m, *(v for i in range(m) for v in (m + 1 + i, i)), *range(2 * m + 1, len(view.shape)))
    grown = [s * b for s, b in zip(sizes, block, strict=True)]
    y = ctx.reshape(ctx.transpose(view, order), (n // math.prod(block), *grown, *rest))
    for i in range(m):
        y = ctx.slice_axis(y, 1 + i, crops[2 * i], grown[i] - crops[2 * i + 1])
    return y


def _check_blocks(ctx: NodeContext, x: Value, block: Sequence[int], pads: Sequence[int]) -> None:
    if len(x.shape) <= len(block) or len(pads) != 2 * len(block) or min(block, default=0) < 1:
        raise ShapeError(f"{ctx.label} has blocks {tuple(block)} and borders {tuple(pads)} for {x.type}")


def _zero(ctx: NodeContext) -> int:
    """Return the element that stands for zero in the node's input 0."""
    info = tensors_of(ctx).inputs[0]
    if info is None or info.quantization is None:
        return 0
    if info.quantization.zero_point.size != 1:
        raise unsupported(ctx, "pads a tensor with a zero point for each channel")
    return int(info.quantization.zero_point[0])
