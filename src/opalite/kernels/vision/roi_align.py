"""RoiAlign of images, row-major or channel-packed, and RoiPool."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.place import FLAT, packed
from ...ops.roi import FARTHEST, MOST, RoiAlign, RoiPool
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch, ceil_div


class _RoiAlign(Kernel):
    """Base class: a work-item finds the sample positions of one bin and applies them to several channel blocks."""

    op = "RoiAlign"
    space = {"CHUNK": (4, 1, 2, 8, 16), "WG": (64, 16, 128, 256)}
    untuned = {"CHUNK": 16, "WG": 16}, {"CHUNK": 4, "WG": 64}

    def refuse(self, p: Problem) -> str | None:
        return None if p.node.x.dtype.is_float else f"it interpolates floats, got {p.node.x.type}"

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, regions, images, y, op = node.x, node.input(1), node.input(2), node.y, node.as_(RoiAlign)
        count, channels, height, width = x.shape
        pack = y.type.layout.pack
        blocks = ceil_div(channels, pack)
        chunks = ceil_div(blocks, params["CHUNK"])
        items = regions.shape[0] * chunks * op.rows * op.columns
        defines: Defines = {"STORAGE": STORAGE[y.type.storage], "POSITION_STORAGE": STORAGE[regions.type.storage]}
        defines |= {"INDEX": "long" if images.dtype is DType.INT64 else "int", "PACK": pack, "MAXIMUM": op.maximum}
        defines |= {"MOST": MOST, "CHUNK": params["CHUNK"]}
        args: Args = {"x": x, "regions": regions, "images": images, "y": y, "items": items}
        args |= {"rows": op.rows, "columns": op.columns, "chunks": chunks, "blocks": blocks, "count": count}
        args |= {"height": height, "width": width, "ratio": op.ratio, "scale": op.scale}
        args |= {"offset": op.offset, "least": op.least}
        return [Launch("roi_align", args, (items,), (params["WG"],), defines)]


@register
class RoiAlignFlat(_RoiAlign):
    """Row-major, channel by channel."""


@register
class RoiAlignPacked(_RoiAlign):
    """Channel blocks; the lanes of a block share the sample weights."""

    def refuse(self, p: Problem) -> str | None:
        if p.node.x.dtype not in (DType.FLOAT32, DType.FLOAT16):
            return f"channel blocks hold f32 or f16, got {p.node.x.type}"
        return None

    def bindings(self, p: Problem) -> Bindings:
        layout = packed(p.device.pack)
        return (Binding((layout, FLAT, FLAT), (layout,)),)


@register
class RoiPoolFlat(Kernel):
    """Row-major, channel by channel."""

    source = "vision/roi_pool.cl"
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
