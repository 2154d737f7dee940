"""TopK on row-major tensors: a heap per line, or selection and sorting by a work-group per line."""

from __future__ import annotations

import math

from ...cost.cost_tables import SequentialSteps
from ...ir.graph import Node
from ...ops.operator import Cost
from ...ops.topk import TopK
from ..kernel import Kernel, Params, Problem, register
from ..kernel_sources import read_source
from ..launch import STORAGE, Args, Defines, Launch, Scratch, ceil_div
from .cumulative import split_at


class _TopK(Kernel):
    """Base class of the TopK kernels."""

    op = "TopK"

    def _defines(self, node: Node) -> Defines:
        stored = node.outputs[0].type.storage
        return {"STORAGE": STORAGE[stored], "LARGEST": node.as_(TopK).largest, "WORST_ON_TOP": True}


@register
class TopKHeap(_TopK):
    """One work-item per line: for few cores or many lines."""

    space = {"WG": (64, 1, 16, 128)}
    untuned = {"WG": 1}, {"WG": 64}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        outer, length, inner = split_at(node.x.shape, node.as_(TopK).axis)
        lines, k = outer * inner, node.as_(TopK).k
        values, indices = node.outputs
        args: Args = {"x": node.x, "values": values, "indices": indices, "lines": lines}
        args |= {"scratch": Scratch("heap", 4 * lines * k), "length": length, "inner": inner, "k": k}
        if k == 0:
            return []
        prelude = read_source("include/ordering_and_heap.cl")
        return [Launch("topk_heap", args, (lines,), (params["WG"],), self._defines(node), prelude)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        outer, length, inner = split_at(p.node.x.shape, p.node.as_(TopK).axis)
        k = int(p.node.as_(TopK).k)
        steps = length + 4 * (k * math.log2(k + 1))
        return SequentialSteps.seconds(self.cost_name, p.device, outer * inner, steps) + p.device.launch_s


@register
class TopKSelect(_TopK):
    """One work-group per line: for GPUs with few long lines."""

    space = {"WG": (256, 64, 128, 512)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        outer, length, inner = split_at(node.x.shape, node.as_(TopK).axis)
        lines, k = outer * inner, node.as_(TopK).k
        values, indices = node.outputs
        if k == 0:
            return []
        room = 1 << (k - 1).bit_length()
        args: Args = {"x": node.x, "values": values, "indices": indices, "length": length, "inner": inner}
        args |= {"scratch": Scratch("order", 4 * lines * room), "k": k, "room": room}
        defines = {**self._defines(node), "WG": params["WG"]}
        prelude = read_source("include/ordering_and_heap.cl")
        return [Launch("topk_select", args, (lines * params["WG"],), (params["WG"],), defines, prelude)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        outer, length, inner = split_at(p.node.x.shape, p.node.as_(TopK).axis)
        room = 1 << max(int(p.node.as_(TopK).k) - 1, 0).bit_length()
        stages = room.bit_length() * (room.bit_length() + 1) // 2
        steps = 5 * ceil_div(length, 256) + stages * ceil_div(room, 512)
        return SequentialSteps.seconds(self.cost_name, p.device, outer * inner, steps) + p.device.launch_s
