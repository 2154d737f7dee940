"""RoiPool of images: a work-item per bin and channel."""

from __future__ import annotations

from ...ops.roi import FARTHEST, RoiPool
from ..kernel import Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch


@register
class RoiPoolFlat(Kernel):
    """Row-major, channel by channel."""

    op = "RoiPool"
    space = {"WG": (64, 16, 128, 256)}

    def refuse(self, p: Problem) -> str | None:
        return None if p.node.x.dtype.is_float else f"it compares floats, got {p.node.x.type}"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        x, regions, y, op = p.node.x, p.node.input(1), p.node.y, p.node.as_(RoiPool)
        count, channels, height, width = x.shape
        defines: Defines = {"STORAGE": STORAGE[y.type.storage], "FARTHEST": FARTHEST, "PACK": 1}
        defines["POSITION_STORAGE"] = STORAGE[regions.type.storage]
        args: Args = {"x": x, "regions": regions, "y": y, "items": y.type.count, "rows": op.rows}
        args |= {"columns": op.columns, "channels": channels, "count": count, "height": height, "width": width}
        return [Launch("roi_pool", args | {"scale": op.scale}, (y.type.count,), (params["WG"],), defines)]
