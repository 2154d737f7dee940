"""Gather, GatherElements and GatherND on row-major tensors of every element type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import always_equal
from ...ops.gather import Gather, GatherElements, GatherND
from ..kernel import Kernel, Params, Problem, register
from ..kernel_sources import read_source
from ..launch import ELEMENT, Arg, Args, Defines, Launch, ceil_div, make_table

ROW_BYTES = {True: 64, False: 16}
"""Bytes that one work-item moves at once: a vector register on a CPU (True), a 128-bit access on a GPU."""


def row_params(node: Node, device: DeviceInfo) -> Params:
    """Untuned parameters of row-copying kernels: wide accesses; on a CPU several accesses per work-item."""
    width = min(16, ROW_BYTES[device.is_cpu] // node.y.type.storage.size)
    return {"VEC": width, "UNROLL": 16 if device.is_cpu else 1, "WG": 64}


def row_defines(node: Node, params: Params) -> Defines:
    """The defines of data_movement/gather_scatter_indices.cl."""
    return {
        "ELEM": ELEMENT[node.y.type.storage.size],
        "INDEX": "long" if node.input(1).dtype is DType.INT64 else "int",
        "VEC": params["VEC"],
        "SPAN": span(params),
    }


def span(params: Params) -> int:
    """Elements of a row that one work-item copies."""
    return int(params["VEC"] * params["UNROLL"])


def merged_axes(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """(size, stride) of each axis of a kernel's loop, at least one pair; contiguous neighbours are merged."""
    merged: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if always_equal(size, 1):
            continue
        if merged and always_equal(merged[-1][1], size * stride):
            size *= merged.pop()[0]
        merged.append((size, stride))
    return merged or [(1, 0)]


def row_strides(shape: Sequence[int]) -> list[int]:
    """Element strides of each axis of a row-major tensor."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]


class RowKernel(Kernel):
    """Base class of gather and scatter kernels: parameters of copies of rows."""

    space = {"VEC": (4, 16, 8, 2, 1), "UNROLL": (1, 4, 16), "WG": (64, 128, 256)}

    def defaults(self, p: Problem) -> Params:
        return row_params(p.node, p.device)

    def _launch(self, entry: str, node: Node, params: Params, items: int, args: Mapping[str, Arg]) -> list[Launch]:
        x, indices, y = node.x, node.input(1), node.y
        prelude = read_source("data_movement/gather_scatter_indices.cl")
        all_args = {"x": x, "indices": indices, "y": y, "items": items, **args}
        return [Launch(entry, all_args, (items,), (params["WG"],), row_defines(node, params), prelude)]


@register
class GatherRows(RowKernel):
    """Gather: copies the row of each index."""

    op = "Gather"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, axis, count = node.x, node.as_(Gather).axis, node.input(1).type.count
        inner = math.prod(x.shape[axis + 1 :])
        chunks = ceil_div(inner, span(params))
        items = math.prod(x.shape[:axis]) * count * chunks
        args: Args = {"chunks": chunks, "count": count, "size": x.shape[axis], "inner": inner}
        return self._launch("gather", node, params, items, args)


@register
class GatherElementwise(RowKernel):
    """GatherElements: one element per work-item."""

    op = "GatherElements"
    space = {"WG": (64, 128, 256)}

    def defaults(self, p: Problem) -> Params:
        return {"WG": 64}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, axis, items = node.x, node.as_(GatherElements).axis, node.y.type.count
        strides = row_strides(x.shape)
        axes = merged_axes(node.y.shape, [0 if a == axis else s for a, s in enumerate(strides)])
        whole = {**params, "VEC": 1, "UNROLL": 1}
        args: Args = {"axes": make_table(axes), "rank": len(axes), "size": x.shape[axis], "stride": strides[axis]}
        return self._launch("gather_elements", node, whole, items, args)


@register
class GatherTuples(RowKernel):
    """GatherND: copies the row of each coordinate tuple."""

    op = "GatherND"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, indices, batch = node.x, node.input(1), node.as_(GatherND).batch_dims
        depth = indices.shape[-1]
        inner = math.prod(x.shape[batch + depth :])
        axes = [(size, stride) for size, stride in zip(x.shape, row_strides(x.shape), strict=True)]
        table = make_table(axes[batch : batch + depth] or [(1, 0)])
        rows = math.prod(indices.shape[:-1])
        chunks = ceil_div(inner, span(params))
        items = rows * chunks
        per_batch = math.prod(indices.shape[batch:-1])
        batch_stride = math.prod(x.shape[batch:])
        args: Args = {"axes": table, "chunks": chunks, "depth": depth, "inner": inner}
        args |= {"per_batch": per_batch, "batch_stride": batch_stride}
        return self._launch("gather_nd", node, params, items, args)
