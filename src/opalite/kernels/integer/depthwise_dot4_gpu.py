"""Int8 depthwise convolution on channel-packed tensors."""

from __future__ import annotations

import numpy as np

from ...cost.cost_tables import IntegerDot
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.place import packed
from ...ops.conv import Convolution
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, packed_epilogue
from ..conv.pack_filters import ConvProblem
from ..kernel import Bindings, Kernel, Params, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from .dot4_common import digest, dot_seconds
from .int8_filter_window import integer_binding, integer_refusal, padded, subtract_zero_point, zero_define


@register
class DepthwiseDot4(Kernel):
    """NCHWc to NCHWc, one filter per channel (group = C = M); a work-item owns TW columns of one block."""

    problem = ConvProblem
    op = "IntegerConv"
    space = {"TW": (2, 1, 4, 7)}

    def refuse(self, p: ConvProblem) -> str | None:
        node = p.node
        channels = (node.x.shape[1], node.y.shape[1])
        if channels != (node.as_(Convolution).group,) * 2:
            return f"{channels[0]} to {channels[1]} channels in {node.as_(Convolution).group} groups is not depthwise"
        return integer_refusal(node) or epilogue_refusal(node, "packed")

    def bindings(self, p: ConvProblem) -> Bindings:
        return (integer_binding(p.node, packed(p.device.pack)),)

    def defaults(self, p: ConvProblem) -> Params:
        win = p.window
        items = p.node.x.shape[0] * ceil_div(p.node.y.shape[1], p.device.pack) * win.out[0] * win.out[1] * win.out[2]
        enough = p.device.compute_units * max(p.device.wave_size, 32) * 8
        return {"TW": next((tw for tw in (4, 2) if items // tw >= enough and tw <= win.out[2]), 1)}

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        return dot_seconds(p.device, cost, IntegerDot.of(p.device).depthwise)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, w, bias, x_zero, y = node.x, node.input(1), node.get(2), node.get(3), node.y
        win, pack, channels = p.window, p.block, y.shape[1]
        blocks = ceil_div(channels, pack)
        epilogue = packed_epilogue(node, p.device)
        args: Args = {"x": x, "w": _filters(w, node.get(4), pack), "y": y}
        if bias is not None:
            args["bias"] = Weight(bias, f"integer bias o{pack}", lambda data: padded(data, pack))
        if x_zero is not None:
            args["x_zero"] = x_zero if x_zero.data is None else int(x_zero.data.reshape(()))
        args |= {"batch": x.shape[0], "blocks": blocks, "channels": channels, **win.args(), **epilogue.args}
        defines = win.defines() | {"PACK": pack, "HAS_BIAS": bias is not None, "X_ZERO": zero_define(x_zero)}
        defines |= {"MASK": channels % pack != 0, "A_SIGNED": x.dtype is DType.INT8, "TW": params["TW"]}
        defines["STORAGE"] = STORAGE[y.type.storage]
        d, h, width = win.out
        grid = (ceil_div(width, params["TW"]) * d * h, blocks, x.shape[0])
        return [Launch("integer_depthwise", args, grid, None, defines, epilogue.prelude)]


def _filters(w: Value, zero: Value | None, pack: int) -> Weight:
    """Filters [C, 1, K...] minus their zero points as int32[blocks, taps, pack]."""

    def blocks(data: Array) -> Array:
        taps = subtract_zero_point(data, zero).reshape(data.shape[0], -1)
        padded = np.zeros((ceil_div(taps.shape[0], pack) * pack, taps.shape[1]), np.int32)
        padded[: taps.shape[0]] = taps
        return np.ascontiguousarray(padded.reshape(-1, pack, taps.shape[1]).swapaxes(1, 2))

    return Weight(w, f"integer depthwise filter o{pack} less {digest(zero)}", blocks)
