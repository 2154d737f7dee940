"""PairwiseDistance, between all pairs of points of two sets, and PairwiseCoupling of class probabilities (SVM)."""

from __future__ import annotations

import math

import numpy as np

from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, tensor

_CHUNK = 1 << 22  # most elements in memory at once, in the reference


@frozen_op
class PairwiseDistance(Op):
    """y[n, m] = sum over f of |x[n, f] - c[f, m]| to the power `power`: points are rows of x and columns of c.

    Differences are taken before squaring, so that close points far from the origin keep their precision. Attributes:
    power, 1 or 2. Inputs x[N,F], c[F,M], floats of one type; 16-bit floats are computed in float32.
    """

    power: int

    arity = 2
    takes_epilogue = False

    def check_shape(self, ins: Types) -> None:
        x, c = tensor(ins, 0, "x"), tensor(ins, 1, "c")
        need(x.rank == 2 and c.rank == 2 and x.shape[1] == c.shape[0], f"x must be [N,F] and c [F,M], got {x} and {c}")
        need(x.dtype.is_float and c.dtype is x.dtype, f"x and c must be floats of one type, got {x} and {c}")
        need(self.power in (1, 2), f"power must be 1 or 2, got {self.power}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x = tensor(ins, 0, "x")
        return [make_type(x.dtype, (x.shape[0], tensor(ins, 1, "c").shape[1]))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, c = (np.asarray(a).astype(compute_dtype(np.asarray(a).dtype)) for a in arrays)
        y = np.zeros((len(x), c.shape[1]), x.dtype)
        step = max(1, _CHUNK // max(1, c.size))
        for i in range(0, len(x), step):
            difference = np.abs(x[i : i + step, :, None] - c)
            y[i : i + step] = (difference**2 if self.power == 2 else difference).sum(1)
        assert arrays[0] is not None
        return [y.astype(arrays[0].dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        """A difference and a multiply-add for each feature of each pair."""
        return Cost(3.0 * outs[0].count * tensor(ins, 0, "x").shape[1], moved_bytes(ins, outs))


def classes_of(pairs: int) -> int:
    """Number of classes with `pairs` pairs."""
    return (1 + math.isqrt(1 + 8 * pairs)) // 2


@frozen_op
class PairwiseCoupling(Op):
    """Probabilities [N, K] of K classes from r[N, P], the probability of class i against class j for the P pairs i < j.

    Pairs are in the order (0,1), (0,2), .. (1,2), ... The second method of Wu, Lin and Weng (2004), as in libsvm: p
    minimizes the sum of (r_ji p_i - r_ij p_j)^2, by coordinate descent from equal probabilities, at most max(100, K)
    rounds, until all gradients are within 0.005 / K of their mean. r holds floats; 16-bit floats are computed in
    float32.
    """

    def check_shape(self, ins: Types) -> None:
        r = tensor(ins, 0, "r")
        need(r.rank == 2 and r.dtype.is_float, f"r must be floats of [N,P], got {r}")
        k = classes_of(r.shape[1])
        need(k >= 2 and k * (k - 1) // 2 == r.shape[1], f"r must have K (K - 1) / 2 columns, got {r}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        r = tensor(ins, 0, "r")
        return [make_type(r.dtype, (r.shape[0], classes_of(r.shape[1])))]

    def reference(self, arrays: Arrays) -> list[Array]:
        given = np.asarray(arrays[0])
        k = classes_of(given.shape[1])
        first, second = np.triu_indices(k, 1)
        r = np.zeros((len(given), k, k), compute_dtype(given.dtype))
        r[:, first, second] = given
        r[:, second, first] = 1 - r[:, first, second]
        q = -r * r.transpose(0, 2, 1)
        each = np.arange(k)
        q[:, each, each] = (r**2).sum(1)
        p = np.full((len(given), k), 1 / k, r.dtype)
        active = np.arange(len(given))
        for _ in range(max(100, k)):
            own, now = q[active], p[active]
            gradient = np.einsum("ntj,nj->nt", own, now)
            mean = (now * gradient).sum(1)
            going = np.abs(gradient - mean[:, None]).max(1) >= 0.005 / k  # NaN stays at equal probabilities
            active, own, now, gradient, mean = (a[going] for a in (active, own, now, gradient, mean))
            if not len(active):
                break
            for t in range(k):
                step = (mean - gradient[:, t]) / own[:, t, t]
                now[:, t] += step
                mean = (mean + step * (step * own[:, t, t] + 2 * gradient[:, t])) / (1 + step) ** 2
                gradient = (gradient + step[:, None] * own[:, t]) / (1 + step)[:, None]
                now /= (1 + step)[:, None]
            p[active] = now
        return [p.astype(given.dtype)]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        """About ten rounds of two matrix products each."""
        return Cost(60.0 * outs[0].count * outs[0].shape[1], moved_bytes(ins, outs))
