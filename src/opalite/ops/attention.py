"""Attention: scaled dot products, softmax and weighted sum in one operator."""

from __future__ import annotations

import numpy as np

from ..ir.constants.int8_rows import TAIL, from_byte_rows
from ..ir.dtype import DType
from ..ir.tensor_type import Shape, TensorType
from .operator import (
    Array,
    Arrays,
    Cost,
    Op,
    Outs,
    Types,
    broadcast_shape,
    frozen_op,
    make_type,
    moved_bytes,
    need,
    tensor,
)
from .strided_view import View

OPERANDS = ("q", "k", "v")
Views = tuple[View | None, View | None, View | None]


def operand_view(op: Attention, shape: Shape, i: int) -> View:
    """The View of operand `i` of q, k, v in its input of `shape`."""
    found = op.views[i]
    return View.whole(shape) if found is None else found


def gives_nan(op: Attention, keys: int) -> bool:
    """Whether a query that sees none of `keys` gives NaN."""
    return op.blind_nan and keys > 0


@frozen_op
class Attention(Op):
    """y[b,h,s] = sum over t of softmax_t(cap(scale * q[b,h,s] . k[b,g,t]) + mask[b,h,s,t]) * v[b,g,t], g = h * Hkv / H.

    Inputs q[B,H,S,D], k[B,Hkv,T,D], v[B,Hkv,T,Dv], mask or none: an added float, broadcast to [B,H,S,T]. Output
    [B,H,S,Dv]. Attributes: scale; causal: query s sees only keys t <= s; softcap: cap(x) = softcap * tanh(x / softcap),
    0 for none. A query with all scores -inf gives zeros, as in ONNX's Attention, or NaN with blind_nan, as an explicit
    Softmax does. With nan_to_zero a query with a NaN score gives zeros too, as in PyTorch exports that replace NaN
    after the Softmax.

    k and v may both be int8: plain integers, or with `scaled` int8 rows with scales (ir/constants/int8_rows.py), whose
    last axis is four longer than D and Dv.

    Strides: views holds, for each of q, k and v, a View of the input with those four axes, or None; out_axes is the
    output's axes as a permutation of B, H, S, Dv.
    """

    scale: float
    causal: bool
    softcap: float
    blind_nan: bool = False
    nan_to_zero: bool = False
    views: Views = (None, None, None)
    out_axes: tuple[int, int, int, int] = (0, 1, 2, 3)
    scaled: bool = False

    arity = 4
    float32_inputs = (3,)  # the mask, whose large negative numbers exceed half's range

    def check_shape(self, ins: Types) -> None:
        for i, name in enumerate(OPERANDS):
            t, view = tensor(ins, i, name), self.views[i]
            need(view is None or _is_inside(view, t), f"the view {view} of {name} reaches beyond {t}")
        need(sorted(self.out_axes) == [0, 1, 2, 3], f"out_axes {self.out_axes} do not permute the output's axes")
        q, k, v = _operands(self, ins)
        is_bytes = k.dtype is v.dtype is DType.INT8
        need(is_bytes or not self.scaled, f"rows with scales are int8, got k {k} and v {v}")
        for t, what in ((q, "q[B,H,S,D]"), (k, "k[B,Hkv,T,D]"), (v, "v[B,Hkv,T,Dv]")):
            need(t.rank == 4, f"attention needs {what}, got {t}")
            fits = t.dtype.is_float and t.dtype is q.dtype if t is q or not is_bytes else q.dtype is not DType.FLOAT64
            need(fits, f"attention needs floats of one type, or int8 for both k and v, got q {q} and {what} {t}")
        need(k.shape[:3] == v.shape[:3], f"k and v must agree in batch, heads and length, got {k} and {v}")
        need(q.shape[0] == k.shape[0], f"q and k must have one batch size, got {q} and {k}")
        need(q.shape[3] == k.shape[3], f"q and k must have one head size, got {q} and {k}")
        even = k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0
        need(even, f"q's {q.shape[1]} heads cannot share k's {k.shape[1]} heads evenly")
        mask = ins[3] if len(ins) > 3 else None
        if mask is not None:
            scores = (*q.shape[:3], k.shape[2])
            need(mask.dtype is q.dtype, f"the mask must be {q.dtype} as q is, got {mask}")
            fits = mask.rank <= 4 and broadcast_shape([mask.shape, scores]) == scores
            need(fits, f"the mask {mask} does not broadcast to the scores {scores}")

    def infer_shape(self, ins: Types) -> list[TensorType]:
        q, _, v = _operands(self, ins)
        shape = (*q.shape[:3], v.shape[3])
        return [make_type(q.dtype, [shape[axis] for axis in self.out_axes])]

    def reference(self, arrays: Arrays) -> list[Array]:
        q, k, v = (operand_view(self, a.shape, i).read(a) for i, a in enumerate(arrays[:3]) if a is not None)
        mask = arrays[3] if len(arrays) > 3 else None
        dtype = q.dtype
        if self.scaled:
            k, v = (from_byte_rows(a) for a in (k, v))
        if dtype.itemsize == 2 or k.dtype.itemsize == 1:
            q, k, v = (a.astype(np.float32) for a in (q, k, v))
        k, v = (np.repeat(a, q.shape[1] // a.shape[1], axis=1) for a in (k, v))
        with np.errstate(all="ignore"):
            scores = q @ np.swapaxes(k, -1, -2) * q.dtype.type(self.scale)
            if self.softcap:
                scores = np.tanh(scores / self.softcap) * self.softcap
            if mask is not None:
                scores = scores + mask.astype(q.dtype)
            if self.causal:
                seen = np.tri(*scores.shape[2:]) > 0
                scores = np.where(seen, scores, -np.inf)
            largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
            weights = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
            total = weights.sum(axis=-1, keepdims=True)
            y = weights @ v / np.where((total == 0) & (not gives_nan(self, k.shape[2])), 1, total)
            if self.nan_to_zero:
                y = np.where(np.isnan(total), y.dtype.type(0), y)
        return [np.ascontiguousarray(y.astype(dtype).transpose(self.out_axes))]

    def cost(self, ins: Types, outs: Outs) -> Cost:
        q, k, v = _operands(self, ins)
        scores = 1.0 * (q.count // max(1, q.shape[3]) * v.shape[2])
        # An exponential and its sums count as some twenty operations.
        return Cost(scores * (2.0 * (q.shape[3] + v.shape[3]) + 20.0), moved_bytes((q, k, v, *ins[3:]), outs))


def _is_inside(view: View, t: TensorType) -> bool:
    """Whether all elements of a 4-D view are inside the tensor."""
    fits = len(view.shape) == len(view.strides) == 4 and view.offset >= 0 and all(s >= 0 for s in view.strides)
    return fits and all(d >= 0 for d in view.shape) and bool(view.last < t.count)


def _operands(op: Attention, ins: Types) -> list[TensorType]:
    """Types of q, k and v as the operator sees them, without row scales."""
    types = [tensor(ins, i, name) for i, name in enumerate(OPERANDS)]
    shapes = [operand_view(op, t.shape, i).shape for i, t in enumerate(types)]
    if op.scaled:
        shapes[1:] = [(*s[:-1], s[-1] - TAIL) for s in shapes[1:]]
    return [TensorType(t.dtype, s, t.place) for t, s in zip(types, shapes, strict=True)]
