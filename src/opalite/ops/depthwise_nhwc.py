"""DepthwiseNhwc: depthwise convolution in NHWC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.tensor_type import TensorType
from .conv import compute_dtype, taps
from .operator import Array, Cost, Op, Types, make_type, moved_bytes, need, register_op, tensor


@register_op
@dataclass(frozen=True, slots=True)
class DepthwiseNhwc(Op):
    """y[n,h,w,c] = bias[c] + sum over i,j of k[c,0,i,j] * x[n, h*stride - pad + i*dilation, likewise for w, c].

    A Conv with one group for each channel. Inputs x[N,H,W,C], k[C,1,KH,KW], bias[C] or none. Attributes: strides and
    dilations (height, width), pads (top, left, bottom, right; zeros outside x, not negative).
    """

    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]

    arity = 3
    takes_epilogue = True

    def check_shape(self, ins: Types) -> None:
        x, k = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        need(x.rank == 4, f"x must be [N,H,W,C], got {x}")
        need(k.rank == 4 and k.shape[:2] == (x.shape[3], 1), f"weights must be [{x.shape[3]!r},1,KH,KW], got {k}")
        need(k.dtype is x.dtype and x.dtype.is_float, f"x and weights must be of one float type, got {x} and {k}")
        sizes = (*self.strides, *self.dilations)
        need(len(sizes) == len(self.pads) == 4 and all(s >= 1 for s in sizes), "strides and dilations must be positive")
        need(all(p >= 0 for p in self.pads), f"pads must not be negative, got {self.pads}")
        b = ins[2] if len(ins) > 2 else None
        need(b is None or b.shape == x.shape[3:], f"bias must be [{x.shape[3]!r}], got {b}")
        need(all(n >= 1 for n in self._out(ins)), f"x {x} with its pads is smaller than the filter of {k}")

    def _out(self, ins: Types) -> tuple[int, int]:
        x, k = tensor(ins, 0, "x"), tensor(ins, 1, "weights")
        h, w = (
            (x.shape[1 + i] + self.pads[i] + self.pads[i + 2] - self.dilations[i] * (k.shape[2 + i] - 1) - 1)
            // self.strides[i]
            + 1
            for i in range(2)
        )
        return h, w

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(x.dtype, (x.shape[0], *self._out(ins), x.shape[3]))]

    def reference(self, arrays: Sequence[Array | None]) -> list[Array]:
        x, k = arrays[0], arrays[1]
        assert x is not None
        assert k is not None
        acc = compute_dtype(x.dtype)
        (top, left, bottom, right), (sh, sw), (dh, dw) = self.pads, self.strides, self.dilations
        padded = np.pad(x.astype(acc), [(0, 0), (top, bottom), (left, right), (0, 0)])
        oh = (padded.shape[1] - dh * (k.shape[2] - 1) - 1) // sh + 1
        ow = (padded.shape[2] - dw * (k.shape[3] - 1) - 1) // sw + 1
        y = np.zeros((x.shape[0], oh, ow, x.shape[3]), acc)
        for i, j in taps(k.shape[2:]):
            rows, columns = slice(i * dh, i * dh + sh * (oh - 1) + 1, sh), slice(j * dw, j * dw + sw * (ow - 1) + 1, sw)
            y += padded[:, rows, columns] * k[:, 0, i, j].astype(acc)
        if len(arrays) > 2 and arrays[2] is not None:
            y += arrays[2].astype(acc)
        return [y.astype(x.dtype)]

    def cost(self, ins: Types, outs: Sequence[TensorType]) -> Cost:
        k = tensor(ins, 1, "weights")
        return Cost(2.0 * outs[0].count * k.shape[2] * k.shape[3], moved_bytes(ins, outs))
