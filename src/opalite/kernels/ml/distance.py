"""Distance in flat layout: a tile of rows by neighbouring columns a work-item."""

from __future__ import annotations

from typing import Any, ClassVar

from ...ir.device import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ops.pairwise import Distance
from ..base import Kernel, Launch, Params, Space, ceil_div
from ..registry import register
from ..sources import STORAGE


@register
class DistanceTile(Kernel):
    """Any sizes; columns that fill no vector are computed one at a time."""

    op = "Distance"
    source = "ml/distance.cl"
    space: ClassVar[Space] = {"PACK": (4, 1, 8, 16), "ROWS": (4, 1, 2, 8)}

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        rows, columns = node.y.shape
        lanes = max(4, min(16, device.native_float_width)) if device.is_cpu else 4
        if node.x.type.storage is DType.FLOAT64:
            lanes = max(2, lanes // 2)
        while lanes > 1 and columns < lanes:
            lanes //= 2
        return {
            "PACK": lanes,
            "ROWS": 8 if device.is_cpu and rows >= 8 else min(4, 1 << (max(1, rows).bit_length() - 1)),
        }

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        rows, features = node.x.shape
        columns = node.y.shape[1]
        defines = {"STORAGE": STORAGE[node.x.type.storage], "POWER": int(node.as_(Distance).power), **params}
        grid = (ceil_div(columns, params["PACK"]), ceil_div(rows, params["ROWS"]))
        args = (node.x, node.input(1), node.y, rows, features, columns)
        return [Launch("distance_tile", args, grid, defines=defines)]
