"""Fourier transforms as products with constant matrices of cosines and sines."""

from __future__ import annotations

import numpy as np

from ...errors import ShapeError
from ...ir import Array, TensorType, Value
from ...ops.operator import normalize_axis
from ..walk.node_context import NodeContext, Result, onnx_op

LONGEST = 4096
"""Longest transform computed as a product; for longer ones the matrix is much larger than the signal."""


@onnx_op("DFT", since=17)
def dft(ctx: NodeContext) -> Result:
    """Import DFT: discrete Fourier transform along an axis, an attribute before opset 20, then an input."""
    x = ctx.input(0)
    axis = ctx.attr("axis", 1) if ctx.version < 20 else -2 if ctx.get(2) is None else int(ctx.const_scalar(2))
    inverse, onesided = ctx.attr("inverse", False), ctx.attr("onesided", False)
    rank = len(x.shape)
    if rank < 2 or x.shape[-1] not in (1, 2):
        raise ShapeError(f"{ctx.label} needs a last axis of 1 (real) or 2 (complex), got {x.type}")
    axis = normalize_axis(axis, rank)
    if axis == rank - 1:
        raise ShapeError(
            f"{ctx.label} transforms along the last axis of {x.type}, which holds real and imaginary parts"
        )
    length = x.shape[axis]
    if ctx.get(1) is not None:
        length = int(ctx.const_scalar(1))
    elif inverse and onesided:
        length = 2 * (length - 1)
    if length == 0 and x.shape[axis] == 0 and not onesided:
        return x if x.shape[-1] == 2 else ctx.concat([x, x], rank - 1)  # no elements
    if length < 1:
        raise ShapeError(f"{ctx.label} has length {length}; expected 1 or more")
    moved = ctx.swap_axes(x, axis, rank - 2)
    out = transform(ctx, moved, length, inverse, onesided)
    return ctx.swap_axes(out, axis, rank - 2)


def transform(ctx: NodeContext, x: Value, length: int, inverse: bool, onesided: bool) -> Value:
    """Emit the transform of x[..., n, 1 or 2] along n, cut or zero-padded to `length`: [..., k, 2].

    Forward onesided keeps k = length // 2 + 1. Inverse onesided reads that many and returns [..., length, 1], real.
    """
    parts, length = x.shape[-1], int(length)  # a dynamic size becomes static: the matrix depends on it
    if length > LONGEST:
        count, numbers = (length, 1) if inverse and onesided else (length // 2 + 1 if onesided else length, 2)
        types = [TensorType(x.dtype, (*x.shape[:-2], count, numbers))]
        reason = f"a transform longer than {LONGEST} is fast as a fast Fourier transform, in NumPy"
        how = {"length": length, "inverse": int(inverse), "onesided": int(onesided)}
        return ctx.add_host("Transform", [x], types, reason, **how)[0]
    used = int(min(x.shape[-2], length // 2 + 1 if inverse and onesided else length))
    matrix = _inverse_real(length, used) if inverse and onesided else _full(length, used, inverse)
    if onesided and not inverse:
        matrix = matrix[:, :, : length // 2 + 1]
    # [n, parts, k, 2] as one matrix: real and imaginary parts are adjacent in input and output.
    matrix = matrix[:, :parts]
    n, _, k, out_parts = matrix.shape
    flat = matrix.reshape(n * parts, k * out_parts)
    cut = ctx.slice_axis(x, len(x.shape) - 2, 0, used)
    lead = x.shape[:-2]
    rows = ctx.reshape(cut, (*lead, 1, used * parts))
    out = ctx.matmul(rows, ctx.constant(np.ascontiguousarray(flat).astype(x.dtype.np)))
    return ctx.reshape(out, (*lead, k, out_parts))


def _full(length: int, used: int, inverse: bool) -> Array:
    """Return [n, 2, k, 2]: the factor from part p of x[n] to part q of y[k]."""
    turn = np.arange(used)[:, None] * np.arange(length)[None, :] % length
    angle = 2 * np.pi * turn / length * (1 if inverse else -1)
    c, s = np.cos(angle), np.sin(angle)
    matrix = np.stack([np.stack([c, s], -1), np.stack([-s, c], -1)], 1)
    return matrix / length if inverse else matrix


def _inverse_real(length: int, used: int) -> Array:
    """Return [k, 2, n, 1]: the inverse for a spectrum without its conjugate half."""
    matrix = _full(length, used, inverse=True)[..., :1]
    twice = np.full(used, 2.0)
    twice[0] = 1.0
    if length % 2 == 0 and used == length // 2 + 1:
        twice[-1] = 1.0
    weighted: Array = matrix * twice[:, None, None, None]
    return weighted


@onnx_op("STFT", since=17)
def stft(ctx: NodeContext) -> Result:
    """Import STFT: transforms of windowed frames of signal [B, n, 1 or 2] or real [B, n]: [B, frames, k, 2].

    Complex signals are cut to one side too unless that is disabled, as in onnxruntime and onnx's reference.
    """
    x, window = ctx.input(0), ctx.get(2)
    if len(x.shape) == 2:
        ctx.inputs[0] = x = ctx.reshape(x, (*x.shape, 1))
    if len(x.shape) != 3 or x.shape[2] not in (1, 2):
        raise ShapeError(f"{ctx.label} needs a signal [batch, n], [batch, n, 1] (real) or [batch, n, 2], got {x.type}")
    if window is not None and len(window.shape) != 1:
        raise ShapeError(f"{ctx.label} needs a vector as the window, got {window.type}")
    step = int(ctx.const_scalar(1))
    if ctx.get(3) is not None:
        length = int(ctx.const_scalar(3))
    else:
        length = x.shape[1] if window is None else window.shape[0]
    if step < 1 or not 1 <= length <= x.shape[1]:
        raise ShapeError(
            f"{ctx.label} has frames of {length} every {step} of {x.type}; expected 1 to {x.shape[1]}, 1 on"
        )
    frames = 1 + (x.shape[1] - length) // step
    at = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    framed = ctx.take(x, at, 1)
    if window is not None:
        if window.shape[0] > length:
            raise ShapeError(f"{ctx.label} has window {window.type}, longer than its frames of {length}")
        before = (length - window.shape[0]) // 2
        window = ctx.pad_zeros(window, (before, length - window.shape[0] - before))
        framed = ctx.elementwise(lambda v, w: v * w, framed, ctx.reshape(window, (length, 1)))
    return transform(ctx, framed, length, False, ctx.attr("onesided", True))
