"""Base of depthwise convolution and pooling on channel-packed tensors: layouts, tiles, launch."""

from __future__ import annotations

from ...cost.cost_tables import RegisterTile, Windows
from ...ir.graph import Node
from ...ir.place import packed
from ...ops.operator import Cost
from ..codegen.epilogue import operand_layouts, packed_epilogue
from ..filter_window import WindowProblem, find_span
from ..kernel import Binding, Bindings, Kernel, Params
from ..launch import STORAGE, Args, Defines, Launch, ceil_div


class ChannelwisePacked(Kernel):
    """Windows over single channels; a work-item owns TW columns of one block."""

    problem = WindowProblem
    space = {"TW": (7, 8, 1, 2, 3, 4, 5, 6, 10, 14)}

    def constants(self, node: Node, pack: int) -> Args:
        """Kernel arguments between input and output."""
        raise NotImplementedError

    def kind(self, node: Node) -> Defines:
        """The defines that select the computation over a window."""
        raise NotImplementedError

    def bindings(self, p: WindowProblem) -> Bindings:
        y = packed(p.device.pack)
        constants = (None,) * len(p.node.inputs[1 : p.node.op.arity])
        return (Binding((y, *constants, *operand_layouts(p.node, "packed", y)), (y,)),)

    def illegal(self, p: WindowProblem, params: Params) -> str | None:
        registers = 32 if p.block >= 16 else 16
        win, tw = p.window, params["TW"]
        _, run, step = win.runs()
        loaded = ((tw - 1) * win.strides[2] + (run - 1) * win.dilations[2]) // step
        return "the tile exceeds the registers" if tw > 1 and tw + loaded >= registers else None

    def defaults(self, p: WindowProblem) -> Params:
        columns = p.window.out[2]
        widths = [w for w in self.space["TW"] if self.illegal(p, {"TW": w}) is None]
        if not p.device.is_cpu:
            widths = [w for w in widths if w <= 4]
        # The fewest computed columns, counting what each tile costs by itself; of those hardly slower, the
        # first of the space, so that layers share a program.
        fixed = Windows.of(p.device).tile
        costs = {w: ceil_div(columns, w) * (w + fixed) for w in widths}
        return {"TW": next(w for w in widths if costs[w] <= RegisterTile.of(p.device).slack * min(costs.values()))}

    def seconds(self, p: WindowProblem, cost: Cost) -> float:
        channels = p.node.x.shape[1]
        waste = ceil_div(channels, p.device.pack) * p.device.pack / channels
        nbytes = cost.bytes + (waste - 1) * (p.node.x.type.nbytes + p.node.y.type.nbytes)
        return super().seconds(p, Cost(cost.flops * waste, nbytes))

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node = p.node
        x, y, win, tw = node.x, node.y, p.window, params["TW"]
        pack, channels = p.block, y.shape[1]
        blocks = ceil_div(channels, pack)
        _, run, step = win.runs()
        epilogue = packed_epilogue(node, p.device)
        d, h, w = win.out
        tiles = ceil_div(w, tw) * d * h
        span = find_span(tiles, blocks * x.shape[0], p.device)
        args: Args = {
            "x": x,
            **self.constants(node, pack),
            "y": y,
            "span": span,
            "batch": x.shape[0],
            "blocks": blocks,
        }
        args |= {"channels": channels, **win.args(ends=True), **epilogue.args}
        defines = {**win.defines(), **self.kind(node), "PACK": pack, "TW": tw, "RUN": run, "STEP": step}
        defines |= {"MASK": channels % pack != 0, "STORAGE": STORAGE[x.type.storage]}
        grid = (ceil_div(tiles, span), blocks, x.shape[0])
        group = (1, 1, 1) if p.device.is_cpu else None
        return [Launch("channelwise_packed", args, grid, group, defines, epilogue.prelude)]
