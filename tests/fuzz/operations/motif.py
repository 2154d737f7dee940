"""What rewrites look for: neighbours that a pass joins, moves or takes away, and now and then what is in its way."""

from __future__ import annotations

import math

import numpy as np

from onnx import helper

from ..builder import Builder, Rejected
from ..registry import operation
from .movement import signed
from .product import scaled

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Sin")


def turned(b: Builder, x: str, perm: list[int] | None = None) -> str:
    rank = b[x].ndim
    return b.emit("Transpose", [x], perm=[int(p) for p in b.draw.rng.permutation(rank)] if perm is None else perm)


def reshaped(b: Builder, x: str, shape: list[int]) -> str:
    return b.emit("Reshape", [x, b.ints(shape, 0.0)])


def sliced(b: Builder, x: str, axis: int, start: int, end: int) -> str:
    if b.opset < 10:
        return b.emit("Slice", [x], axes=[axis], starts=[start], ends=[end])
    return b.emit("Slice", [x, b.ints([start], 0.0), b.ints([end], 0.0), b.ints([axis], 0.0)])


def read_again(b: Builder, x: str) -> None:
    """A second reader, which keeps a pass from taking `x` away."""
    if b.draw.chance(0.25):
        b.emit(b.draw.pick(ACTIVATIONS), [x])


@operation("motif", 1)
def scaled_conv(b: Builder) -> None:
    """A convolution and what scales and shifts its channels, by numbers that may be none."""
    d = b.draw
    axes, transposed = d.pick([1, 2, 2, 3]), d.chance(0.3)
    channels, out, group = d.pick([1, 2, 3, 4]), d.pick([1, 2, 4, 5, 8]), 1
    if d.chance(0.3):
        group = channels
        out = group * d.pick([1, 2])
    sizes = [d.between(3, 9) for _ in range(axes)]
    special, d.special = d.special, 0.0  # sums of what is not finite run in an order of their own
    x = b.operand([d.between(1, 2), channels, *sizes])
    d.special = special
    kernel = [d.pick([1, 2, 3]) for _ in range(axes)]
    w = [channels, out // group, *kernel] if transposed else [out, channels // group, *kernel]
    weights = b[b.weight(w, 1 / math.sqrt(channels * math.prod(kernel)))].copy()
    if d.chance(0.3):
        weights[d.rng.random(weights.shape) < 0.5] = 0
    inputs = [x, b.const(weights, 0.1)] + ([b.weight([out])] if d.chance(0.5) else [])
    y = b.emit("ConvTranspose" if transposed else "Conv", inputs, group=group if group > 1 else None)
    shape = [out, *[1] * axes]
    for _ in range(d.between(1, 3)):
        read_again(b, y)
        op = d.pick(["Mul", "Mul", "Div", "Add", "Sub"])
        numbers = d.array(d.pick([shape, shape, [1, *shape], [], [1]]), b.dtype, 0.3, 2.0)
        if b.special and d.chance(0.6):
            numbers.reshape(-1)[d.between(0, numbers.size - 1)] = d.pick([np.inf, -np.inf, np.nan, 0.0])
        c = b.const(numbers, 0.1)
        y = b.emit(op, [y, c] if op in ("Div", "Mul") or d.chance(0.6) else [c, y])
    if d.chance(0.4):
        b.emit(d.pick(ACTIVATIONS), [y])


@operation("motif", 1)
def epilogue(b: Builder) -> None:
    """A layer and a chain of elementwise operators behind, with operands of all shapes that broadcast."""
    d = b.draw
    kind = d.pick(["conv", "matmul", "pool", "reduce", "softmax", "norm"])
    if kind in ("conv", "pool"):
        x = b.calm(4, lambda a: 0 < a.size <= 4000)
        c = b[x].shape[1]
        if kind == "conv":
            k = d.pick([1, 3])
            y = b.emit(
                "Conv", [x, b.weight([d.pick([1, 4, 5, 8]), c, k, k], 1 / (k * math.sqrt(c)))], pads=[k // 2] * 4
            )
        else:
            y = b.emit(d.pick(["MaxPool", "AveragePool"]), [x], kernel_shape=[d.pick([1, 2, 3])] * 2, pads=[0, 0, 1, 1])
    elif kind == "matmul":
        x = b.calm(where=lambda a: a.ndim >= 2 and 0 < a.size <= 4000)
        y = b.emit("MatMul", [x, scaled(b, [b[x].shape[-1], d.pick([1, 3, 8, 17])], b[x].shape[-1])])
    else:
        x = b.calm(where=lambda a: a.ndim >= 1 and 0 < a.size <= 4000)
        if kind == "reduce":
            op = d.pick(["ReduceMax", "ReduceSum", "ReduceMean"])
            if b.opset >= (13 if op == "ReduceSum" else 18):
                y = b.emit(op, [x, b.ints([-1], 0.0)])
            else:
                y = b.emit(op, [x], axes=[b[x].ndim - 1])
        elif kind == "softmax":
            y = b.emit("Softmax", [x], axis=b[x].ndim - 1)
        else:
            y = b.emit("LpNormalization", [x], axis=b[x].ndim - 1)
    for _ in range(d.between(1, 4)):
        read_again(b, y)
        if d.chance(0.4):
            y = b.emit(d.pick(ACTIVATIONS), [y])
        else:
            other = b.partner(y)
            y = b.emit(d.pick(["Add", "Mul", "Sub"]), [y, other] if d.chance(0.7) else [other, y])


@operation("motif", 1)
def moved_about(b: Builder) -> None:
    """Movements in a row, some of which undo others, with a function between."""
    d = b.draw
    x = b.real(where=lambda a: a.ndim >= 2 and 0 < a.size <= 4000)
    for _ in range(d.between(2, 5)):
        shape = list(b[x].shape)
        kind = d.between(0, 7)
        axis = d.between(0, len(shape) - 1)
        if kind < 2:
            perm = [int(p) for p in d.rng.permutation(len(shape))]
            y = turned(b, x, perm)
            if d.chance(0.4):
                read_again(b, y)
                y = turned(
                    b,
                    b.emit(d.pick(ACTIVATIONS), [y]) if d.chance(0.5) else y,
                    [perm.index(i) for i in range(len(perm))],
                )
        elif kind == 2:
            y = reshaped(b, x, [-1] if d.chance(0.3) else [math.prod(shape[:axis]), -1])
            if d.chance(0.6):
                y = reshaped(b, b.emit(d.pick(ACTIVATIONS), [y]) if d.chance(0.5) else y, shape)
        elif kind == 3:
            start = d.between(0, shape[axis] - 1)
            y = sliced(b, x, axis, start, d.between(start + 1, shape[axis]))
        elif kind == 4:
            cut = d.between(0, shape[axis])
            y = b.emit("Concat", [sliced(b, x, axis, cut, 2**31 - 1), sliced(b, x, axis, 0, cut)], axis=axis)  # a roll
        elif kind == 5:
            y = b.emit("Concat", [x, b.emit(d.pick(ACTIVATIONS), [x]) if d.chance(0.5) else x], axis=axis)
        elif kind == 6:
            y = reshaped(b, x, [*shape[:axis], 1, *shape[axis:]])
            if d.chance(0.5) and len(shape) < 6:
                y = turned(b, y)
        else:
            y = b.emit(d.pick(ACTIVATIONS), [x])
        if b[y].ndim > 6 or not b[y].size:
            raise Rejected("beyond what goes on")
        read_again(b, x)
        x = y


@operation("motif", 0.5)
def pooled_features(b: Builder) -> None:
    """What is left of an image's channels, through a product and shapes with axes of one element."""
    d = b.draw
    n, c = d.pick([1, 1, 2]), d.pick([4, 8, 3, 5, 16])
    if d.chance(0.5):
        x = b.emit(
            d.pick(["GlobalAveragePool", "GlobalMaxPool"]), [b.operand([n, c, d.between(1, 5), d.between(1, 5)])]
        )
    else:
        x = b.operand([n, c, 1, d.pick([1, 1, 2, 4])])
    k = b[x].shape[3]
    y = b.emit("MatMul", [x, scaled(b, d.pick([[k], [k, 1], [k, 4]]), k)])
    read_again(b, y)
    if d.chance(0.5):
        y = b.emit(d.pick(ACTIVATIONS), [y])
    if d.chance(0.5):
        y = b.emit("Flatten", [y], axis=1)
    if d.chance(0.5):
        b.emit("Mul", [b.operand([n, c, d.between(1, 3), d.between(1, 3)]), reshaped(b, y, [n, -1, 1, 1])])


@operation("motif", 0.7)
def turned_then_smaller(b: Builder) -> None:
    """A Transpose whose reader makes less of it: a sum, a part, a choice."""
    d = b.draw
    x = b.calm(where=lambda a: a.ndim >= 2 and 0 < a.size <= 4000)
    y = turned(b, x)
    read_again(b, y)
    axis, kind = d.between(0, b[y].ndim - 1), d.between(0, 3)
    n = b[y].shape[axis]
    if kind == 0:
        op = d.pick(["ReduceMax", "ReduceMean", "ReduceL2"])
        keep = d.pick([None, 0])
        if b.opset >= 18:
            b.emit(op, [y, b.ints([axis], 0.0)], keepdims=keep)
        else:
            b.emit(op, [y], axes=[axis], keepdims=keep)
    elif kind == 1:
        start = d.between(0, n - 1)
        b.emit(d.pick(ACTIVATIONS), [sliced(b, y, axis, start, d.between(start + 1, n))])
    elif kind == 2:
        index = d.array(d.pick([[], [1], [2]]), "i8", 0, n - 1)
        b.emit("Gather", [y, b.const(index, 0.0)], axis=signed(b, axis, b[y].ndim))
    else:
        parts = [b.emit("Softmax", [y], axis=b[y].ndim - 1), y]
        b.emit("Add", parts)


@operation("motif", 0.8)
def nothing_done(b: Builder) -> None:
    """What changes nothing, or nearly: sums with 0, products with 1, pads of 0, whole slices, casts to the own type."""
    d, t = b.draw, b.dtype.type
    x = b.real(where=lambda a: a.ndim >= 1 and 0 < a.size <= 4000)
    rank = b[x].ndim
    for _ in range(d.between(1, 3)):
        shape = list(b[x].shape)
        kind = d.between(0, 9)
        if kind == 0:
            x = b.emit(d.pick(["Add", "Sub"]), [x, b.const(np.zeros(d.pick([[], [1], shape]), b.dtype), 0.0)])
        elif kind == 1:
            x = b.emit(d.pick(["Mul", "Div"]), [x, b.const(np.ones(d.pick([[], [1], shape]), b.dtype), 0.0)])
        elif kind == 2:
            grown = [1 if d.chance(0.3) else 0 for _ in shape]
            pads = [0] * (2 * rank) if d.chance(0.6) else [*grown, *grown]
            x = b.emit("Pad", [x], pads=pads) if b.opset < 11 else b.emit("Pad", [x, b.ints(pads, 0.0)])
        elif kind == 3:
            x = sliced(b, x, rank - 1, 0, 2**31 - 1)
        elif kind == 4:
            x = turned(b, x, list(range(rank)))
        elif kind == 5:
            x = reshaped(b, x, shape)
        elif kind == 6:
            x = b.emit("Cast", [x], to={"f4": 1, "f2": 10, "f8": 11}[b.dtype.str[1:]])
        elif kind == 7:
            x = b.emit("Concat", [x], axis=0)
        elif kind == 8:
            x = b.emit("Max", [x, b.const(t(-np.inf), 0.0)]) if b.opset >= 8 else b.emit("Identity", [x])
        else:
            x = b.emit(d.pick(["Identity", "Dropout"]), [x])
    if d.chance(0.5):
        b.emit(d.pick(ACTIVATIONS), [x])


@operation("motif", 0.8)
def heads_of_one_product(b: Builder) -> None:
    """Queries, keys and values cut out of one product, as vision transformers have them."""
    d = b.draw
    n, rows, heads, width = d.between(1, 2), d.pick([1, 4, 7, 16]), d.pick([1, 2, 4]), d.pick([2, 4, 8])
    wide = heads * width
    x = b.operand([n, rows, wide])
    y = b.emit("MatMul", [x, b.weight([wide, 3 * wide], wide**-0.5)])
    if d.chance(0.5):
        y = b.emit("Add", [y, b.weight([3 * wide])])
    how = d.between(0, 2)
    if how == 0:  # [3, N, heads, rows, width], and one of three by index
        y = turned(b, reshaped(b, y, [n, rows, 3, heads, width]), [2, 0, 3, 1, 4])
        q, k, v = (b.emit("Gather", [y, b.const(np.int64(i), 0.0)], axis=0) for i in range(3))
    else:
        if how == 1:
            parts = [sliced(b, y, 2, i * wide, (i + 1) * wide) for i in range(3)]
        else:
            parts = b.emit_all("Split", [y], 3, axis=2, num_outputs=3 if b.opset >= 18 else None)
        q, k, v = (turned(b, reshaped(b, p, [n, rows, heads, width]), [0, 2, 1, 3]) for p in parts)
    read_again(b, q)
    if d.chance(0.7):
        q = b.emit("Mul", [q, b.const(b.dtype.type(width**-0.5), 0.0)])
    scores = b.emit("MatMul", [q, turned(b, k, [0, 1, 3, 2])])
    if d.chance(0.4):
        hidden = np.triu(np.ones([rows, rows], bool), 1)
        if b.special:
            hidden[d.between(0, rows - 1)] = True
        mask = np.where(hidden, -np.inf if b.special else d.pick([-1e4, -100.0]), 0)
        scores = b.emit("Add", [scores, b.const(mask.astype(b.dtype), 0.2)])
    read_again(b, scores)
    y = b.emit("MatMul", [b.emit("Softmax", [scores], axis=-1 if b.opset >= 11 else 3), v])
    y = reshaped(b, turned(b, y, [0, 2, 1, 3]), [n, rows, wide])
    b.emit("MatMul", [y, b.weight([wide, d.pick([1, 4, wide])], wide**-0.5)])


@operation("motif", 0.7)
def requantised(b: Builder) -> None:
    """Integers brought to floats, a function or a movement, and back to integers: what may stay in integers."""
    if b.opset < 13:
        raise Rejected("DequantizeLinear")
    d = b.draw
    kind = d.pick(["u1", "i1"])
    low = 0 if kind == "u1" else -128
    q = b.input(d.array(d.shape(d.pick([2, 3, 4]), most=600), kind, low, low + 255))
    if not b[q].size:
        raise Rejected("nothing")

    def scale_and_zero() -> list[str]:
        return [b.const(d.array([], "f4", 0.02, 0.1), 0.0), b.const(d.array([], kind, low + 120, low + 140), 0.0)]

    for _ in range(d.between(1, 3)):
        one = scale_and_zero()
        x = b.emit("DequantizeLinear", [q, *one])
        what = d.between(0, 5)
        if what == 0:
            x = b.emit(d.pick(["Relu", "Sigmoid", "HardSigmoid"]), [x])
        elif what == 1:
            x = turned(b, x)
        elif what == 2 and b[x].ndim == 4:
            x = b.emit(d.pick(["MaxPool", "AveragePool"]), [x], kernel_shape=[2, 2], pads=[0, 0, 1, 1])
        elif what == 3:
            x = b.emit("Add", [x, b.emit("DequantizeLinear", [q, *scale_and_zero()])])
        elif what == 4:
            x = b.emit("Concat", [x, x], axis=0)
        read_again(b, x) if b.dtype == np.float32 else None
        q = b.emit("QuantizeLinear", [x, *(one if d.chance(0.5) else scale_and_zero())])
    b.emit("DequantizeLinear", [q, *scale_and_zero()])


@operation("motif", 0.6)
def layers_of_nothing(b: Builder) -> None:
    """Layers that have nothing to compute beside one that has."""
    d = b.draw
    n, c, size = d.pick([0, 0, 1]), d.pick([1, 3, 4]), d.pick([0, 5, 8])
    if n and size:
        n = 0
    x = b.input(np.zeros([n, c, size, size], b.dtype))
    kind = d.between(0, 6)
    out = d.pick([1, 4, 5])
    if kind == 6 and b.opset >= 13:
        dequantised_product_of_nothing(b)
        return
    if kind == 0:
        y = b.emit("Conv", [x, b.weight([out, c, 3, 3], 0.3)], pads=[1, 1, 1, 1])
    elif kind == 1:
        y = b.emit("ConvTranspose", [x, b.weight([c, out, 2, 2], 0.3)])
    elif kind == 2:
        y = b.emit(d.pick(["MaxPool", "AveragePool"]), [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    elif kind == 3:
        y = b.emit("MatMul", [x, b.weight([size, out], 0.3)]) if size else b.emit("Softmax", [x], axis=1)
    elif kind == 4:
        y = b.emit("Hardmax" if d.chance(0.5) else "Softmax", [x], axis=d.between(0, 3))
    else:
        y = b.emit("BatchNormalization", [x, *(b.const(d.array([c], b.dtype, 0.5, 1), 0.0) for _ in range(4))])
    if d.chance(0.6):
        y = b.emit(d.pick(ACTIVATIONS), [y])
    other = b.emit(d.pick(ACTIVATIONS), [b.operand([d.between(1, 4), *b[y].shape[1:-1], 1])])
    if d.chance(0.5) and n == 0:
        b.emit("Concat", [x, b.operand([2, *b[x].shape[1:]])], axis=0)
    b.emit("Add", [sliced(b, other, 0, 0, 1), y])


def dequantised_product_of_nothing(b: Builder) -> None:
    """Rows times a matrix without columns, both of integers brought to floats."""
    d = b.draw
    k = d.between(1, 9)
    s, z = b.const(np.float32(0.05), 0.0), b.const(np.uint8(d.between(100, 140)), 0.0)
    q = b.input(d.array([d.between(1, 5), k], "u1", 0, 255))
    w = b.const(np.zeros([k, 0], "u1"), 0.0)
    b.emit("MatMul", [b.emit("DequantizeLinear", [v, s, z]) for v in (q, w)])


@operation("motif", 0.3)
def concat_of_nothing(b: Builder) -> None:
    """Tensors without elements, whose other sizes may differ; as inputs, for known shapes have to fit."""
    d = b.draw
    shape = d.shape(d.between(2, 4), most=300)
    empty, axis = d.between(0, len(shape) - 1), d.between(0, len(shape) - 1)
    parts = []
    for _ in range(d.between(2, 3)):
        sizes = [0 if i == empty else n if d.chance(0.5) else d.between(1, 7) for i, n in enumerate(shape)]
        parts.append(b.input(np.zeros(sizes, b.dtype)))
    b.untold.update(parts)
    y = b.name("v")
    b.add([helper.make_node("Concat", parts, [y], name=f"Concat_{y}", axis=axis)], [y], declared=False)
