"""What moves elements and computes nothing."""

from __future__ import annotations

import math

import numpy as np

from ..builder import Builder, Rejected
from ..draw import Array
from ..registry import operation

ANY = ("i8", "i4", "?", "u1")


def some(b: Builder, rank: int | None = None, least: int = 0) -> str:
    """A tensor of any type, mostly of the graph's own."""
    kinds = [b.dtype] if b.draw.chance(0.85) else [b.dtype, *ANY]
    return b.tensor(kinds, rank, lambda a: a.ndim >= least)


def signed(b: Builder, axis: int, rank: int, since: int = 11) -> int:
    """The axis, counted from the end now and then."""
    return axis - rank if b.opset >= since and b.draw.chance(0.35) else axis


@operation("movement", 2)
def reshape(b: Builder) -> None:
    d, x = b.draw, some(b)
    a = b[x]
    kind = d.between(0, 5)
    if not a.size:
        shape = [0 if i == a.shape.index(0) else n for i, n in enumerate(a.shape)]
    elif kind == 0:
        shape = [-1]
    elif kind == 1 and a.ndim:
        shape = [0] * d.between(0, a.ndim - 1) + [-1]
    elif kind == 2 and a.ndim > 1:
        cut = d.between(1, a.ndim - 1)
        shape = [*a.shape[: cut - 1], a.shape[cut - 1] * a.shape[cut], *a.shape[cut + 1 :]]
    elif kind == 3 and a.ndim:
        i = d.between(0, a.ndim - 1)
        factors = [f for f in range(1, a.shape[i] + 1) if a.shape[i] % f == 0]
        f = d.pick(factors)
        shape = [*a.shape[:i], f, a.shape[i] // f, *a.shape[i + 1 :]]
        if d.chance(0.5):
            shape[d.between(0, len(shape) - 1)] = -1
    else:
        shape = factorise(b, a.size)
    if len(shape) > 7:
        raise Rejected("too many axes")
    b.emit("Reshape", [x, b.ints(shape)])


def factorise(b: Builder, count: int) -> list[int]:
    """A shape of `count` elements."""
    found = []
    while len(found) < 4 and count > 1:
        f = b.draw.pick([f for f in range(1, min(count, 64) + 1) if count % f == 0])
        found.append(f)
        count //= f
    found.insert(b.draw.between(0, len(found)), count)
    return found


@operation("movement", 0.6)
def flatten(b: Builder) -> None:
    x = some(b)
    b.emit("Flatten", [x], axis=b.draw.between(0, b[x].ndim))


@operation("movement", 0.8)
def squeeze(b: Builder) -> None:
    x = b.tensor([b.dtype, "i8"], where=lambda a: 1 in a.shape)
    ones = [signed(b, i, b[x].ndim) for i, n in enumerate(b[x].shape) if n == 1]
    axes = b.draw.subset(ones, least=1)
    if b.draw.chance(0.15):
        b.emit("Squeeze", [x])
    elif b.opset < 13:
        b.emit("Squeeze", [x], axes=axes)
    else:
        b.emit("Squeeze", [x, b.ints(axes)])


@operation("movement", 0.9)
def unsqueeze(b: Builder) -> None:
    d, x = b.draw, some(b)
    rank = b[x].ndim + d.pick([1, 1, 2])
    if rank > 6:
        raise Rejected("too many axes")
    axes = [signed(b, i, rank) for i in d.subset(range(rank), least=rank - b[x].ndim)][: rank - b[x].ndim]
    if b.opset < 13:
        b.emit("Unsqueeze", [x], axes=axes)
    else:
        b.emit("Unsqueeze", [x, b.ints(axes)])


@operation("movement", 2)
def transpose(b: Builder) -> None:
    d, x = b.draw, some(b)
    n = b[x].ndim
    perm = list(range(n))
    if n > 1 and d.chance(0.5):
        i, j = d.between(0, n - 1), d.between(0, n - 1)
        perm[i], perm[j] = perm[j], perm[i]
    else:
        perm = [int(p) for p in d.rng.permutation(n)]
    b.emit("Transpose", [x], perm=perm if perm and d.chance(0.9) else None)


@operation("movement", 2)
def slice_(b: Builder) -> None:
    d, x = b.draw, some(b, least=1)
    axes, starts, ends, steps = [], [], [], []
    for axis in d.subset(range(b[x].ndim), least=1):
        n = b[x].shape[axis]
        axes.append(signed(b, axis, b[x].ndim))
        step = d.pick([1, 1, 1, 2, 3, -1, -2]) if b.opset >= 10 else 1
        low = d.between(0, max(0, n - 1))
        high = d.between(low + 1, n + 2) if d.chance(0.96) else low
        if step < 0:
            starts.append(high - 1 if d.chance(0.7) else d.pick([2**31, -n - d.between(1, 3)]))
            ends.append(low - 1 if low else -(2**31))
        else:
            starts.append(d.pick([low - n, low - n, -n - 2]) if n and d.chance(0.3) else low)
            ends.append(d.pick([high, high, 2**31 - 1, 2**63 - 1]) if high >= n else high)
        steps.append(step)
    if b.opset < 10:
        b.emit("Slice", [x], axes=axes, starts=starts, ends=ends)
        return
    inputs = [x, b.ints(starts), b.ints(ends), b.ints(axes)]
    if d.chance(0.8) or any(s != 1 for s in steps):
        inputs.append(b.ints(steps))
    b.emit("Slice", inputs)


@operation("movement", 2)
def concat(b: Builder) -> None:
    d, x = b.draw, some(b, least=1)
    shape, axis = b[x].shape, d.between(0, b[x].ndim - 1)
    others = []

    def fits(a: Array) -> bool:
        same = a.dtype == b[x].dtype and a.ndim == len(shape)
        return same and all(m == n for i, (m, n) in enumerate(zip(a.shape, shape, strict=True)) if i != axis)

    for _ in range(d.between(0, 3)):
        found = b.find(fits) if d.chance(0.6) else None
        others.append(found or b.operand([d.size() if i == axis else n for i, n in enumerate(shape)], b[x].dtype))
    inputs = [x, *others]
    if d.chance(0.5):
        inputs.reverse()
    b.emit("Concat", inputs, axis=signed(b, axis, len(shape)))


@operation("movement", 1.5)
def split(b: Builder) -> None:
    d, x = b.draw, some(b, least=1)
    axis = d.between(0, b[x].ndim - 1)
    n = b[x].shape[axis]
    at = signed(b, axis, b[x].ndim)
    count = d.between(1, max(1, min(4, n)))
    if d.chance(0.5) and n and (n % count == 0 or b.opset >= 18):
        b.emit_all("Split", [x], count, axis=at, num_outputs=count if b.opset >= 18 else None)
        return
    cuts = sorted(d.between(0, n) for _ in range(count - 1))
    sizes = [e - s for s, e in zip([0, *cuts], [*cuts, n], strict=True)]
    if b.opset < 13:
        b.emit_all("Split", [x], count, axis=at, split=sizes)
    else:
        b.emit_all("Split", [x, b.ints(sizes)], count, axis=at)


@operation("movement", 0.5)
def split_and_join(b: Builder) -> None:
    """Halves that change places, one of them computed with: what nests in the output's memory."""
    d = b.draw
    x = b.real(where=lambda a: any(n % 2 == 0 for n in a.shape))
    axis = d.pick([i for i, n in enumerate(b[x].shape) if n % 2 == 0])
    first, second = b.emit_all("Split", [x], 2, axis=axis, num_outputs=2 if b.opset >= 18 else None)
    if d.chance(0.7):
        first = b.emit(d.pick(["Relu", "Neg", "Sigmoid"]), [first])
    b.emit("Concat", [second, first], axis=axis)


@operation("movement", 1.2)
def pad(b: Builder) -> None:
    d, x = b.draw, some(b, least=1)
    shape = b[x].shape
    modes = ["constant", "constant", "reflect", "edge"] + (["wrap"] if b.opset >= 19 else [])
    mode = d.pick(modes)
    if mode == "constant":
        pads = [d.pick([0, 0, 1, 2, 3]) for _ in range(2 * len(shape))]
        if d.chance(0.15):
            pads = [-1 if n > 3 and p == 0 else p for n, p in zip((*shape, *shape), pads, strict=True)]
        if d.chance(0.08):  # cut off at one end what there is, and some of what is added at the other
            at, extra = d.between(0, len(shape) - 1), d.between(0, 2)
            ends = [at, at + len(shape)]
            if d.chance(0.5):
                ends.reverse()
            pads[ends[0]], pads[ends[1]] = -shape[at] - extra, extra + d.between(0, 2)
    else:
        pads = [min(d.between(0, 2), max(0, n - 1)) for n in (*shape, *shape)]
    if b.opset < 11:
        b.emit("Pad", [x], pads=pads, mode=mode, value=d.pick([None, 1.5]) if mode == "constant" else None)
        return
    inputs = [x, b.ints(pads)]
    if mode == "constant" and d.chance(0.5):
        inputs.append(b.const(d.array([], b[x].dtype)))
    if b.opset >= 18 and d.chance(0.25):
        axes = d.subset(range(len(shape)), least=1)
        short = [pads[i] for i in axes] + [pads[i + len(shape)] for i in axes]
        inputs = [x, b.ints(short), inputs[2] if len(inputs) > 2 else "", b.ints(axes)]
    b.emit("Pad", inputs, mode=mode)


@operation("movement", 0.8)
def tile(b: Builder) -> None:
    x = some(b, least=1)
    b.emit("Tile", [x, b.ints(b.draw.pick([1, 1, 2, 3]) for _ in range(b[x].ndim))])


@operation("movement", 1)
def expand(b: Builder) -> None:
    if not b.has("Expand"):
        raise Rejected("Expand")
    d, x = b.draw, some(b)
    shape = [d.between(1, 4) if n == 1 and d.chance(0.6) else d.pick([n, 1]) for n in b[x].shape]
    while len(shape) < 6 and d.chance(0.25):
        shape.insert(0, d.between(1, 3))
    if math.prod(shape) * b[x].size > 20_000:
        raise Rejected("large")
    b.emit("Expand", [x, b.ints(shape)])


@operation("movement", 0.4)
def trilu(b: Builder) -> None:
    if not b.has("Trilu"):
        raise Rejected("Trilu")
    d, x = b.draw, some(b, least=2)
    b.emit("Trilu", [x, b.const(np.int64(d.between(-3, 3)))] if d.chance(0.6) else [x], upper=d.pick([None, 0, 1]))


@operation("movement", 0.3)
def reverse_sequence(b: Builder) -> None:
    if not b.has("ReverseSequence"):
        raise Rejected("ReverseSequence")
    d, x = b.draw, b.real(where=lambda a: a.ndim >= 2 and a.size > 0)
    time = d.between(0, 1)
    lengths = b.const(d.array([b[x].shape[1 - time]], "i8", 1, b[x].shape[time]), 0.05)
    b.emit("ReverseSequence", [x, lengths], time_axis=time, batch_axis=1 - time)


@operation("movement", 0.4)
def shuffle_channels(b: Builder) -> None:
    x = b.real(4, lambda a: a.shape[1] % 2 == 0 and a.size > 0)
    n, c, h, w = b[x].shape
    y = b.emit("Reshape", [x, b.ints([n, 2, c // 2, h, w], 0.0)])
    y = b.emit("Transpose", [y], perm=[0, 2, 1, 3, 4])
    b.emit("Reshape", [y, b.ints([n, c, h, w], 0.0)])
