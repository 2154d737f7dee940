"""What depthwise convolution and pooling on channel-packed tensors share: layouts, tiles and the launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ...cost.tables import RegisterTile, Windows
from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ir.place import packed
from ...ops.base import Cost
from ..base import Arg, Binding, Kernel, Launch, Params, Space, ceil_div
from ..codegen.epilogue import operand_layouts, packed_epilogue
from ..sources import STORAGE
from ..window import Window, block_size, find_span


class ChannelwisePacked(Kernel):
    """Windows over each channel by itself; a work-item owns TW columns of one block."""

    source = "conv/channelwise.cl"
    space: ClassVar[Space] = {"TW": (7, 8, 1, 2, 3, 4, 5, 6, 10, 14)}

    def constants(self, node: Node, pack: int) -> tuple[Arg, ...]:
        """Kernel arguments between input and output."""
        raise NotImplementedError

    def kind(self, node: Node) -> dict[str, Any]:
        """The defines that say what is computed over a window."""
        raise NotImplementedError

    def bindings(self, node: Node, device: DeviceInfo) -> Sequence[Binding]:
        y = packed(device.pack)
        constants = (None,) * len(node.inputs[1 : node.op.arity])
        return (Binding((y, *constants, *operand_layouts(node, "packed", y)), (y,)),)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        registers = 32 if block_size(node, device) >= 16 else 16
        win, tw = Window.of(node), params["TW"]
        _, run, step = win.runs()
        loaded = ((tw - 1) * win.strides[2] + (run - 1) * win.dilations[2]) // step
        return "the tile exceeds the registers" if tw > 1 and tw + loaded >= registers else None

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        columns = Window.of(node).out[2]
        widths = [w for w in self.space["TW"] if self.illegal(node, {"TW": w}, device) is None]
        if not device.is_cpu:
            widths = [w for w in widths if w <= 4]
        # The fewest computed columns, counting what each tile costs by itself; of those hardly slower, the
        # first of the space, so that layers share a program.
        fixed = Windows.of(device).tile
        costs = {w: ceil_div(columns, w) * (w + fixed) for w in widths}
        return {"TW": next(w for w in widths if costs[w] <= RegisterTile.of(device).slack * min(costs.values()))}

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        channels = node.x.shape[1]
        waste = ceil_div(channels, device.pack) * device.pack / channels
        nbytes = cost.bytes + (waste - 1) * (node.x.type.nbytes + node.y.type.nbytes)
        return super().seconds(node, device, Cost(cost.flops * waste, nbytes))

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        x, y, win, tw = node.x, node.y, Window.of(node), params["TW"]
        pack, channels = block_size(node, device), y.shape[1]
        blocks = ceil_div(channels, pack)
        _, run, step = win.runs()
        epilogue = packed_epilogue(node, device)
        d, h, w = win.out
        tiles = ceil_div(w, tw) * d * h
        span = find_span(tiles, blocks * x.shape[0], device)
        args: tuple[Arg, ...] = (x, *self.constants(node, pack), y, span, x.shape[0], blocks, channels)
        args += (*win.size, *win.out, *win.begin, *win.end, *epilogue.args)
        defines = {**win.defines(), **self.kind(node), "PACK": pack, "TW": tw, "RUN": run, "STEP": step}
        defines |= {"MASK": channels % pack != 0, "STORAGE": STORAGE[x.type.storage]}
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        group = (1, 1, 1) if device.is_cpu else None
        return [Launch("channelwise_packed", args, grid, group, defines, epilogue.prelude)]
