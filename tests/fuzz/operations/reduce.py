"""Reductions, and what looks along an axis."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Rejected
from ..registry import operation

REDUCTIONS = ("Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "LogSum", "Prod")


@operation("reduce", 2)
def reduce(b: Builder) -> None:
    d = b.draw
    kind = d.pick((*REDUCTIONS[:4], *REDUCTIONS))
    x = (
        b.tensor(["i8", "i4"])
        if kind in ("Sum", "Max", "Min") and d.chance(0.1)
        else b.real(finite=kind in ("Max", "Min"))
    )
    if kind == "Prod" and b.special:
        raise Rejected("products that overflow in one order and not in another")
    if kind == "LogSum":
        x = b.within(x, 0.1, 5.0)
    if not b[x].size and kind not in ("Sum", "Prod", "Mean"):
        raise Rejected("onnxruntime's own idea of the largest or the norm of nothing")
    rank = b[x].ndim
    # Of nothing onnxruntime takes sums right along axes that are not counted from the end.
    backward = 0.3 if b.opset >= 11 and b[x].size else 0.0
    axes = [a - rank if d.chance(backward) else a for a in d.subset(range(rank), least=0)]
    keep = d.pick([None, 0, 1])
    op = f"Reduce{kind}"
    if b.opset >= (13 if kind == "Sum" else 18):
        inputs = [x, b.ints(axes)] if axes or d.chance(0.1) else [x]
        noop = d.pick([None, None, 0, 1])
        b.emit(op, inputs, keepdims=keep, noop_with_empty_axes=noop)
    else:
        b.emit(op, [x], axes=axes or None, keepdims=keep)


@operation("reduce", 0.8)
def arg_reduce(b: Builder) -> None:
    d = b.draw
    x = b.real(where=lambda a: a.ndim > 0 and a.size > 0, finite=True)
    last = d.pick([None, 0, 1]) if b.opset >= 12 else None
    low = -b[x].ndim if b.opset >= 11 else 0
    op = d.pick(["ArgMax", "ArgMin"])
    b.emit(op, [x], axis=d.between(low, b[x].ndim - 1), keepdims=d.pick([None, 0]), select_last_index=last)


@operation("reduce", 0.7)
def top_k(b: Builder) -> None:
    d = b.draw
    x = b.real(where=lambda a: a.ndim > 0 and a.size > 0, finite=True)
    axis = d.between(0, b[x].ndim - 1)
    k = d.between(1, b[x].shape[axis])
    if b.opset < 10:
        b.emit_all("TopK", [x], 2, axis=axis, k=k)
    else:
        largest = d.pick([None, 0, 1]) if b.opset >= 11 else None
        b.emit_all("TopK", [x, b.ints([k])], 2, axis=axis, largest=largest)


@operation("reduce", 0.6)
def cumulative(b: Builder) -> None:
    if not b.has("CumSum"):
        raise Rejected("CumSum")
    d, x = b.draw, b.tensor([b.dtype, b.dtype, "i8", "i4"], where=lambda a: a.ndim > 0)
    axis = b.const(np.int64(d.between(-b[x].ndim, b[x].ndim - 1)))
    b.emit("CumSum", [x, axis], exclusive=d.pick([None, 0, 1]), reverse=d.pick([None, 0, 1]))
