"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ShapeError, UnsupportedOpError
from ...ir.graph import Value
from ...ops.pool import Pool
from ..op_registry import onnx_op
from ..shared.conv_pool_windows import window_of
from ..walk.node_context import NodeContext, Result


def pool(ctx: NodeContext, x: Value, kind: str, with_indices: bool = False) -> Result:
    """Emit Pool of x[N,C,D...] by the node's attributes."""
    kernel = ctx.attr("kernel_shape", None)
    if kernel is None:
        raise ShapeError(f"{ctx.label} has no kernel_shape")
    p = ctx.attr("p", 2.0)
    if kind == "lp" and (p < 1 or p != int(p)):
        raise UnsupportedOpError(f"{ctx.label} has p={p}; integers from 1 on are supported")
    window = window_of(ctx, x, kernel, skips=True)
    pads, count_pads = window.pads, ctx.attr("count_include_pad", False)
    if count_pads and ctx.version < 19 and not ctx.flag("ceil_mode"):
        # These versions divide by the window size even if the window exceeds the padded input.
        rank = len(window.kernel)
        beyond = [max(0, window.extent(i) - x.shape[2 + i] - pads[i] - pads[rank + i]) for i in range(rank)]
        if all(b < s for b, s in zip(beyond, window.strides, strict=True)):
            pads = (*pads[:rank], *(p + b for p, b in zip(pads[rank:], beyond, strict=True)))
    op = Pool(
        kind=kind,
        kernel=window.kernel,
        ceil_mode=ctx.flag("ceil_mode"),
        count_include_pad=count_pads,
        p=int(p),
        with_indices=with_indices,
        storage_order=ctx.attr("storage_order", 0),
        strides=window.strides,
        pads=pads,
        dilations=window.dilations,
    )
    return ctx.add_many(op, [x], 2) if with_indices else ctx.add(op, [x])


@onnx_op("MaxPool", since=1)
def max_pool(ctx: NodeContext) -> Result:
    """Import MaxPool: largest element of each window, and optionally its flat position."""
    return pool(ctx, ctx.input(0), "max", with_indices=ctx.uses_output(1))


@onnx_op("AveragePool", since=1)
def average_pool(ctx: NodeContext) -> Result:
    """Import AveragePool: mean of each window; padding counts only with count_include_pad."""
    return pool(ctx, ctx.input(0), "average")


@onnx_op("LpPool", since=1)
def lp_pool(ctx: NodeContext) -> Result:
    """Import LpPool: p-norm of each window."""
    return pool(ctx, ctx.input(0), "lp")


def _spatial(ctx: NodeContext, x: Value) -> range:
    if len(x.shape) < 3:
        raise ShapeError(f"{ctx.label} expects [N,C,D1,...], got {x.type}")
    return range(2, len(x.shape))


@onnx_op("GlobalAveragePool", since=1)
def global_average_pool(ctx: NodeContext) -> Value:
    """Import GlobalAveragePool: mean over all spatial axes."""
    x = ctx.input(0)
    return ctx.reduce(x, "mean", _spatial(ctx, x))


@onnx_op("GlobalMaxPool", since=1)
def global_max_pool(ctx: NodeContext) -> Value:
    """Import GlobalMaxPool: maximum over all spatial axes."""
    x = ctx.input(0)
    return ctx.reduce(x, "max", _spatial(ctx, x))


@onnx_op("GlobalLpPool", since=1)
def global_lp_pool(ctx: NodeContext) -> Value:
    """Import GlobalLpPool: p-norm over all spatial axes."""
    x = ctx.input(0)
    return p_norm(ctx, x, ctx.attr("p", 2.0), _spatial(ctx, x))


def p_norm(ctx: NodeContext, x: Value, p: float, axes: Sequence[int]) -> Value:
    """Return (sum |x|^p)^(1/p) over `axes`, dimensions kept."""
    if p in (1, 2):
        return ctx.reduce(x, "l1" if p == 1 else "l2", axes)
    total = ctx.reduce(ctx.elementwise(lambda v: v.call("abs").call("pow", p), x), "sum", axes)
    return ctx.elementwise(lambda v: v.call("pow", 1 / p), total)
