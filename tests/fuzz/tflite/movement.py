"""Operators that move elements of any type."""

from __future__ import annotations

import numpy as np

from .graph import Builder, Val, generator


def moved(
    b: Builder, name: str, x: Val, *rest: Val | None, options: str = "", count: int = 1, **fields: object
) -> list[Val]:
    """An operator whose outputs have the type, scale and zero point of its first input."""
    return b.op(name, [x, *rest], [(x.dtype, x.quant)] * count, options, **fields)


@generator("movement")
def reshape(b: Builder) -> object:
    x = b.any()
    count = int(np.prod(x.shape))
    divisors = [d for d in range(1, count + 1) if count % d == 0]
    first = b.pick(divisors)
    target = b.pick(((-1,), (first, -1), (1, first, count // first), (count // first, 1, -1), x.shape[::-1]))
    return moved(b, "RESHAPE", x, b.ints(target), options="ReshapeOptions", NewShape=list(target))


@generator("movement")
def squeeze_expand(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank < 5)
    if 1 in x.shape and b.chance(0.5):
        axes = [i for i, d in enumerate(x.shape) if d == 1]
        chosen = axes if b.chance(0.5) else [b.pick(axes)]
        return moved(b, "SQUEEZE", x, options="SqueezeOptions", SqueezeDims=chosen if b.chance(0.8) else [])
    return moved(b, "EXPAND_DIMS", x, b.ints([b.axis(x.rank + 1)]), options="ExpandDimsOptions")


@generator("movement", 2)
def transpose(b: Builder) -> object:
    x = b.any(rank=(2, 3, 4, 5))
    return moved(b, "TRANSPOSE", x, b.ints(b.rng.permutation(x.rank)), options="TransposeOptions")


@generator("movement", 2)
def concatenation(b: Builder) -> object:
    x = b.any()
    axis = b.axis(x.rank)
    parts = [x]
    for _ in range(int(b.rng.integers(1, 4))):
        other = list(x.shape)
        other[axis] = b.size()
        quant = x.quant
        if x.dtype == "uint8" and b.chance(0.5):
            quant = b.quant("uint8", x.scale)
        part = b.new(x.dtype, other, quant) if b.chance(0.6) else b.const(b.numbers(x.dtype, other), quant)
        parts.append(part)
    quant = b.quant("uint8", x.scale) if x.dtype == "uint8" and b.chance(0.5) else x.quant
    order = b.rng.permutation(len(parts))
    fields = {"Axis": axis, "FusedActivationFunction": 0}
    return b.op("CONCATENATION", [parts[i] for i in order], [(x.dtype, quant)], "ConcatenationOptions", **fields)


@generator("movement")
def slice_(b: Builder) -> object:
    x = b.any()
    begin = [int(b.rng.integers(d)) for d in x.shape]
    size = [-1 if b.chance(0.3) else int(b.rng.integers(1, d - s + 1)) for d, s in zip(x.shape, begin, strict=True)]
    return moved(b, "SLICE", x, b.ints(begin), b.ints(size), options="SliceOptions")


@generator("movement", 2)
def strided_slice(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank <= 5)
    strides = [int(b.pick((1, 1, 2, 3, -1, -2))) for _ in x.shape]
    begin = [int(b.rng.integers(-d - 1, d + 2)) for d in x.shape]
    end = [int(b.rng.integers(-d - 1, d + 2)) for d in x.shape]
    masks = {k: int(b.rng.integers(1 << x.rank)) for k in ("BeginMask", "EndMask")}
    shrinks = b.chance(0.3) and 0 not in x.shape  # an axis without elements has none to pick
    masks["ShrinkAxisMask"] = int(b.rng.integers(1 << x.rank)) if shrinks else 0
    for i, d in enumerate(x.shape):
        if masks["ShrinkAxisMask"] >> i & 1:
            strides[i], begin[i] = 1, int(b.rng.integers(-d, d))
            end[i] = begin[i] + 1 if begin[i] != -1 else d
    masks["NewAxisMask"] = 1 << int(b.rng.integers(x.rank)) if b.chance(0.1) and not masks["ShrinkAxisMask"] else 0
    parts = (b.ints(begin), b.ints(end), b.ints(strides))
    return moved(b, "STRIDED_SLICE", x, *parts, options="StridedSliceOptions", **masks, EllipsisMask=0)


@generator("movement")
def split(b: Builder) -> object:
    x = b.any(fits=lambda v: max(v.shape, default=0) > 1)
    axis = b.pick([i for i, d in enumerate(x.shape) if d > 1])
    d = x.shape[axis]
    if b.chance(0.5):
        n = b.pick([n for n in range(1, d + 1) if d % n == 0])
        where = b.ints(axis - x.rank if b.chance(0.3) else axis)
        return b.op("SPLIT", [where, x], [(x.dtype, x.quant)] * n, "SplitOptions", NumSplits=n)
    first = int(b.rng.integers(1, d))
    sizes = [first, -1 if b.chance(0.3) else d - first]
    return moved(b, "SPLIT_V", x, b.ints(sizes), b.ints(axis), options="SplitVOptions", count=2, NumSplits=2)


@generator("movement")
def pack_unpack(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank < 5)
    if x.rank and x.shape[0] < 6 and b.chance(0.5):
        return moved(b, "UNPACK", x, options="UnpackOptions", count=x.shape[0], Num=x.shape[0], Axis=0)
    parts = [x, *(b.const(b.numbers(x.dtype, x.shape), x.quant) for _ in range(int(b.rng.integers(1, 3))))]
    axis = b.axis(x.rank + 1)
    return b.op("PACK", parts, [(x.dtype, x.quant)], "PackOptions", ValuesCount=len(parts), Axis=axis)


@generator("movement")
def gather(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank <= 4)
    axis = b.axis(x.rank)
    index = b.rng.integers(0, x.shape[axis], b.shape(int(b.rng.integers(1, 3))))
    kind = b.pick(("int32", "int64"))
    at = b.new(kind, index.shape, data=index) if b.chance(0.3) else b.ints(index, kind)
    return moved(b, "GATHER", x, at, options="GatherOptions", Axis=axis, BatchDims=0)


@generator("movement")
def gather_nd(b: Builder) -> object:
    x = b.any(rank=(1, 2, 3, 4))
    depth = int(b.rng.integers(1, x.rank + 1))
    index = np.stack([b.rng.integers(0, d, (3, 2)) for d in x.shape[:depth]], -1)
    return moved(b, "GATHER_ND", x, b.ints(index), options="GatherNdOptions")


@generator("movement", 2)
def pad(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank <= 4)
    pads = b.ints(b.rng.integers(0, 3, (x.rank, 2)))
    kind = b.pick(("PAD", "PAD", "PADV2", "MIRROR_PAD"))
    if kind == "PADV2":
        return moved(b, kind, x, pads, b.const(b.numbers(x.dtype, (1,)), x.quant), options="PadV2Options")
    if kind == "MIRROR_PAD":
        most = [min(2, d - 1) for d in x.shape]
        near = b.ints([[int(b.rng.integers(m + 1)) for _ in range(2)] for m in most])
        return moved(b, kind, x, near, options="MirrorPadOptions", Mode=int(b.rng.integers(2)))
    return moved(b, kind, x, pads, options="PadOptions")


@generator("movement")
def tile(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank <= 4)
    if b.chance(0.4):
        shape = [int(b.rng.integers(1, 4)) if d == 1 else d for d in x.shape]
        return moved(
            b,
            "BROADCAST_TO",
            x,
            b.ints([*([2] if b.chance(0.3) else []), *shape]),
            options="BroadcastToOptions",
            version=2,
        )
    return moved(b, "TILE", x, b.ints([int(b.rng.integers(1, 3)) for _ in x.shape]), options="TileOptions")


@generator("movement")
def space_depth(b: Builder) -> object:
    n = b.pick((2, 3))
    if b.chance(0.5):
        x = b.value(b.any().dtype, 4, lambda v: v.shape[1] % n == 0 == v.shape[2] % n)
        return moved(b, "SPACE_TO_DEPTH", x, options="SpaceToDepthOptions", BlockSize=n)
    x = b.value(b.any().dtype, 4, lambda v: v.shape[3] % (n * n) == 0)
    return moved(b, "DEPTH_TO_SPACE", x, options="DepthToSpaceOptions", BlockSize=n)


@generator("movement")
def space_batch(b: Builder) -> object:
    x = b.any(rank=(3, 4))
    block = [int(b.rng.integers(1, 3)) for _ in range(x.rank - 2)]
    if b.chance(0.5) or x.shape[0] % int(np.prod(block)):
        pads = [[int(b.rng.integers(3)), 0] for _ in block]
        for i, (n, p) in enumerate(zip(block, pads, strict=True)):
            p[1] = -(x.shape[1 + i] + p[0]) % n
        return moved(b, "SPACE_TO_BATCH_ND", x, b.ints(block), b.ints(pads), options="SpaceToBatchNDOptions")
    crops = [[int(b.rng.integers(2)), 0] if n * d > 1 else [0, 0] for n, d in zip(block, x.shape[1:], strict=False)]
    return moved(b, "BATCH_TO_SPACE_ND", x, b.ints(block), b.ints(crops), options="BatchToSpaceNDOptions")


@generator("movement")
def reverse(b: Builder) -> object:
    x = b.any(rank=(1, 2, 3, 4))
    if x.rank > 1 and b.chance(0.3):
        lengths = b.ints(b.rng.integers(1, x.shape[1] + 1, x.shape[0]))
        return moved(b, "REVERSE_SEQUENCE", x, lengths, options="ReverseSequenceOptions", SeqDim=1, BatchDim=0)
    return moved(b, "REVERSE_V2", x, b.ints([int(b.rng.integers(x.rank))]), options="ReverseV2Options")


@generator("movement")
def select(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank <= 4 and np.prod(v.shape) > 1)  # LiteRT makes scalars of single elements
    y = b.const(b.numbers(x.dtype, x.shape), x.quant)
    name = b.pick(("SELECT", "SELECT_V2"))
    shape = x.shape if name == "SELECT" or b.chance(0.5) else [d if b.chance(0.5) else 1 for d in x.shape]
    condition = b.new("bool", shape)
    options = {"SELECT": "SelectOptions", "SELECT_V2": "SelectV2Options"}[name]
    return b.op(name, [condition, x, y], [(x.dtype, x.quant)], options)


@generator("movement")
def scatter(b: Builder) -> object:
    x = b.any(rank=(2, 3))
    if b.chance(0.5):
        rows = int(b.rng.integers(x.shape[0], x.shape[0] + 4))
        at = b.ints(b.rng.permutation(rows)[: x.shape[0], None])
        shape = b.ints([rows, *x.shape[1:]])
        return b.op("SCATTER_ND", [at, x, shape], [(x.dtype, x.quant)], "ScatterNdOptions")
    part = tuple(int(b.rng.integers(1, d + 1)) for d in x.shape)
    start = [int(b.rng.integers(d - p + 1)) for d, p in zip(x.shape, part, strict=True)]
    update = b.const(b.numbers(x.dtype, part), x.quant)
    return moved(b, "DYNAMIC_UPDATE_SLICE", x, update, b.ints(start), options="DynamicUpdateSliceOptions")


@generator("movement")
def arg_top(b: Builder) -> object:
    x = b.value(("float32", "int8", "uint8"), (1, 2, 3, 4))
    if b.chance(0.3):
        k = int(b.rng.integers(1, x.shape[-1] + 1))
        outs = [(x.dtype, x.quant), ("int32", None)]
        return b.op("TOPK_V2", [x, b.ints(k)], outs, "TopKV2Options")
    name = b.pick(("ARG_MAX", "ARG_MIN"))
    options = "ArgMaxOptions" if name == "ARG_MAX" else "ArgMinOptions"
    return b.op(name, [x, b.ints(b.axis(x.rank))], [("int32", None)], options, OutputType=2)


@generator("movement")
def extremes(b: Builder) -> object:
    x = b.any(fits=lambda v: v.rank <= 4)
    if b.chance(0.5):
        axes = sorted({b.axis(x.rank) % x.rank for _ in range(2)})
        name = b.pick(("REDUCE_MAX", "REDUCE_MIN"))
        return moved(b, name, x, b.ints(axes), options="ReducerOptions", KeepDims=b.chance(0.5))
    y = b.const(b.numbers(x.dtype, [d if b.chance(0.7) else 1 for d in x.shape]), x.quant)
    return moved(b, b.pick(("MAXIMUM", "MINIMUM")), x, y, options="MaximumMinimumOptions")


@generator("movement")
def nearest(b: Builder) -> object:
    x = b.value(("float32", "int8", "uint8", "int16"), 4)
    size = b.ints([b.size(), b.size()])
    ways = b.pick(((False, False), (True, False), (False, True)))
    fields = {"AlignCorners": ways[0], "HalfPixelCenters": ways[1]}
    return moved(b, "RESIZE_NEAREST_NEIGHBOR", x, size, options="ResizeNearestNeighborOptions", **fields)


@generator("movement")
def max_pool(b: Builder) -> object:
    x = b.value(("float32", "int8", "uint8", "int16"), 4)
    return moved(b, "MAX_POOL_2D", x, options="Pool2DOptions", **pool_fields(b, x))


def pool_fields(b: Builder, x: Val) -> dict[str, object]:
    h, w = (int(b.rng.integers(1, min(4, d) + 1)) for d in x.shape[1:3])
    strides = {"StrideH": int(b.rng.integers(1, 4)), "StrideW": int(b.rng.integers(1, 4))}
    activation = int(b.pick((0, 0, 1, 3)))
    return {"Padding": int(b.rng.integers(2)), **strides, "FilterHeight": h, "FilterWidth": w,
            "FusedActivationFunction": activation}  # fmt: skip


@generator("movement", 0.5)
def facts(b: Builder) -> object:
    x = b.any()
    if b.chance(0.5):
        return b.op("SHAPE", [x], [("int32", None)], "ShapeOptions", OutType=2)
    return moved(b, "ZEROS_LIKE", b.value(("float32", "int32")), options="ZerosLikeOptions")
