"""Generic softmax and normalisation along lines of any length, by one program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.normalize import TRAILING, Normalize
from ...ops.reduce import ArgReduce
from ...ops.softmax import Softmax
from ...ops.topk import TopK
from ..filter_window import find_span
from ..kernel import Params, Problem, register
from ..launch import Arg, Args, Launch, ceil_div
from ..norm.layer_norm_rows import RowView
from ..reduce.cumulative import split_at
from .generic_kernel import Build, GenericKernel, clamp_bounds, clamped_refusal, storage_of, vector_defines

_SOFTMAX, _LOG_SOFTMAX, _CENTRED, _MEAN_SQUARE = range(4)  # a `kind` of generic_softmax_norm.cl


class GenericLineKernel(GenericKernel):
    """Base class: some lines for each work-item."""

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source, {"PACK": vector_defines(device)["PACK"]})]

    def lines(self, p: Problem, kind: int, count: int, size: int, inner: int, more: Mapping[str, Arg]) -> list[Launch]:
        """The launch for `count` lines of `size` elements with stride `inner`; `more`: additional arguments."""
        node = p.node
        clamp = clamp_bounds(node.epilogue)
        assert clamp is not None
        args: Args = {"x": node.x, "scale": node.x, "bias": node.x, "y": node.y, "kind": kind}
        args |= {"count": count, "size": size, "inner": inner, "has_scale": 0, "has_bias": 0, "epsilon": 0.0}
        args |= {"period": 1, "per_line": 0, "shared": 1, "low": clamp[0], "high": clamp[1], **more}
        span = find_span(count, 1, p.device)
        (build,) = self.builds(p.device)
        return [Launch("lines", args | {"span": span}, (ceil_div(count, span),), defines=build.defines)]


@register
class SoftmaxGeneric(GenericLineKernel):
    """Softmax along any axis."""

    op = "Softmax"

    def refuse(self, p: Problem) -> str | None:
        return clamped_refusal(p.node)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op = p.node, p.node.as_(Softmax)
        size, inner = node.x.shape[op.axis], math.prod(node.x.shape[op.axis + 1 :])
        count = math.prod(node.x.shape[: op.axis]) * inner
        return self.lines(p, _LOG_SOFTMAX if op.log else _SOFTMAX, count, size, inner, {})


@register
class NormalizeGeneric(GenericLineKernel):
    """All kinds of Normalize; scale and bias have the shape of the trailing axes."""

    op = "Normalize"

    def refuse(self, p: Problem) -> str | None:
        node, view = p.node, RowView.of(p.node)
        if node.as_(Normalize).kind in TRAILING:
            for v in (node.get(1), node.get(2)):
                if v is not None and v.type.count != view.columns:
                    return f"{v!r} is broadcast; the general kernel reads one for each element of a line"
        return clamped_refusal(node)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op, view = p.node, p.node.as_(Normalize), RowView.of(p.node)
        scale, bias = node.get(1), node.get(2)
        more: Args = {"epsilon": float(op.epsilon), "has_scale": int(scale is not None)}
        more |= {"has_bias": int(bias is not None), "scale": scale or node.x, "bias": bias or node.x}
        if op.kind not in TRAILING:
            more |= {"period": view.period, "per_line": view.segments, "shared": max(view.run, 1)}
        kind = _MEAN_SQUARE if op.kind == "rms" else _CENTRED
        return self.lines(p, kind, view.rows, view.columns, 1, more)


TYPES = {DType.FLOAT32: 0, DType.INT32: 1, DType.INT64: 2, DType.UINT8: 3, DType.BOOL: 3, DType.INT8: 4}
"""Element types, and how order.cl is told of them."""

MOST = 1024
"""Elements that are found in order by insertion, which takes a time that grows with their square."""


class GenericOrderKernel(GenericKernel):
    """Base class: a work-item per line."""

    source = "generic/generic_topk.cl"

    def builds(self, device: DeviceInfo) -> Sequence[Build]:
        return [Build(self.source)]

    def refuse(self, p: Problem) -> str | None:
        held = storage_of(p.node, p.node.x)
        return None if held in TYPES else f"the general kernel orders no {held}"

    def order(self, p: Problem, axis: int, k: int, indices: Value, args: Mapping[str, Arg]) -> list[Launch]:
        """The launch; `args` are added to those of every launch."""
        x = p.node.x
        outer, length, inner = split_at(x.shape, axis)
        all_args: Args = {"x": x, "indices": indices, "values": indices, "lines": outer * inner}
        all_args |= {"length": length, "inner": inner, "k": k, "type": TYPES[x.type.storage]}
        all_args |= {"last": 0, "nan_first": 0, "has_values": 0, **args}
        return [Launch("order", all_args, (outer * inner,))]


@register
class TopKGeneric(GenericOrderKernel):
    """Insertion sort, for small k."""

    op = "TopK"

    def refuse(self, p: Problem) -> str | None:
        if p.node.as_(TopK).k > MOST:
            return f"the general kernel finds {MOST} elements of a line at most"
        return super().refuse(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        op = p.node.as_(TopK)
        if op.k == 0:
            return []
        values, indices = p.node.outputs
        args: Args = {"values": values, "has_values": 1, "smallest": int(not op.largest)}
        return self.order(p, op.axis, op.k, indices, args)


@register
class ArgReduceGeneric(GenericOrderKernel):
    """The position of a line's first extreme, or of its first NaN if there is one."""

    op = "ArgReduce"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        op = p.node.as_(ArgReduce)
        args: Args = {"smallest": int(op.kind == "min"), "last": int(op.select_last), "nan_first": 1}
        return self.order(p, op.axis, 1, p.node.y, args)
