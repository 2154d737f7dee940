"""Softmax on row-major tensors: along rows, or along any axis."""

from __future__ import annotations

from ...cost.cost_tables import SequentialSteps
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ops.operator import Cost
from ...ops.softmax import Softmax
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch, ceil_div
from ..reduce.cumulative import lines_launch, split_at
from ..reduce.work_group_rows import ROW_SPACE, RowKernel, row_group, row_prelude, row_width


class _Softmax(Kernel):
    """Base class of the softmax kernels: source and defines."""

    op = "Softmax"

    def _defines(self, node: Node, device: DeviceInfo) -> Defines:
        stored = node.y.type.storage
        # A CPU caches a line, and computing exp twice costs more than a store and a load.
        stash = device.is_cpu and stored in (DType.FLOAT32, DType.FLOAT64)
        return {"STORAGE": STORAGE[stored], "LOG": node.as_(Softmax).log, "STASH": stash}


@register
class SoftmaxRows(RowKernel, _Softmax):
    """Softmax along the last axis: a work-item per row on a CPU, several per row on a GPU."""

    space = {"PACK": (2, 16, 8, 4, 1), **ROW_SPACE}

    def refuse(self, p: Problem) -> str | None:
        inner = split_at(p.node.x.shape, p.node.as_(Softmax).axis)[2]
        return None if inner == 1 else f"elements along axis {p.node.as_(Softmax).axis} have stride {inner}"

    def defaults(self, p: Problem) -> Params:
        rows, columns, _ = split_at(p.node.x.shape, p.node.as_(Softmax).axis)
        return {"PACK": row_width(columns, p.device), **row_group(columns, rows, p.device)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        rows, columns, _ = split_at(node.x.shape, node.as_(Softmax).axis)
        defines = {**self._defines(node, p.device), **params}
        group = (params["WG"], params["ROWS"])
        args: Args = {"x": node.x, "y": node.y, "rows": rows, "columns": columns}
        return [Launch("softmax_rows", args, (group[0], rows), group, defines, row_prelude(p.device))]


@register
class SoftmaxAnyAxis(_Softmax):
    """Softmax along any axis: a work-item for some adjacent lines."""

    space = {"VEC": (1, 4, 16, 8, 2), "WG": (64, 1, 4, 16, 128, 256)}

    def illegal(self, p: Problem, params: Params) -> str | None:
        limit = p.device.max_work_group_size
        return f"the device runs at most {limit} work-items in a group" if params["WG"] > limit else None

    def defaults(self, p: Problem) -> Params:
        if p.device.is_cpu:
            return {"VEC": min(16, p.device.native_float_width), "WG": 4}
        return {"VEC": 1, "WG": min(64, p.device.max_work_group_size)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        defines = {**self._defines(node, p.device), "VEC": params["VEC"]}
        return [lines_launch("softmax_lines", node, node.as_(Softmax).axis, params, defines)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        outer, length, inner = split_at(p.node.x.shape, p.node.as_(Softmax).axis)
        walk = SequentialSteps.named(self.cost_name, p.device)
        lanes = min(inner, p.device.native_float_width) if p.device.is_cpu else 1
        rounds = walk.turns(outer * ceil_div(inner, lanes), p.device)
        return cost.bytes / p.device.bandwidth + rounds * length * walk.step_s + p.device.launch_s
