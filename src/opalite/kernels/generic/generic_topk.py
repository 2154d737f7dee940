"""Generic TopK and ArgReduce by one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.reduce import ArgReduce
from ...ops.topk import TopK
from ..kernel import Params, Problem, register
from ..launch import Arg, Args, Launch
from ..reduce.cumulative import split_at
from .generic_kernel import Build, GenericKernel, storage_of

TYPES = {DType.FLOAT32: 0, DType.INT32: 1, DType.INT64: 2, DType.UINT8: 3, DType.BOOL: 3, DType.INT8: 4}
"""Element types, and how order.cl is told of them."""

MOST = 1024
"""Elements that are found in order by insertion, which takes a time that grows with their square."""


class GenericOrderKernel(GenericKernel):
    """Base class: a work-item per line."""

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
