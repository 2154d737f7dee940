"""Direct convolution whose sums are shared out over work-items: for GPUs, which small images alone would not fill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ...cost.tables import SplitConv
from ...ir.device import DeviceInfo
from ...ir.graph import Node
from ...ir.place import packed
from ...ops.base import Cost
from ...ops.conv import Convolution
from ..base import Arg, Array, Binding, Kernel, Launch, Params, Space, Weight, ceil_div
from ..codegen.epilogue import operand_layouts, packed_epilogue
from ..registry import register
from ..sources import STORAGE
from ..window import Window, block_size
from .filters import Groups, bias_weight, pack_filters
from .packed import MAX_MERGE, packed_refusal

_ACCUMULATORS = 64  # numbers that a work-item sums, so that enough work-items fit a compute unit
_MOST_ITEMS = 256  # in a work-group; NVIDIA's driver reports this limit even where the kernel requires more


@register
class ConvSplit(Kernel):
    """NCHWc to NCHWc; SPLIT work-items share the taps and channels of TP positions of TB output blocks."""

    half_sums = True
    op = "Conv"
    source = "conv/split.cl"
    space: ClassVar[Space] = {
        "LX": (32, 16, 64),
        "SPLIT": (1, 2, 4, 8),
        "TP": (1, 2, 4),
        "TB": (1, 2, 4),
        "UNROLL": (4, 1, 2),
    }

    def refuse(self, node: Node, device: DeviceInfo) -> str | None:
        if device.is_cpu:
            return "a CPU's cores need no more work-items than there are output tiles"
        if node.as_(Convolution).group == node.x.shape[1]:
            return "one channel to a group leaves nothing to share out"
        why = packed_refusal(node)
        if why is not None:
            return why
        merged = self._groups(node, device).merged
        return f"{merged} groups would have to be merged to fill channel blocks" if merged > MAX_MERGE else None

    def bindings(self, node: Node, device: DeviceInfo) -> Sequence[Binding]:
        y = packed(device.pack)
        constants = (None,) * len(node.inputs[1:3])
        return (Binding((y, *constants, *operand_layouts(node, "packed", y)), (y,)),)

    def illegal(self, node: Node, params: Params, device: DeviceInfo) -> str | None:
        items, tile = params["LX"] * params["SPLIT"], params["TP"] * params["TB"]
        pack = block_size(node, device)
        if items > min(_MOST_ITEMS, device.max_work_group_size) or params["SPLIT"] > device.max_work_item_sizes[1]:
            return f"the group exceeds {min(_MOST_ITEMS, device.max_work_group_size)} work-items"
        if tile * pack > _ACCUMULATORS:
            return f"the tile exceeds {_ACCUMULATORS} accumulators"
        if params["SPLIT"] > 1 and items * tile * pack * 4 > device.local_mem:
            return f"the partial sums do not fit the {device.local_mem} bytes of local memory"
        return None

    def defaults(self, node: Node, device: DeviceInfo) -> dict[str, Any]:
        return min(self.points(node, device), key=lambda p: (self._cycles(node, p, device), -p["UNROLL"]))

    def _cycles(self, node: Node, params: Params, device: DeviceInfo) -> float:
        """Estimated clocks: the busiest of arithmetic, caches and waiting, work-groups shared out evenly."""
        c, groups, pack = SplitConv.of(device), self._groups(node, device), block_size(node, device)
        lx, split, tp, tb = params["LX"], params["SPLIT"], params["TP"], params["TB"]
        tiles = ceil_div(self._positions(node), lx * tp) * groups.count * ceil_div(groups.out_blocks, tb)
        per_unit = ceil_div(tiles, device.compute_units)
        wave = max(device.wave_size, 16)
        waves = ceil_div(lx * split, wave)
        terms = ceil_div(math.prod(Window.of(node).kernel) * groups.in_blocks, split)
        arithmetic = tp * tb * pack * pack * wave / device.lanes
        loads = c.load * tp + c.shared_load * pack * tb * ceil_div(wave, lx)
        busy = max(arithmetic, loads) * terms * waves * per_unit
        resident = max(1, 65536 // (waves * wave * (tp * tb * pack + 40)))
        waiting = (c.term + c.weight * tb) * terms * ceil_div(per_unit, resident)
        return float(max(busy, waiting) + c.mixed * (busy + waiting) + (c.reduce if split > 1 else 0.0))

    def seconds(self, node: Node, device: DeviceInfo, cost: Cost) -> float:
        groups = self._groups(node, device)
        waste = groups.merged * groups.out_blocks * groups.pack / groups.filters
        return max(cost.flops * waste / (device.peak_flops * self.share(device)), cost.bytes / device.bandwidth) + (
            device.launch_s
        )

    def launch(self, node: Node, params: Params, device: DeviceInfo) -> list[Launch]:
        x, bias, y, win = node.x, node.get(2), node.y, Window.of(node)
        storage, g, positions = y.type.storage, self._groups(node, device), self._positions(node)
        lx, split, tb = params["LX"], params["SPLIT"], params["TB"]

        def pack(data: Array) -> Array:
            return np.ascontiguousarray(pack_filters(data, g, tb, storage).swapaxes(2, 3))

        form = f"filter taps first {g.count}x{g.merged} groups i{g.in_pack} o{g.pack} tile {tb} {storage}"
        epilogue = packed_epilogue(node, device)
        args: tuple[Arg, ...] = (x, Weight(node.input(1), form, pack))
        args += () if bias is None else (bias_weight(bias, g.pack, storage),)
        args += (y, positions, g.count, g.in_blocks, g.out_blocks, y.shape[1])
        args += (*win.size, *win.out, *win.begin, *epilogue.args)
        defines = win.defines() | dict(params) | {"PACK": g.pack, "STORAGE": STORAGE[storage]}
        defines |= {"HAS_BIAS": bias is not None, "MASK": y.shape[1] % g.pack != 0}
        grid = (ceil_div(positions, lx * params["TP"]) * lx, g.count * ceil_div(g.out_blocks, tb) * split)
        return [Launch("conv_split", args, grid, (lx, split), defines, epilogue.prelude)]

    @staticmethod
    def _groups(node: Node, device: DeviceInfo) -> Groups:
        pack = block_size(node, device)
        return Groups.of(node, pack, pack)

    @staticmethod
    def _positions(node: Node) -> int:
        return node.y.shape[0] * math.prod(node.y.shape[2:])
