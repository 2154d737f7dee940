"""What passes that bring movements together look for: rows rolled into windows, pictures turned and turned back."""

from __future__ import annotations

import math

from ..builder import Builder
from ..registry import operation
from .motif import ACTIVATIONS, read_again, reshaped, sliced, turned


@operation("motif", 1)
def rolled_windows(b: Builder) -> None:
    """Rows of a picture, rolled, in windows, computed on, and back where they were: movements that passes join."""
    d = b.draw
    n, side, c = d.between(1, 2), d.pick([2, 3]), d.pick([4, 8, 16, 20])
    h, w, shift = side * d.between(1, 3), side * d.between(1, 3), d.between(0, side - 1)
    x = b.operand([n, h, w, c])
    y = b.emit(d.pick(ACTIVATIONS), [x]) if d.chance(0.5) else x
    read_again(b, y)
    for axis in (1, 2):
        y = _rolled(b, y, axis, shift)
    y = turned(b, reshaped(b, y, [n, h // side, side, w // side, side, c]), [0, 1, 3, 2, 4, 5])
    y = reshaped(b, y, [-1, side * side, c])
    if d.chance(0.6):
        y = b.emit("MatMul", [y, b.weight([c, c], 1 / math.sqrt(c))])
    if d.chance(0.6):
        y = b.emit("Add", [y, b.weight([c])])
    read_again(b, y)
    y = turned(b, reshaped(b, y, [n, h // side, w // side, side, side, c]), [0, 1, 3, 2, 4, 5])
    y = reshaped(b, y, [n, h, w, c])
    for axis in (1, 2):
        y = _rolled(b, y, axis, -shift if d.chance(0.9) else shift)
    if d.chance(0.8):
        y = b.emit("Add", [x, y])
    if d.chance(0.5):
        b.emit(d.pick(ACTIVATIONS), [y])


def _rolled(b: Builder, x: str, axis: int, shift: int) -> str:
    """x, whose elements along `axis` begin with number `shift` and go on around the end."""
    size = b[x].shape[axis]
    at = shift % size
    return b.emit("Concat", [sliced(b, x, axis, at, size), sliced(b, x, axis, 0, at)], axis=axis) if at else x


@operation("motif", 1)
def turned_picture(b: Builder) -> None:
    """A picture with channels last, turned for what goes by channels, and back: both turns may go."""
    d = b.draw
    n, c, k = d.between(1, 2), d.pick([2, 4, 5, 8]), d.between(1, 3)
    h, w = k * d.between(1, 4), k * d.between(1, 4)
    flat = d.chance(0.4)
    special, d.special = d.special, 0.0  # sums of what is not finite run in an order of their own
    x = b.operand([n, h * w, c] if flat else [n, h, w, c])
    d.special = special
    y = turned(b, x, [0, 2, 1] if flat else [0, 3, 1, 2])
    read_again(b, y)
    before = y
    if flat:
        y = reshaped(b, y, [n, c, h, w])
    if d.chance(0.6):
        bias = [b.weight([c])] if d.chance(0.5) else []
        y = b.emit("Conv", [y, b.weight([c, 1, 3, 3], 1 / 3), *bias], group=c, pads=[1, 1, 1, 1])
    if d.chance(0.5):
        y = b.emit("Mul", [y, b.weight([c, 1, 1])])
    if d.chance(0.4):
        y = b.emit(d.pick(ACTIVATIONS), [y])
    if not flat and d.chance(0.5):
        y = b.emit("Add", [y, before])
    if d.chance(0.4):
        m = d.pick([2, 4, 7])
        y = b.emit("Conv", [y, b.weight([m, c, k, k], 1 / math.sqrt(c * k * k))], strides=[k, k])
    read_again(b, y)
    if d.chance(0.3):
        b.emit("GlobalAveragePool", [y])
    if flat:
        y = turned(b, reshaped(b, y, [n, b[y].shape[1], -1]), [0, 2, 1])
    else:
        y = turned(b, y, [0, 2, 3, 1])
    if d.chance(0.5):
        b.emit(d.pick(ACTIVATIONS), [y])
