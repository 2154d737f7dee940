"""GridSample: interpolated reads of an image or volume at the positions of a grid."""

from __future__ import annotations

import itertools

import numpy as np

from ..ir.tensor_type import TensorType
from .conv import compute_dtype
from .operator import Array, Arrays, Cost, Op, Outs, Types, frozen_op, make_type, moved_bytes, need, present, tensor

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
PADDINGS = ("zeros", "border", "reflection")
FAR = 1e9  # positions are clamped to this distance, so that they fit an integer

_A = -0.75  # Keys' coefficient of cubic convolution


@frozen_op
class GridSample(Op):
    """y[n, c, p] = x[n, c] interpolated at the position grid[n, p].

    Inputs x[N,C,D1..Dr] with r = 2 or 3, grid[N,P1..Pr,r] with coordinates on its last axis, x's last axis first, -1
    and 1 at the ends of x; y is [N,C,P1..Pr]. Attributes: mode ("linear", "nearest" or "cubic"); padding outside x
    ("zeros", "border": the end elements, "reflection"); align_corners: whether -1 and 1 are the centres of the end
    elements, or their outer edges. A NaN coordinate counts as -1, as in PyTorch and onnxruntime.
    """

    mode: str
    padding: str
    align_corners: bool

    arity = 2

    def check_shape(self, ins: Types) -> None:
        x, grid = tensor(ins, 0, "x"), tensor(ins, 1, "grid")
        need(self.mode in TAPS, f"mode must be one of {', '.join(TAPS)}, got '{self.mode}'")
        need(self.padding in PADDINGS, f"padding must be one of {', '.join(PADDINGS)}, got '{self.padding}'")
        need(x.rank in (4, 5), f"x must be [N,C,H,W] or [N,C,D,H,W], got {x}")
        need(grid.dtype.is_float, f"grid must hold floats, got {grid}")
        need(
            grid.rank == x.rank and grid.shape[-1] == x.rank - 2,
            f"grid must have x's rank {x.rank} and end in {x.rank - 2} coordinates for x {x}, got {grid}",
        )
        need(grid.shape[0] == x.shape[0], f"grid {grid} and x {x} must have the same batch size")
        need(all(x.shape[2:]), f"x must not be empty, got {x}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        x, grid = tensor(ins, 0, "x"), tensor(ins, 1, "grid")
        return [make_type(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]

    def reference(self, arrays: Arrays) -> list[Array]:
        x, grid = present(arrays, 2)
        rank = x.ndim - 2
        acc = compute_dtype(x.dtype) if x.dtype.kind not in "iub" else np.dtype(np.float32)
        at = grid.astype(compute_dtype(grid.dtype))
        taps = [_axis_taps(self, at[..., rank - 1 - k], x.shape[2 + k]) for k in range(rank)]
        batch = np.arange(x.shape[0]).reshape(-1, *(1,) * rank)
        channels_last = np.moveaxis(x, 1, -1).astype(acc)
        y = np.zeros((*grid.shape[:-1], x.shape[1]), acc)
        for combination in itertools.product(range(TAPS[self.mode]), repeat=rank):
            index = [t[0][..., j] for t, j in zip(taps, combination, strict=True)]
            weight, inside = np.ones(grid.shape[:-1], acc), np.ones(grid.shape[:-1], bool)
            for t, i, j in zip(taps, index, combination, strict=True):
                weight = weight * t[1][..., j].astype(acc)
                inside &= i >= 0
            values = channels_last[(batch, *(np.maximum(i, 0) for i in index))]
            y += np.where(inside[..., None], weight[..., None] * values, 0)
        return [np.ascontiguousarray(np.moveaxis(y, -1, 1).astype(x.dtype))]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        rank = outs[0].rank - 2
        return Cost(2.0 * outs[0].count * TAPS[self.mode] ** rank, moved_bytes(ins, outs))


def _axis_taps(op: GridSample, grid: Array, size: int) -> tuple[Array, Array]:
    """(positions, or -1 for zeros; weights) along one axis of `size`, with taps on an added last axis."""
    with np.errstate(all="ignore"):
        grid = np.where(np.isnan(grid), grid.dtype.type(-1), grid)
        at = (grid + 1) / 2 * (size - 1) if op.align_corners else ((grid + 1) * size - 1) / 2
    at = np.clip(np.nan_to_num(at, nan=-FAR), -FAR, FAR).astype(grid.dtype)  # infinity times no extent is NaN
    low = np.rint(at) if op.mode == "nearest" else np.floor(at)
    s = at - low
    if op.mode == "nearest":
        weights = [np.ones_like(s)]
    elif op.mode == "linear":
        weights = [1 - s, s]
    else:
        weights = [_cubic_far(s + 1), _cubic_near(s), _cubic_near(1 - s), _cubic_far(2 - s)]
    before = 1 if op.mode == "cubic" else 0
    index = low.astype(np.int64)[..., None] + np.arange(-before, len(weights) - before)
    return _padded(index, size, op), np.stack(weights, -1)


def _cubic_near(d: Array) -> Array:
    return ((_A + 2) * d - (_A + 3)) * d * d + 1


def _cubic_far(d: Array) -> Array:
    return ((_A * d - 5 * _A) * d + 8 * _A) * d - 4 * _A


def _padded(index: Array, size: int, op: GridSample) -> Array:
    if op.padding == "zeros":
        return np.where((index >= 0) & (index < size), index, -1)
    if op.padding == "border":
        return np.clip(index, 0, size - 1)
    if op.align_corners:
        period = max(2 * (size - 1), 1)
        folded = index % period
        return np.where(folded < size, folded, period - folded)
    folded = index % (2 * size)
    return np.where(folded < size, folded, 2 * size - 1 - folded)
