"""Operators of domain 'opalite': building blocks of unrolled loops, sequences and optionals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...ir.graph import Value
from ...ops.operator import normalize_axis
from ...ops.pairwise_distance import PairwiseDistance
from ..proto.graphdef import DOMAIN, Attr, NodeDef
from .node_context import NodeContext, onnx_op


def internal_node(op_type: str, name: str, inputs: tuple[str, ...], output: str, attrs: Mapping[str, Any]) -> NodeDef:
    """Make a NodeDef of domain 'opalite' with one output. name: name of the ONNX node that the NodeDef replaces."""
    attributes = {k: Attr(0, v) for k, v in attrs.items()}
    return NodeDef(op_type, DOMAIN, 1, name, inputs, (output,), attributes, used=(True,))


@onnx_op("PassThrough", domain=DOMAIN)
@onnx_op("Optional", "OptionalGetElement", since=15)
def same(ctx: NodeContext) -> Value:
    """Import PassThrough, Optional and OptionalGetElement: an optional that holds a tensor is that tensor."""
    return ctx.input(0)


@onnx_op("Stack", domain=DOMAIN)
def stack(ctx: NodeContext) -> Value:
    """Import Stack: stack the inputs, all of one shape, along a new `axis`; in reverse order if `reverse`."""
    values = ctx.present
    shape = values[0].shape
    for v in values:
        if v.shape != shape:
            raise ShapeError(
                f"{ctx.label} collects tensors of shape {shape} over its iterations, but one of them gave {v.shape}"
            )
    axis = normalize_axis(ctx.attr("axis"), len(shape) + 1, "scan output axis")
    row = (*shape[:axis], 1, *shape[axis:])
    rows = [ctx.reshape(v, row) for v in values]
    if ctx.attr("reverse"):
        rows.reverse()
    return ctx.concat(rows, axis)


@onnx_op("Join", domain=DOMAIN)
def join(ctx: NodeContext) -> Value:
    """Import Join: concatenate the inputs along `axis`."""
    values = ctx.present
    return ctx.concat(values, normalize_axis(ctx.attr("axis"), len(values[0].shape)))


@onnx_op("Cut", domain=DOMAIN)
def cut(ctx: NodeContext) -> Value:
    """Import Cut: return x[..., start : start + length, ...] at `axis`."""
    x, axis, start, length = ctx.input(0), ctx.attr("axis"), ctx.attr("start"), ctx.attr("length")
    return x if length == x.shape[axis] else ctx.slice_axis(x, axis, start, start + length)


@onnx_op("Take", domain=DOMAIN)
def take(ctx: NodeContext) -> Value:
    """Import Take: return x[..., index, ...] at `axis`, without that axis."""
    x, axis, index = ctx.input(0), ctx.attr("axis"), ctx.attr("index")
    return ctx.reshape(ctx.slice_axis(x, axis, index, index + 1), x.shape[:axis] + x.shape[axis + 1 :])


@onnx_op("Distances", domain=DOMAIN)
def distances(ctx: NodeContext) -> Value:
    """Import Distances: compute pairwise distances [M, N] of points x[N,F] and y[M,F]; attribute `power`."""
    x, y = ctx.input(0), ctx.input(1)
    found = ctx.add(PairwiseDistance(power=ctx.attr("power")), [x, ctx.transpose(y, (1, 0))])
    return ctx.transpose(found, (1, 0))


@onnx_op("OptionalHasElement", since=15)
def optional_has_element(ctx: NodeContext) -> Value:
    """Import OptionalHasElement: return whether the optional holds a tensor; this needs no contents."""
    return ctx.constant(np.asarray(ctx.get(0) is not None))
