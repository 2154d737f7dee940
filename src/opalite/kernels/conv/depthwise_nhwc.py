"""Depthwise convolution on channels-last tensors."""

from __future__ import annotations

import numpy as np

from ...ir.place import FLAT
from ...ir.symbols import hint_of
from ...ops.conv import DepthwiseNhwc
from ..codegen.epilogue import epilogue_binding, epilogue_refusal, rows_epilogue
from ..kernel import Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .pack_filters import bias_weight

_COLUMNS = 24  # most input columns that a work-item holds


@register
class DepthwiseRowsTile(Kernel):
    """A work-item owns TW columns of PACK channels."""

    op = "DepthwiseNhwc"
    half_sums = True
    space = {"PACK": (4, 16, 8, 2, 1), "TW": (4, 2, 1, 7, 8)}

    def refuse(self, p: Problem) -> str | None:
        weights, bias = p.node.input(1), p.node.get(2)
        if not weights.is_const or (bias is not None and not bias.is_const):
            return "weights and bias must be constants"
        if self._columns(p, 1) > _COLUMNS:
            return f"a filter {self._columns(p, 1)} columns wide takes too many registers"
        return epilogue_refusal(p.node, "rows")

    def bindings(self, p: Problem) -> Bindings:
        return (epilogue_binding(p.node, "rows", FLAT),)

    def illegal(self, p: Problem, params: Params) -> str | None:
        if p.node.x.shape[3] % params["PACK"]:
            return "PACK must divide the channels"
        return "the tile exceeds the registers" if self._columns(p, params["TW"]) > _COLUMNS else None

    def defaults(self, p: Problem) -> Params:
        channels = p.node.x.shape[3]
        wide = (p.device.pack, 8, 4, 2, 1) if p.device.is_cpu else (4, 2, 1)
        pack = next(w for w in wide if channels % w == 0)
        n, h, w, _ = hint_of(p.node.y.shape)
        # On a GPU many work-items matter more than loading columns once.
        most = 7 if p.device.is_cpu else 4 if n * h * w * channels // pack >= 4096 * p.device.compute_units else 2
        tiles = [t for t in (7, 4, 2, 1) if t <= most and self._columns(p, t) <= _COLUMNS]
        return {"PACK": pack, "TW": min(tiles, key=lambda t: (ceil_div(w, t) * (t + 3), -t))}

    def _columns(self, p: Problem, tile: int) -> int:
        op = p.node.as_(DepthwiseNhwc)
        reach: int = (p.node.input(1).shape[3] - 1) * op.dilations[1]
        return (tile - 1) * op.strides[1] + reach + 1

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node, op, storage = p.node, p.node.as_(DepthwiseNhwc), p.node.x.type.storage
        (_, ih, iw, channels), (n, oh, ow, _) = node.x.shape, node.y.shape
        kh, kw = node.input(1).shape[2:]
        pack, tile, bias = params["PACK"], params["TW"], node.get(2)
        epilogue = rows_epilogue(node, p.device, aligned=True)

        def by_tap(data: Array) -> Array:
            return np.ascontiguousarray(data.reshape(data.shape[0], -1).T.astype(storage.np))

        args: Args = {"x": node.x, "w": Weight(node.input(1), f"taps by channels {storage}", by_tap)}
        if bias is not None:
            args["bias"] = bias_weight(bias, pack, storage)
        args |= {"y": node.y, "channels": channels, "lines": n * oh, "ih": ih, "iw": iw, "oh": oh, "ow": ow}
        args |= {"top": op.pads[0], "left": op.pads[1], **epilogue.args}
        defines = {"STORAGE": STORAGE[storage], "PACK": pack, "TW": tile, "KH": kh, "KW": kw}
        defines |= {"SH": op.strides[0], "SW": op.strides[1], "DH": op.dilations[0], "DW": op.dilations[1]}
        defines["HAS_BIAS"] = bias is not None
        grid = (channels // pack, ceil_div(ow, tile), n * oh)
        return [Launch("depthwise_rows", args, grid, None, defines, epilogue.prelude)]
