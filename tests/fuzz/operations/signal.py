"""Fourier transforms, frames of sound, and the filters that follow them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation


def single(b: Builder) -> Any:
    """The type of signals: onnxruntime transforms no halves, and doubles with factors of float32."""
    if b.dtype.itemsize != 4 or b.special:
        raise Rejected("halves, doubles, or what is not finite")
    return b.dtype


@operation("signal", 1)
def transform(b: Builder) -> None:
    """DFT of real or complex numbers, cut off or padded in some; back in others."""
    dtype, d = single(b), b.draw
    if not b.has("DFT"):
        raise Rejected("DFT")
    x = b.tensor([dtype], where=lambda a: a.ndim >= 2 and 0 < a.size <= 2000)
    if b[x].shape[-1] not in (1, 2) or b[x].ndim < 3:
        width = d.pick([1, 2])
        x = b.operand([*d.shape(d.between(1, 3), most=200), width], dtype)
        x = x if b[x].ndim > 2 else b.emit("Unsqueeze", [x, b.ints([0])])
    axis = d.between(1, b[x].ndim - 2)
    inverse = d.pick([None, 0, 1]) if b[x].shape[-1] == 2 else None
    attrs = {"inverse": inverse, "onesided": d.pick([None, 1]) if b[x].shape[-1] == 1 else None}
    length = b.const(np.int64(d.pick([1, 4, 7, 16, 33])), 0.2) if d.chance(0.3) else ""
    if b.opset < 20:
        b.emit("DFT", [x, length] if length else [x], axis=axis, **attrs)
    else:
        where = b.const(np.int64(axis if d.chance(0.5) else axis - b[x].ndim), 0.1)
        b.emit("DFT", [x, length, where], **attrs)


@operation("signal", 1)
def spectrogram(b: Builder) -> None:
    """STFT of a signal, its power, and bands of it in some."""
    dtype, d = single(b), b.draw
    if not b.has("STFT"):
        raise Rejected("STFT")
    batch, length, step = d.between(1, 3), d.pick([8, 16, 32]), d.pick([4, 5, 8])
    x = b.operand([batch, length + step * d.between(0, 5) + d.between(0, 3), 1], dtype)
    steps, inputs = b.const(np.int64(step), 0.1), [x]
    if d.chance(0.7):
        window = b.const(d.array([length], dtype, 0, 1), 0.0)
        inputs += [steps, window, *([b.const(np.int64(length), 0.0)] if d.chance(0.5) else [])]
    else:
        inputs += [steps, "", b.const(np.int64(length), 0.0)]
    y = b.emit("STFT", inputs, onesided=d.pick([None, 1, 0]))
    power = b.emit("ReduceSum", [b.emit("Mul", [y, y]), b.ints([3])], keepdims=0)
    if d.chance(0.5):
        values = [d.pick([3, 8]), length, 8000]
        numbers = [b.const(np.int64(v), 0.0) for v in values]
        edges = [b.const(np.float32(v), 0.0) for v in (0.0, d.pick([2000.0, 4000.0]))]
        b.emit("MatMul", [power, b.emit("MelWeightMatrix", [*numbers, *edges])])
