"""Rotate: by vectors on CPUs, a pair for each work-item elsewhere; x is read where it lies."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.types import Shape
from ...ops.rotate import Rotate
from ...ops.view import View
from ..base import Arg, Kernel, Launch, Params, Problem, Space
from ..registry import register
from ..sources import STORAGE
from ..workgroups import group_refusal

MOST = 1 << 31
"""Elements that 32-bit steps reach."""


@register
class RotateRows(Kernel):
    """PAIRS: whether a work-item turns one pair, WG of them along a row in a group, or all heads of a position."""

    op = "Rotate"
    source = "elementwise/rotate.cl"
    space: ClassVar[Space] = {"PAIRS": (1, 0), "WG": (32, 1, 16, 64)}

    def refuse(self, p: Problem) -> str | None:
        largest = max(v.type.count for v in (*p.node.inputs, *p.node.outputs) if v is not None)
        return f"a tensor of {largest} elements is beyond 32-bit indices" if largest >= MOST else None

    def illegal(self, p: Problem, params: Params) -> str | None:
        if not params["PAIRS"] and params["WG"] > 1:
            return "a work-item takes whole rows"
        return group_refusal(params["WG"], p.device)

    def defaults(self, p: Problem) -> dict[str, Any]:
        return {"PAIRS": 0, "WG": 1} if p.device.is_cpu else super().defaults(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, y = p.node, p.node.y
        if not y.type.count:
            return []
        batches, heads, rows, size = y.shape
        places = View.whole(node.x.shape).transpose(node.as_(Rotate).perm).strides
        tables = _steps(node.input(1).shape)
        args: dict[str, Arg] = {"x": node.x, "cosines": node.input(1), "sines": node.input(2), "y": y}
        args |= {"batches": batches, "heads": heads, "S": rows, "half_row": size // 2}
        args |= {"second": size // 2 if node.input(1).shape[-1] == size else 0}
        args |= dict(zip(("x_b", "x_h", "x_s", "t_b", "t_h", "t_s"), (*places[:3], *tables), strict=True))
        defines = {"STORAGE": STORAGE[y.type.storage], "PACK": p.device.pack, "PAIRS": params["PAIRS"]}
        grid = (size // 2, rows, batches * heads) if params["PAIRS"] else (rows, batches, 1)
        return [Launch("rotate_rows", args, grid, (params["WG"], 1, 1), defines)]


def _steps(shape: Shape) -> tuple[int, int, int]:
    """Elements from one b, h and s to the next in tables of `shape`; 0 where they broadcast."""
    whole = (1,) * (4 - len(shape)) + tuple(shape)
    strides = View.whole(whole).strides
    b, h, s = (0 if type(size) is int and size == 1 else step for size, step in zip(whole[:3], strides, strict=False))
    return b, h, s
