"""Importers of shapes: views, permutations, joining, cutting, padding."""

from __future__ import annotations

import math

from ...errors import ShapeError
from ...ir import DType, Value
from ...ops.data_movement import Slice
from ...ops.operator import normalize_axis
from .common import Found, PaddleNode, paddle_op

# Views


@paddle_op("reshape", "reshape2", "view_shape", operands="x shape", outputs="out xshape")
def reshape(n: PaddleNode) -> Value:
    """Import reshape: 0 keeps a dimension, -1 is inferred."""
    wanted = n.whole("shape_tensor", "shape", "dims")
    return n.emit("Reshape", [n.value("x", "input"), n.shape_tensor(wanted)])


@paddle_op("flatten", "flatten2", "flatten_contiguous_range", outputs="out xshape")
def flatten(n: PaddleNode) -> Value:
    """Import flatten: axes from start_axis to stop_axis become one; older programs give one axis between two others."""
    x = n.value("x")
    if n.attr("start_axis") is None:
        axis = int(n.number("axis", default=1)) % (len(x.shape) + 1)
        return n.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    if not x.shape:
        return n.reshape(x, (1,))
    first, last = (n.axis(len(x.shape), name, default=d) for name, d in (("start_axis", 1), ("stop_axis", -1)))
    return n.reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@paddle_op("squeeze", "squeeze2", operands="x axis", outputs="out xshape")
def squeeze(n: PaddleNode) -> Value:
    """Import squeeze: axes of another size than 1 stay."""
    x = n.value("x")
    given = n.whole("axes", "axis", default=()) or range(len(x.shape))
    axes = {normalize_axis(a, len(x.shape)) for a in given}
    return n.squeeze(x, sorted(a for a in axes if x.shape[a] == 1))


@paddle_op("unsqueeze", "unsqueeze2", operands="x axis", outputs="out xshape")
def unsqueeze(n: PaddleNode) -> Value:
    """Import unsqueeze: inserts the axes one after another."""
    x = n.value("x")
    for axis in n.whole("axes_tensor", "axes_tensor_list", "axes", "axis"):
        x = n.unsqueeze(x, [axis])
    return x


@paddle_op("transpose", "transpose2", outputs="out xshape")
def transpose(n: PaddleNode) -> Value:
    """Import transpose."""
    x = n.value("x")
    perm = [normalize_axis(a, len(x.shape)) for a in n.whole("perm", "axis")]
    if sorted(perm) != list(range(len(x.shape))):
        raise ShapeError(f"{n.label} has the order {perm}, which is no permutation of the axes of {x.type}")
    return n.transpose(x, perm)


# Joining and cutting


@paddle_op("concat", operands="x axis")
def concat(n: PaddleNode) -> Value:
    """Import concat: tensors of different types become the widest."""
    values = n.values("x")
    if not values:
        raise ShapeError(f"{n.label} joins nothing")
    kinds = {v.dtype for v in values}
    if len(kinds) > 1:
        widest = max(kinds, key=lambda d: (d.is_float, d.size))
        values = [n.cast(v, widest) for v in values]
    return n.emit("Concat", values, axis=int(n.number("axis_tensor", "axis", default=0)))


@paddle_op("stack")
def stack(n: PaddleNode) -> Value:
    """Import stack: along a new axis."""
    values = n.values("x")
    axis = n.axis(len(values[0].shape) + 1, "axis", default=0)
    return n.concat([n.unsqueeze(v, [axis]) for v in values], axis)


@paddle_op("unstack", "unbind", outputs="out")
def unstack(n: PaddleNode) -> Found:
    """Import unstack and unbind: every position of an axis."""
    x = n.value("x", "input")
    axis = n.axis(len(x.shape), "axis", default=0)
    return [n.squeeze(v, [axis]) for v in n.split_axis(x, axis, (1,) * n.n_outputs)]


@paddle_op("split", operands="x sections axis")
@paddle_op("split_with_num", operands="x axis")
def split(n: PaddleNode) -> Found:
    """Import split: into pieces of given sizes, one of which may be -1, or into equal ones."""
    x = n.value("x")
    axis = n.axis(len(x.shape), "axis_tensor", "axis", default=0)
    sizes = n.whole("sections_tensor_list", "sections", default=())
    if not sizes:
        if x.shape[axis] % n.n_outputs:
            raise ShapeError(f"{n.label} splits axis {axis} of {x.type} into {n.n_outputs} equal pieces")
        sizes = [x.shape[axis] // n.n_outputs] * n.n_outputs
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = x.shape[axis] - sum(s for s in sizes if s != -1)
    return n.split_axis(x, axis, sizes)


@paddle_op("slice", operands="input starts ends")
def slice_(n: PaddleNode) -> Value:
    """Import slice: ranges of some axes, of which decrease_axis are removed."""
    x = n.value("input", "x")
    axes = n.whole("axes")
    starts = n.whole("starts_tensor", "starts_tensor_list", "starts")
    ends = n.whole("ends_tensor", "ends_tensor_list", "ends")
    given = [n.shape_tensor(v) for v in (starts, ends, axes)]
    out = n.emit("Slice", [x, *given])
    return n.squeeze(out, n.whole("decrease_axis", default=()))


@paddle_op("strided_slice", operands="x starts ends strides")
def strided_slice(n: PaddleNode) -> Value:
    """Import strided_slice: ranges with steps, which may be negative."""
    names = ("starts", "ends", "strides")
    given = [n.whole(f"{name}_tensor", f"{name}_tensor_list", name) for name in names]
    inputs = [n.shape_tensor(v) for v in (given[0], given[1], n.whole("axes"), given[2])]
    out = n.emit("Slice", [n.value("input", "x"), *inputs])
    return n.squeeze(out, n.whole("decrease_axis", default=()))


@paddle_op("crop", "crop_tensor", operands="x shape offsets")
def crop(n: PaddleNode) -> Value:
    """Import crop: a part of a given shape at given offsets; -1 goes to the end."""
    x = n.value("x")
    like = n.maybe("y")
    sizes = list(like.shape) if like is not None else n.whole("shape_tensor", "shape")
    offsets = n.whole("offsets_tensor", "offsets", default=()) or [0] * len(x.shape)
    for axis, (start, size) in enumerate(zip(offsets, sizes, strict=True)):
        x = n.slice_axis(x, axis, start, x.shape[axis] if size == -1 else start + size)
    return x


# Repetition


@paddle_op("expand", "expand_v2", "broadcast_to", operands="x shape")
def expand(n: PaddleNode) -> Value:
    """Import expand: -1 keeps a dimension; in old programs each axis has a number of copies."""
    x = n.value("x")
    times = n.numbers("expand_times_tensor", "expand_times")
    if times is not None:
        return n.emit("Tile", [x, n.shape_tensor(times)])
    wanted = n.whole("shape_tensor", "expand_shapes_tensor", "shape")
    lead = len(wanted) - len(x.shape)
    if lead < 0:
        raise ShapeError(f"{n.label} expands {x.type} to {wanted}, which has fewer axes")
    shape = [x.shape[i - lead] if d == -1 and i >= lead else d for i, d in enumerate(wanted)]
    return n.expand(x, shape)


@paddle_op("expand_as", "expand_as_v2", operands="x y")
def expand_as(n: PaddleNode) -> Value:
    """Import expand_as: to the shape of another tensor."""
    y = n.maybe("y", "target_tensor")
    return n.expand(n.value("x"), n.whole("target_shape") if y is None else y.shape)


@paddle_op("tile", operands="x repeat_times")
def tile(n: PaddleNode) -> Value:
    """Import tile: axes that are missing on one side are added in front."""
    x, times = n.value("x"), n.whole("repeat_times_tensor", "repeat_times")
    rank = max(len(x.shape), len(times))
    x = n.reshape(x, (*(1,) * (rank - len(x.shape)), *x.shape))
    return n.emit("Tile", [x, n.shape_tensor([*(1,) * (rank - len(times)), *times])])


@paddle_op("repeat_interleave")
def repeat_interleave(n: PaddleNode) -> Value:
    """Import repeat_interleave: each position of an axis several times."""
    x, times = n.value("x"), int(n.number("Repeats", "repeats"))
    axis = n.axis(len(x.shape), "dim", "axis", default=0)
    spread = n.expand(n.unsqueeze(x, [axis + 1]), (*x.shape[: axis + 1], times, *x.shape[axis + 1 :]))
    return n.reshape(spread, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))


@paddle_op("meshgrid", operands="inputs")
def meshgrid(n: PaddleNode) -> Found:
    """Import meshgrid: each vector spread over the axes of the others."""
    values = n.values("inputs", "x")
    shape = tuple(v.type.count for v in values)
    return [n.expand(n.along_axis(v, i, len(values)), shape) for i, v in enumerate(values)]


# Order


@paddle_op("flip")
def flip(n: PaddleNode) -> Value:
    """Import flip: axes in reverse."""
    x = n.value("x")
    back = {normalize_axis(a, len(x.shape)) for a in n.whole("axis")}
    op = Slice(
        starts=tuple(d - 1 if i in back else 0 for i, d in enumerate(x.shape)),
        steps=tuple(-1 if i in back else 1 for i in range(len(x.shape))),
        sizes=x.shape,
    )
    return n.add(op, [x])


@paddle_op("roll", operands="x shifts")
def roll(n: PaddleNode) -> Value:
    """Import roll: axes, or the flattened tensor, moved around."""
    x, shifts = n.value("x"), n.whole("shifts_tensor", "shifts")
    axes = n.whole("axis", default=())
    shape = x.shape
    if not axes:
        x, axes = n.reshape(x, (x.type.count,)), [0]
    for shift, given in zip(shifts, axes, strict=True):
        axis = normalize_axis(given, len(x.shape))
        size = x.shape[axis]
        cut = (size - shift % size) % size if size else 0
        if cut:
            x = n.concat([n.slice_axis(x, axis, cut, size), n.slice_axis(x, axis, 0, cut)], axis)
    return n.reshape(x, shape)


@paddle_op("diagonal")
def diagonal(n: PaddleNode) -> Value:
    """Import diagonal: of two axes, as the last axis."""
    return _diagonal(n, n.value("x", "input"))


@paddle_op("trace")
def trace(n: PaddleNode) -> Value:
    """Import trace: the sum of a diagonal."""
    found = _diagonal(n, n.value("x", "input"))
    return n.reduce(found, "sum", [len(found.shape) - 1], keepdims=False)


def _diagonal(n: PaddleNode, x: Value) -> Value:
    rank, offset = len(x.shape), int(n.number("offset", default=0))
    a, b = n.axis(rank, "axis1", default=0), n.axis(rank, "axis2", default=1)
    x = n.transpose(x, [i for i in range(rank) if i not in (a, b)] + [a, b])
    *lead, rows, columns = x.shape
    top, left = max(0, -offset), max(0, offset)
    count = max(0, min(rows - top, columns - left))
    flat = n.reshape(x, (*lead, rows * columns))
    steps = (*(1,) * len(lead), columns + 1)
    op = Slice(starts=(*(0,) * len(lead), top * columns + left), steps=steps, sizes=(*lead, count))
    return n.add(op, [flat])


# Padding


@paddle_op("pad")
def pad(n: PaddleNode) -> Value:
    """Import pad: begin and end of each axis, by a number."""
    pads = n.whole("paddings")
    return n.pad_zeros(n.value("x"), (*pads[::2], *pads[1::2]), float(n.number("pad_value", default=0.0)))


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap", "edge": "edge"}


@paddle_op("pad3d", "pad2d", operands="x paddings")
def pad_image(n: PaddleNode) -> Value:
    """Import pad2d and pad3d: the spatial axes, by a number or by what is there."""
    x = n.value("x")
    given, rank = n.whole("paddings"), len(x.shape)
    mode = _MODES.get(n.text("mode", default="constant"))
    if mode is None:
        raise n.refuse(f"pads by '{n.text('mode')}'; {', '.join(_MODES)} are known")
    # pad3d counts from the last axis, pad2d from the first: left, right, top, bottom; top, bottom, left, right.
    pairs = [(given[i], given[i + 1]) for i in range(0, len(given), 2)]
    pairs = pairs if n.op_type == "pad2d" else pairs[::-1]
    first = 1 if n.channels_last else 2
    begins, ends = [0] * rank, [0] * rank
    for axis, (begin, end) in enumerate(pairs[-(rank - 2) :], first):
        begins[axis], ends[axis] = begin, end
    value = float(n.number("pad_value", "value", default=0.0))
    inputs = [x, n.shape_tensor([*begins, *ends]), n.scalar(value, x)]
    return n.emit("Pad", inputs, mode=mode)


# Queries


@paddle_op("shape", "shape64", operands="input")
def shape(n: PaddleNode) -> Value:
    """Import shape: int32 in a ProgramDesc and by shape, else int64."""
    dims = n.value("input", "x").shape
    return n.shape_tensor(dims, DType.INT64 if n.op_type == "shape64" else DType.INT32)


@paddle_op("numel", "size", operands="x")
def numel(n: PaddleNode) -> Value:
    """Import numel: the number of elements."""
    return n.shape_tensor([n.value("x", "input").type.count], DType.INT64, ())
