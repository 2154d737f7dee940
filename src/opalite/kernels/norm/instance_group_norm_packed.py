"""Instance and group normalisation of channel-packed tensors, by partial moments so that few channels fill a device."""

from __future__ import annotations

import math

from ...cost.cost_tables import Movement
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ir.place import FLAT, packed
from ...ops.normalize import BY_CHANNEL, Normalize
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, operand_layouts, packed_epilogue
from ..filter_window import PACKED_TYPES, block_size
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Launch, Scratch, ceil_div
from ..reduce.work_group_rows import power_of_two, row_prelude
from .layer_norm_rows import epsilon_arg

MIN_SPAN = 64  # fewest positions per work-item
WIDE = 1 << 14  # positions of a channel from which a GPU's work-groups are large
FULL = 1024  # work-items of a GPU's compute unit that keep its memory busy
COMBINING = 128  # most work-items that combine the moments of a group


@register
class InstanceGroupNormPacked(Kernel):
    """NCHWc to NCHWc in launches: partial moments of each block, their combination, the result."""

    op = "Normalize"
    rank = 1
    space = {"WG": (64, 1, 32, 128, 256), "PARTS": (1, 2, 4, 8, 16, 32, 64), "ITEMS": (1, 2, 4, 8, 16)}

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if node.as_(Normalize).kind not in BY_CHANNEL:
            return f"kind {node.as_(Normalize).kind} does not go by channels"
        if node.x.type.rank not in (3, 4, 5):
            return f"a tensor of rank {node.x.type.rank} has no channels to pack"
        if node.x.dtype not in PACKED_TYPES:
            return f"channel-packed tensors do not hold {node.x.dtype}"
        return epilogue_refusal(node, "packed")

    def bindings(self, p: Problem) -> Bindings:
        y = packed(p.device.pack)
        parameters = (None if v is None else FLAT for v in p.node.inputs[1:3])
        return (Binding((y, *parameters, *operand_layouts(p.node, "packed", y)), (y,)),)

    def illegal(self, p: Problem, params: Params) -> str | None:
        if p.device.is_cpu and params["WG"] > 1:
            return "a CPU's work-item walks its part alone"
        if params["WG"] > p.device.max_work_group_size:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        return None

    def defaults(self, p: Problem) -> Params:
        node = p.node
        spatial = math.prod(node.x.shape[2:])
        blocks = node.x.shape[0] * ceil_div(node.x.shape[1], block_size(node, p.device))
        limit = power_of_two(p.device.max_work_group_size)
        wg = 1 if p.device.is_cpu else min(64 if spatial < WIDE else 256, limit)
        wanted = ceil_div((4 if p.device.is_cpu else FULL // wg) * p.device.compute_units, max(blocks, 1))
        most = max(1, spatial // (MIN_SPAN if p.device.is_cpu else 4 * wg))
        parts = max(point for point in self.space["PARTS"] if point <= max(1, min(wanted, most)))
        return {"WG": wg, "PARTS": parts, "ITEMS": 8 if p.device.is_cpu else 1}

    def seconds(self, p: Problem, cost: Cost) -> float:
        nbytes = Movement.of(p.device).partial_moments * cost.bytes
        return super().seconds(p, Cost(cost.flops, nbytes)) + 2 * p.device.launch_s

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, channels, *rest = node.x.shape
        pack, spatial = block_size(node, p.device), math.prod(rest)
        blocks = ceil_div(channels, pack)
        count = n * blocks
        if count * spatial == 0:
            return []
        span = ceil_div(spatial, params["PARTS"])
        parts = ceil_div(spatial, span)
        moments, table = Scratch("moments", count * parts * 2 * pack * 4), Scratch("table", count * 2 * pack * 4)
        common, wg, items = {"STORAGE": STORAGE[node.x.type.storage], "PACK": pack}, params["WG"], params["ITEMS"]
        epilogue = packed_epilogue(node, p.device)
        first: Args = {"x": node.x, "moments": moments, "spatial": spatial, "parts": parts, "span": span}
        summing = common | {"MOMENTS": 1, "WG": wg}
        last: Args = {"x": node.x, "table": table, "y": node.y, "total": count * spatial, "channels": channels}
        last |= {"blocks": blocks, "spatial": spatial, **epilogue.args}
        applying = common | {"ITEMS": items, "MASK": channels % pack != 0}
        grid = (ceil_div(count * spatial, items),)
        return [
            Launch("normalize_moments", first, (wg, count * parts), (wg, 1), summing, row_prelude(p.device)),
            combine_moments(node, p.device, moments, table, pack, parts, span),
            Launch("normalize_apply", last, grid, None, applying, epilogue.prelude),
        ]


def combine_moments(
    node: Node, device: DeviceInfo, moments: Scratch, table: Scratch, pack: int, parts: int, span: int
) -> Launch:
    """The launch that makes a table of factors and shifts of the moments of `parts` parts of `span` positions."""
    op, (n, channels, *rest) = node.as_(Normalize), node.x.shape
    groups = op.num_groups if op.kind == "group" else channels
    depth = channels // groups if channels else 1
    given = {"scale": node.get(1), "bias": node.get(2)}
    args: Args = {
        "moments": moments,
        "table": table,
        "groups": groups,
        "total": n * groups,
        "depth": depth,
        "channels": channels,
    }
    args |= {"blocks": ceil_div(channels, pack), "spatial": math.prod(rest), "parts": parts, "span": span}
    args |= {"epsilon": epsilon_arg(node), **{k: v for k, v in given.items() if v is not None}}
    most = 1 if device.is_cpu else min(COMBINING, device.max_work_group_size)
    wg = power_of_two(min(most, int(depth * parts)))
    rows = power_of_two(min(COMBINING, ceil_div(n * groups, device.compute_units))) if device.is_cpu else 1
    defines = {"STORAGE": STORAGE[node.x.type.storage], "PACK": pack, "COMBINE": 1, "WG": wg, "ROWS": rows}
    defines |= {f"HAS_{k.upper()}": v is not None for k, v in given.items()}
    source = "norm/instance_group_norm_packed.cl"
    return Launch("normalize_combine", args, (wg, n * groups), (wg, rows), defines, row_prelude(device), source=source)
