"""Normalize: mean 0 and variance 1 over trailing axes, channels or groups of channels, then scale and bias."""

from __future__ import annotations

import math

import numpy as np

from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .gather import check_axis
from .operator import Array, Arrays, Op, Types, frozen_op, need, present, tensor

TRAILING = ("layer", "rms")
"""Kinds that normalize over the axes from `axis` on."""

BY_CHANNEL = ("instance", "group")
"""Kinds on x[N,C,...] with a scale and bias for each channel."""


@frozen_op
class Normalize(Op):
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias, with statistics over the axes that `kind` selects.

    Inputs x, scale or none, bias or none, of one float type. Attributes: epsilon and kind:
    - "layer" (over the axes from `axis` on) or "rms" (x / sqrt(mean(x^2) + epsilon) instead): scale and bias broadcast
      to those axes;
    - "instance" (over the spatial axes of x[N,C,...]) or "group" (over num_groups groups of neighbouring channels and
      the spatial axes): scale[C], bias[C].

    16-bit floats are computed in float32.
    """

    kind: str
    epsilon: float
    axis: int = -1
    num_groups: int = 0

    arity = 3
    takes_epilogue = True
    flops = 8.0

    def check_shape(self, ins: Types) -> None:
        x, kind = tensor(ins, 0, "x"), self.kind
        need(kind in TRAILING + BY_CHANNEL, f"kind must be one of {', '.join(TRAILING + BY_CHANNEL)}, got '{kind}'")
        need(x.dtype.is_float, f"x must hold floats, got {x}")
        if kind in TRAILING:
            check_axis(self.axis, x)
        else:
            need(x.rank >= 2, f"x must be [N,C,...], got {x}")
        if kind == "group":
            groups = self.num_groups
            fits = groups >= 1 and x.shape[1] % groups == 0
            need(fits, f"the {x.shape[1]} channels of x {x} do not divide into {groups} groups")
        for i, what in ((1, "scale"), (2, "bias")):
            t = ins[i] if i < len(ins) else None
            if t is not None:
                need(t.dtype is x.dtype, f"{what} must hold {x.dtype} as x does, got {t}")
                _check_parameter(self, x, t, what)

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,), kind = present(arrays, 1), self.kind
        wide = x.astype(compute_dtype(x.dtype))
        if kind == "group":
            wide = wide.reshape(x.shape[0], self.num_groups, math.prod(x.shape[1:]) // self.num_groups)
        axes = tuple(range(self.axis if kind in TRAILING else 2, wide.ndim))
        with np.errstate(all="ignore"):
            if wide.size:
                centered = wide if kind == "rms" else wide - wide.mean(axes, keepdims=True)
                wide = centered / np.sqrt((centered * centered).mean(axes, keepdims=True) + self.epsilon)
            y = wide.astype(compute_dtype(x.dtype)).reshape(x.shape)
            scale, bias = (arrays[i] if i < len(arrays) else None for i in (1, 2))
            if scale is not None:
                y = y * _spread(kind, scale, y)
            if bias is not None:
                y = y + _spread(kind, bias, y)
        return [y.astype(x.dtype)]


def _check_parameter(op: Normalize, x: TensorType, t: TensorType, what: str) -> None:
    if op.kind in BY_CHANNEL:
        need(t.shape == x.shape[1:2], f"{what} must hold one element for each channel of x {x}, got {t}")
        return
    axis = op.axis
    wanted = (1,) * axis + x.shape[axis:]
    dims = (1,) * (x.rank - t.rank) + t.shape
    fits = t.rank <= x.rank and all(d in (1, w) for d, w in zip(dims, wanted, strict=True))
    need(fits, f"{what} must broadcast to the axes from {axis} on of x {x}, got {t}")


def _spread(kind: str, parameter: Array, y: Array) -> Array:
    """A parameter reshaped to broadcast against y."""
    wide = parameter.astype(y.dtype)
    return wide.reshape(-1, *(1,) * (y.ndim - 2)) if kind in BY_CHANNEL else wide
