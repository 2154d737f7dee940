"""LocalResponseNorm: each element divided by a power of the mean square over neighbouring channels."""

from __future__ import annotations

import numpy as np

from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, moved_bytes, need, present, tensor


def neighbours(size: int) -> tuple[int, int]:
    """Channels before and after the own one in a window of `size`; an even window has one more after."""
    return (size - 1) // 2, size // 2


@frozen_op
class LocalResponseNorm(Op):
    """y[n,c,..] = x[n,c,..] * (bias + alpha / size * sum of x[n,i,..]^2 over the window of c)^-beta.

    The window holds `size` neighbouring channels i (`neighbours`); channels outside x count as zero. x is [N,C,...] of
    floats; 16-bit floats are computed in float32. Attributes: size, alpha, beta, bias. (Krizhevsky, Sutskever and
    Hinton, 2012, who do not divide alpha.)
    """

    size: int
    alpha: float
    beta: float
    bias: float

    takes_epilogue = True

    def check_shape(self, ins: Types) -> None:
        x = tensor(ins, 0, "x")
        need(x.rank >= 2, f"x must be [N,C,...], got {x}")
        need(x.dtype.is_float, f"x must hold floats, got {x}")
        need(self.size >= 1, f"size must be at least 1, got {self.size}")

    def reference(self, arrays: Arrays) -> list[Array]:
        (x,) = present(arrays, 1)
        wide = x.astype(compute_dtype(x.dtype))
        before, behind = neighbours(self.size)
        with np.errstate(all="ignore"):
            squares, sums = wide * wide, np.zeros_like(wide)
            for c in range(x.shape[1]):
                sums[:, c] = squares[:, max(0, c - before) : c + behind + 1].sum(1)
            mean = sums * wide.dtype.type(self.alpha / self.size)
            y = wide * (mean + wide.dtype.type(self.bias)) ** wide.dtype.type(-self.beta)
        return [y.astype(x.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        """A multiply-add for each channel of the window, and some ten operations for the power."""
        window = min(self.size, outs[0].shape[1])
        return Cost((2.0 * window + 10.0) * outs[0].count, moved_bytes(ins, outs))
