"""Reduce along adjacent axes followed by others, and along spatial axes of channel-packed tensors."""

from __future__ import annotations

import math

from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.place import FLAT, packed
from ...ops.reduce import Reduce
from ..codegen.epilogue import Epilogue, epilogue_binding, epilogue_refusal, packed_epilogue, rows_epilogue
from ..filter_window import PACKED_TYPES
from ..kernel import Bindings, Kernel, Params, Problem, register
from ..launch import Arg, Args, Defines, Launch, ceil_div
from .reductions import PARTS, ReduceView, partial_results, reduce_defines, reduce_refusal, reduced_count, useful_parts
from .work_group_rows import power_of_two

LEAST_PART = 4096  # fewest elements of a line per part
CPU_ELEMENTS = 4096  # fewest elements of a CPU work-group that are worth its start
GPU_ITEMS = 256  # work-items of a group that split lines
GPU_SHARE = 8  # elements of a split line per work-item


@register
class ReduceMiddleAxis(Kernel):
    """PACK adjacent lines per work-item; LY work-items split them, LX are adjacent; long lines in PARTS."""

    op = "Reduce"
    space = {
        "PACK": (1, 16, 8, 4, 2),
        "LX": (32, 1, 2, 4, 8, 16, 64),
        "LY": (8, 1, 2, 4, 16, 32, 64, 128, 256),
        "PARTS": PARTS,
    }

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return i == 0 or stored is wanted

    def refuse(self, p: Problem) -> str | None:
        if why := reduce_refusal(p.node):
            return why
        return None if self.bindings(p) else self._flat_refusal(p.node)

    def _flat_refusal(self, node: Node) -> str | None:
        view = ReduceView.of(node, FLAT)
        if view is None:
            return "the reduced axes are not adjacent"
        if view.inner == 1:
            return "the reduced axes are the last ones"
        return epilogue_refusal(node, "rows", view.inner)

    def _packed_refusal(self, node: Node, device: DeviceInfo) -> str | None:
        if node.x.type.rank not in (3, 4, 5) or node.x.dtype not in PACKED_TYPES or node.x.type.count == 0:
            return "not a tensor that is held channel-packed"
        if not node.as_(Reduce).keepdims or min(node.as_(Reduce).axes, default=0) < 2:
            return "more than spatial axes are reduced, or those are dropped"
        if ReduceView.of(node, packed(device.pack)) is None:
            return "the reduced axes are not adjacent"
        return epilogue_refusal(node, "packed")

    def bindings(self, p: Problem) -> Bindings:
        node = p.node
        found = []
        if self._flat_refusal(node) is None:
            found.append(epilogue_binding(node, "rows", FLAT))
        if self._packed_refusal(node, p.device) is None:
            found.append(epilogue_binding(node, "packed", packed(p.device.pack)))
        return found

    def illegal(self, p: Problem, params: Params) -> str | None:
        node = p.node
        pack = node.y.type.layout.pack
        if node.y.type.layout.is_packed and params["PACK"] != pack:
            return f"a packed tensor is read in its blocks of {pack}"
        if params["PACK"] > max(1, self._view(node).inner):
            return "lines are fewer than the lanes of a vector"
        if params["LX"] * params["LY"] > p.device.max_work_group_size:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        if p.device.is_cpu and params["LY"] > 1:
            return "a CPU's work-item walks its lines alone"
        cells = params["LX"] * params["LY"] * params["PACK"] * max(4, node.x.type.storage.size)
        return "partial results do not fit local memory" if params["LY"] > 1 and cells > p.device.local_mem else None

    def defaults(self, p: Problem) -> Params:
        node = p.node
        view, pack = self._view(node), node.y.type.layout.pack
        if node.y.type.layout.is_row_major and p.device.is_cpu:
            pack = next(
                point for point in (16, 8, 4, 2, 1) if point <= max(1, min(view.inner, p.device.native_float_width))
            )
        across = ceil_div(view.inner, pack)
        parts = useful_parts(node, view.outer * across, view.length, LEAST_PART, p.device)
        if p.device.is_cpu:
            spread = max(1, across * view.outer // (4 * p.device.compute_units))
            lx = power_of_two(min(CPU_ELEMENTS // max(1, view.length * pack), spread, across, 64))
            return {"PACK": pack, "LX": lx, "LY": 1, "PARTS": parts}
        lx = min(power_of_two(across), 32)
        ly = min(GPU_ITEMS, p.device.max_work_group_size) // lx
        return {
            "PACK": pack,
            "LX": lx,
            "LY": max(1, min(power_of_two(ly), power_of_two(view.length // GPU_SHARE))),
            "PARTS": parts,
        }

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        view = self._view(node)
        outer, length, inner, parts = view.outer, view.length, view.inner, params["PARTS"]
        group = (params["LX"], params["LY"], 1)
        layout = node.y.type.layout
        defines = {k: params[k] for k in ("PACK", "LX", "LY")} | reduce_defines(node)
        epilogue = _epilogue(node, inner, p.device)
        _, channels, *spatial = (*node.y.shape, 1, 1)
        sizes = {"blocks": ceil_div(channels, layout.pack), "spatial": math.prod(spatial), "channels": channels}

        def make(x: Arg, y: Arg, parts: int, length: int, count: int, passes: Defines, end: Epilogue) -> Launch:
            args: Args = {"x": x, "y": y, "outer": outer, "length": length, "inner": inner, "parts": parts}
            args |= {"count": count}
            args |= {"span": ceil_div(length, parts), **sizes, **end.args}
            grid = (ceil_div(inner, params["PACK"]), params["LY"], outer * parts)
            return Launch("reduce_lines", args, grid, group, defines | passes, end.prelude)

        launches = []
        x: Arg = node.x
        if parts > 1:
            partial = partial_results(node, outer * parts * inner)
            launches.append(make(x, partial, parts, length, 0, {"LAST_PASS": False}, Epilogue()))
            x, length = partial, parts
        last = {"FIRST_PASS": parts == 1, "BLOCKS": layout.is_packed}
        launches.append(make(x, node.y, 1, length, reduced_count(node), last, epilogue))
        return launches

    @staticmethod
    def _view(node: Node) -> ReduceView:
        view = ReduceView.of(node)
        assert view is not None, f"{node.label} was refused"
        return view


def _epilogue(node: Node, inner: int, device: DeviceInfo) -> Epilogue:
    if node.y.type.layout.is_packed:
        return packed_epilogue(node, device)
    return rows_epilogue(node, device, inner)
