"""Cumulative on row-major tensors: a sequential loop per line, or a work-group's parallel scan of few long lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...cost.cost_tables import SequentialSteps
from ...ir.graph import Node
from ...ops.cumulative import Cumulative
from ...ops.operator import Cost
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch, ceil_div


def split_at(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(outer, length, inner): `shape` as three axes with `axis` in the middle."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def lines_launch(entry: str, node: Node, axis: int, params: Params, defines: Mapping[str, Any]) -> Launch:
    """The launch of a kernel whose work-items each compute VEC adjacent lines along `axis`."""
    outer, length, inner = split_at(node.x.shape, axis)
    chunks = ceil_div(inner, params["VEC"])
    items = outer * chunks
    sizes = {"items": items, "chunks": chunks, "length": length, "inner": inner}
    return Launch(entry, {"x": node.x, "y": node.y, **sizes}, (items,), (params["WG"],), defines)


class _Cumulative(Kernel):
    """Base class of the cumulative kernels."""

    op = "Cumulative"

    def _defines(self, node: Node) -> Defines:
        op = node.as_(Cumulative)
        return {
            "STORAGE": STORAGE[node.y.type.storage],
            "PROD": op.kind == "prod",
            "EXCLUSIVE": op.exclusive,
            "REVERSE": op.reverse,
        }


@register
class CumulativeSequential(_Cumulative):
    """One work-item for some adjacent lines."""

    space = {"VEC": (1, 4, 16, 8, 2), "WG": (64, 16, 128, 256)}

    def defaults(self, p: Problem) -> Params:
        return {"VEC": min(16, p.device.native_float_width), "WG": 4} if p.device.is_cpu else {"VEC": 1, "WG": 64}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        defines = {**self._defines(node), "VEC": params["VEC"]}
        return [lines_launch("cumulative_walk", node, node.as_(Cumulative).axis, params, defines)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        outer, length, inner = split_at(p.node.x.shape, p.node.as_(Cumulative).axis)
        walk = SequentialSteps.seconds(self.cost_name, p.device, outer * inner, length)
        return cost.bytes / p.device.bandwidth + walk + p.device.launch_s


@register
class CumulativeParallelScan(_Cumulative):
    """One work-group per line; the order of additions differs from the reference's."""

    space = {"WG": (256, 64, 128, 512)}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        outer, length, inner = split_at(node.x.shape, node.as_(Cumulative).axis)
        defines = {**self._defines(node), "WG": params["WG"]}
        args: Args = {"x": node.x, "y": node.y, "length": length, "inner": inner}
        return [Launch("cumulative_scan", args, (outer * inner * params["WG"],), (params["WG"],), defines)]

    def seconds(self, p: Problem, cost: Cost) -> float:
        outer, length, inner = split_at(p.node.x.shape, p.node.as_(Cumulative).axis)
        walk = SequentialSteps.seconds(self.cost_name, p.device, outer * inner, ceil_div(length, 256))
        return cost.bytes / p.device.bandwidth + walk + p.device.launch_s
