"""Rotate: by vectors on CPUs, some pairs for each work-item elsewhere; x is read where it lies."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.graph import Node
from ...ir.symbols import at_least, hint_of, may_leave_rest
from ...ir.types import Shape
from ...ops.rotate import Rotate
from ...ops.view import View
from ..base import Arg, Kernel, Launch, Params, Problem, Space, ceil_div
from ..registry import register
from ..sources import STORAGE
from ..workgroups import group_refusal

MOST = 1 << 31
"""Elements that 32-bit steps reach."""


@register
class RotateRows(Kernel):
    """PAIRS: how many pairs a work-item turns, in groups of WG; 0: all heads of a position."""

    op = "Rotate"
    source = "elementwise/rotate.cl"
    space: ClassVar[Space] = {"PAIRS": (4, 1, 0), "WG": (128, 1, 32, 64, 256)}

    def refuse(self, p: Problem) -> str | None:
        largest = at_least(v.type.count for v in (*p.node.inputs, *p.node.outputs) if v is not None)
        return f"a tensor of {largest!r} elements is beyond 32-bit indices" if largest >= MOST else None

    def illegal(self, p: Problem, params: Params) -> str | None:
        if not params["PAIRS"] and params["WG"] > 1:
            return "a work-item takes whole rows"
        if params["PAIRS"] > 1 and any(may_leave_rest(n, params["PAIRS"]) for n in _widths(p.node)):
            return f"not all vectors of {params['PAIRS']} elements begin at multiples of that"
        return group_refusal(params["WG"], p.device)

    def defaults(self, p: Problem) -> dict[str, Any]:
        return {"PAIRS": 0, "WG": 1} if p.device.is_cpu else super().defaults(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, y = p.node, p.node.y
        if not y.type.count:
            return []
        batches, heads, rows = y.shape[:3]
        x_b, x_h, x_s, t_b, t_h, t_s, half_row, second = _widths(node)
        args: dict[str, Arg] = {"x": node.x, "cosines": node.input(1), "sines": node.input(2), "y": y}
        args |= {"batches": batches, "heads": heads, "S": rows, "half_row": half_row, "second": second}
        args |= {"x_b": x_b, "x_h": x_h, "x_s": x_s, "t_b": t_b, "t_h": t_h, "t_s": t_s}
        pairs = params["PAIRS"]
        defines = {"STORAGE": STORAGE[y.type.storage], "PACK": pairs if pairs > 1 else p.device.pack, "PAIRS": pairs}
        if not pairs:
            return [Launch("rotate_rows", args, (rows, batches), (params["WG"], 1), defines)]
        across = ceil_div(half_row, pairs)
        along = min(params["WG"], 1 << (hint_of(across) - 1).bit_length())
        return [Launch("rotate_rows", args, (across, batches * heads * rows), (along, params["WG"] // along), defines)]


def _widths(node: Node) -> tuple[int, ...]:
    """Elements from one b, h and s to the next in x and in tables, of half a row, and to the tables' second half."""
    size = node.y.shape[-1]
    places = View.whole(node.x.shape).transpose(node.as_(Rotate).perm).strides
    second = size // 2 if node.input(1).shape[-1] == size else 0
    return *places[:3], *_steps(node.input(1).shape), size // 2, second


def _steps(shape: Shape) -> tuple[int, int, int]:
    """Elements from one b, h and s to the next in tables of `shape`; 0 where they broadcast."""
    whole = (1,) * (4 - len(shape)) + tuple(shape)
    strides = View.whole(whole).strides
    b, h, s = (0 if type(size) is int and size == 1 else step for size, step in zip(whole[:3], strides, strict=False))
    return b, h, s
