"""GridSample of images and volumes, row-major or channel-packed."""

from __future__ import annotations

import math

from ...ir.dtype import DType
from ...ir.place import FLAT, packed
from ...ops.grid_sample import PADDINGS, TAPS, GridSample
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, ceil_div


class _GridSample(Kernel):
    """Base class: a work-item finds the taps of some positions and applies them to several channel blocks."""

    op = "GridSample"
    space = {"CHUNK": (4, 1, 16, 64), "RUN": (1, 4, 8, 16), "WG": (64, 16, 128, 256)}

    def refuse(self, p: Problem) -> str | None:
        return None if p.node.x.dtype.is_float else f"it interpolates floats, got {p.node.x.type}"

    def defaults(self, p: Problem) -> Params:
        if not p.device.is_cpu:
            return {"CHUNK": 4, "RUN": 1, "WG": 64}
        # Adjacent positions read one plane at a time, since planes of a power-of-two size map to the same cache sets.
        few = TAPS[p.node.as_(GridSample).mode] < 4
        return {"CHUNK": 16, "RUN": 8 if few else 1, "WG": 16}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        x, grid, y, op = node.x, node.input(1), node.y, node.as_(GridSample)
        n, channels, *sizes = x.shape
        pack = y.type.layout.pack
        blocks = ceil_div(channels, pack)
        chunks = ceil_div(blocks, params["CHUNK"])
        positions = math.prod(y.shape[2:])
        items = n * chunks * ceil_div(positions, params["RUN"])
        depth, height, width = (1, *sizes)[-3:]
        defines = {"STORAGE": STORAGE[y.type.storage], "POSITION_STORAGE": STORAGE[grid.type.storage], "PACK": pack}
        defines |= {"DIMS": len(sizes), "TAPS": TAPS[op.mode], "CHUNK": params["CHUNK"], "RUN": params["RUN"]}
        args: Args = {"x": x, "grid": grid, "y": y, "items": items, "positions": positions, "chunks": chunks}
        args |= {"blocks": blocks, "depth": depth, "height": height, "width": width}
        args |= {"padding": PADDINGS.index(op.padding), "corners": int(op.align_corners)}
        return [Launch("grid_sample", args, (items,), (params["WG"],), defines)]


@register
class GridSampleFlat(_GridSample):
    """Row-major, channel by channel."""


@register
class GridSamplePacked(_GridSample):
    """Channel blocks; the lanes of a block share the position's taps."""

    def refuse(self, p: Problem) -> str | None:
        if p.node.x.dtype not in (DType.FLOAT32, DType.FLOAT16) or p.node.x.type.rank != 4:
            return f"channel blocks hold [N,C,H,W] of f32 or f16, got {p.node.x.type}"
        return None

    def bindings(self, p: Problem) -> Bindings:
        layout = packed(p.device.pack)
        return (Binding((layout, FLAT), (layout,)),)
