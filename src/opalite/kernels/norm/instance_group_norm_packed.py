"""Instance and group normalisation of channel-packed tensors, by partial moments so that few channels fill a device."""

from __future__ import annotations

import math

from ...cost.cost_tables import Movement
from ...ir.place import FLAT, packed
from ...ops.normalize import BY_CHANNEL, Normalize
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, operand_layouts, packed_epilogue
from ..filter_window import PACKED_TYPES, block_size
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Launch, Scratch, ceil_div
from ..reduce.work_group_rows import row_prelude
from .layer_norm_rows import epsilon_arg

MIN_SPAN = 64  # fewest positions per work-item


@register
class InstanceGroupNormPacked(Kernel):
    """NCHWc to NCHWc in launches: partial moments of each block, their combination, the result."""

    op = "Normalize"
    space = {"WG": (64, 1, 32, 128, 256), "PARTS": (1, 2, 4, 8, 16, 32), "ITEMS": (1, 2, 4, 8, 16)}

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
        wg = 1 if p.device.is_cpu else min(64, 1 << p.device.max_work_group_size.bit_length() - 1)
        wanted = ceil_div(4 * p.device.compute_units, max(blocks, 1))
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
        depth = channels // node.as_(Normalize).num_groups if node.as_(Normalize).kind == "group" else 1
        moments, table = Scratch("moments", count * parts * 2 * pack * 4), Scratch("table", count * 2 * pack * 4)
        parameters = {k: v for k, v in (("scale", node.get(1)), ("bias", node.get(2))) if v is not None}
        sizes = {"channels": channels, "blocks": blocks, "spatial": spatial}
        shares = {"parts": parts, "span": span}
        common = {"STORAGE": STORAGE[node.x.type.storage], "PACK": pack}
        wg, items = params["WG"], params["ITEMS"]
        given = {"HAS_SCALE": node.get(1) is not None, "HAS_BIAS": node.get(2) is not None}
        epilogue = packed_epilogue(node, p.device)
        return [
            Launch(
                "normalize_moments",
                {"x": node.x, "moments": moments, "spatial": spatial, **shares},
                (wg, count * parts),
                (wg, 1),
                common | {"MOMENTS": 1, "WG": wg},
                row_prelude(p.device),
            ),
            Launch(
                "normalize_combine",
                {
                    **{"moments": moments, "table": table, "total": count * pack, "depth": depth},
                    **{**parameters, **sizes, **shares, "epsilon": epsilon_arg(node)},
                },
                (count * pack,),
                defines=common | {"COMBINE": 1} | given,
            ),
            Launch(
                "normalize_apply",
                {"x": node.x, "table": table, "y": node.y, "total": count * spatial, **sizes, **epilogue.args},
                (ceil_div(count * spatial, items),),
                defines=common | {"ITEMS": items, "MASK": channels % pack != 0},
                prelude=epilogue.prelude,
            ),
        ]
