"""Instance and group normalisation of tensors in images: in one launch, or by partial moments."""

from __future__ import annotations

from ...cost.cost_tables import Movement
from ...ir.graph import Value
from ...ir.place import FLAT, IMAGE
from ...ops.normalize import BY_CHANNEL, Normalize
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, image_epilogue, operand_layouts
from ..kernel import Binding, Bindings, Params, Problem, register
from ..launch import STORAGE, Args, Launch, Scratch, ceil_div
from ..launch_workgroups import group_refusal
from ..norm.layer_norm_rows import epsilon_arg
from ..reduce.work_group_rows import row_prelude
from .image_layout import ImageKernel, image_prelude, image_refusal

ALONE = 0  # most work per block for one work-group in one launch
MIN_TEXELS = 256  # fewest positions per work-item that are worth the additional launches


@register
class ImageInstanceNorm(ImageKernel):
    """A work-group per channel block; if those are few or form groups, partial moments in several launches."""

    op = "Normalize"
    space = {"WG": (256, 1, 64, 32, 128, 512), "PARTS": (ALONE, 1, 2, 4, 8, 16, 32)}

    def refuse(self, p: Problem) -> str | None:
        node = p.node
        if node.as_(Normalize).kind not in BY_CHANNEL:
            return f"kind {node.as_(Normalize).kind} does not go by channels"
        why = image_refusal(p.device, node.x.type, node.y.type, ranks=self.ranks)
        return why or epilogue_refusal(node, "image")

    def bindings(self, p: Problem) -> Bindings:
        parameters = (None if v is None else FLAT for v in p.node.inputs[1:3])
        return (Binding((IMAGE, *parameters, *operand_layouts(p.node, "image", IMAGE)), (IMAGE,)),)

    def illegal(self, p: Problem, params: Params) -> str | None:
        if p.device.is_cpu and params["WG"] > 1:
            return "a CPU's work-item walks its part alone"
        if params["PARTS"] == ALONE and p.node.as_(Normalize).kind == "group":
            return "the channels of a group span several blocks"
        return group_refusal(params["WG"], p.device)

    def defaults(self, p: Problem) -> Params:
        node = p.node
        n, channels, height, width = node.x.shape
        most = 1 if p.device.is_cpu else min(256, 1 << p.device.max_work_group_size.bit_length() - 1)
        blocks = n * ceil_div(channels, 4)
        wanted = ceil_div(2 * p.device.compute_units, max(blocks, 1))
        enough = max(1, height * width // (MIN_TEXELS * most))
        if node.as_(Normalize).kind != "group" and (wanted == 1 or enough == 1):
            return {"WG": most, "PARTS": ALONE}
        return {"WG": most, "PARTS": max(n for n in self.space["PARTS"] if n <= max(1, min(wanted, enough, height)))}

    def seconds(self, p: Problem, cost: Cost) -> float:
        alone = self.defaults(p)["PARTS"] == ALONE
        nbytes = Movement.of(p.device).partial_moments * cost.bytes
        return super().seconds(p, Cost(cost.flops, nbytes)) + (0 if alone else 2 * p.device.launch_s)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, channels, height, width = node.x.shape
        blocks, wg, storage = ceil_div(channels, 4), params["WG"], STORAGE[node.x.type.storage]
        epilogue = image_epilogue(node, p.device)
        given: dict[str, Value | None] = {"scale": node.get(1), "bias": node.get(2)}
        parameters: Args = {k: v for k, v in given.items() if v is not None}
        held = {f"HAS_{k.upper()}": v is not None for k, v in given.items()}
        sizes: Args = {"blocks": blocks, "height": height, "width": width}
        texels = image_prelude(node, epilogue)
        if params["PARTS"] == ALONE:
            args = {"x": node.x, "y": node.y, "channels": channels, **parameters, **sizes, **epilogue.args}
            args["epsilon"] = epsilon_arg(node)
            defines = {"WG": wg, "STORAGE": storage, **held}
            prelude = row_prelude(p.device) + texels
            return [Launch("image_normalize", args, (wg, n * blocks), (wg, 1), defines, prelude)]
        count, lines = n * blocks, ceil_div(height, params["PARTS"])
        parts = ceil_div(height, lines)
        depth = channels // node.as_(Normalize).num_groups if node.as_(Normalize).kind == "group" else 1
        moments, table = Scratch("moments", count * parts * 32), Scratch("table", count * 32)
        joined: Args = {"moments": moments, "table": table, "total": count * 4, "depth": depth}
        joined |= {"channels": channels, "blocks": blocks, "spatial": height * width, "parts": parts}
        joined |= {"span": lines * width, "epsilon": epsilon_arg(node), **parameters}
        return [
            Launch(
                "image_normalize_moments",
                {"x": node.x, "moments": moments, "parts": parts, "lines": lines, **sizes},
                (wg, count * parts),
                (wg, 1),
                {"MOMENTS": 1, "WG": wg},
                row_prelude(p.device) + image_prelude(node),
            ),
            Launch(
                "normalize_combine",
                joined,
                (count * 4,),
                defines={"STORAGE": storage, "PACK": 4, "COMBINE": 1, **held},
                source="norm/instance_group_norm_packed.cl",
            ),
            Launch(
                "image_normalize_apply",
                {
                    **{"x": node.x, "table": table, "y": node.y, "channels": channels, "rows": n * height},
                    **{**sizes, **epilogue.args},
                },
                (blocks * width, n * height),
                defines={"APPLY": 1},
                prelude=texels,
            ),
        ]
