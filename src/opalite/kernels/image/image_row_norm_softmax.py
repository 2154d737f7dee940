"""Normalisation and softmax of tensors in images: along rows, over channels, and by channel."""

from __future__ import annotations

import math

import numpy as np

from ...cost.cost_tables import Movement
from ...ir.graph import Value
from ...ir.place import FLAT, IMAGE, texel_dims
from ...ops.normalize import BY_CHANNEL, TRAILING, Normalize
from ...ops.operator import Cost
from ...ops.softmax import Softmax
from ..codegen.epilogue import epilogue_refusal, image_epilogue, operand_layouts
from ..kernel import Binding, Bindings, Params, Problem, register
from ..launch import STORAGE, Args, Array, Launch, Scratch, Weight, ceil_div
from ..launch_workgroups import group_refusal
from ..norm.instance_group_norm_packed import combine_moments
from ..norm.layer_norm_rows import epsilon_arg
from ..reduce.work_group_rows import ROW_SPACE, RowKernel, row_group, row_prelude
from .image_layout import ImageKernel, image_prelude, image_refusal


class _ImageRows(RowKernel, ImageKernel):
    """Base class of kernels with a work-group per row."""

    ranks = (1, 2, 3)
    overlaps = True
    space = ROW_SPACE

    def defaults(self, p: Problem) -> Params:
        shape = p.node.x.shape
        return row_group(shape[-1], math.prod(shape[:-1]), p.device)

    def axis_refusal(self, p: Problem, axis: int) -> str | None:
        """The reason why lines along `axis` of the node's input are not rows of an image, or None."""
        rank = p.node.x.type.rank
        why = image_refusal(p.device, p.node.x.type, p.node.y.type, ranks=self.ranks)
        return why or (None if axis == rank - 1 else f"texels are along axis {rank - 1}, not along {axis}")


@register
class ImageNormalizeRows(_ImageRows):
    """Layer and RMS normalisation over the last axis, with constant scale and bias."""

    op = "Normalize"

    def refuse(self, p: Problem) -> str | None:
        node, op = p.node, p.node.as_(Normalize)
        if op.kind not in TRAILING:
            return f"kind {op.kind} goes by channels"
        if why := self.axis_refusal(p, op.axis):
            return why
        for i, what in ((1, "scale"), (2, "bias")):
            v = node.get(i)
            if v is not None and not v.is_const:
                return f"{what} is not constant, so it cannot be packed ahead of time"
        return epilogue_refusal(node, "image")

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, columns, height, _ = texel_dims(node.x.shape)
        epilogue = image_epilogue(node, p.device)
        given = {"scale": node.get(1), "bias": node.get(2)}
        args: Args = {k: _spread(v, columns, node.y) for k, v in given.items() if v is not None}
        args |= {"x": node.x, "y": node.y, "rows": n * height, "columns": columns, "H": height}
        args |= {"epsilon": epsilon_arg(node), **epilogue.args}
        defines = {**params, "NORMALIZE": 1, "RMS": node.as_(Normalize).kind == "rms"}
        defines |= {"STORAGE": STORAGE[node.y.type.storage]}
        defines |= {f"HAS_{k.upper()}": v is not None for k, v in given.items()}
        group = (params["WG"], params["ROWS"])
        prelude = row_prelude(p.device) + image_prelude(node, epilogue)
        return [Launch("image_normalize_rows", args, (group[0], n * height), group, defines, prelude)]


@register
class ImageSoftmaxRows(_ImageRows):
    """Softmax along the last axis."""

    op = "Softmax"

    def refuse(self, p: Problem) -> str | None:
        return self.axis_refusal(p, p.node.as_(Softmax).axis)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, columns, height, _ = texel_dims(node.x.shape)
        args: Args = {"x": node.x, "y": node.y, "rows": n * height, "columns": columns}
        defines = {**params, "LOG": node.as_(Softmax).log}
        group = (params["WG"], params["ROWS"])
        prelude = row_prelude(p.device) + image_prelude(node)
        return [Launch("image_softmax_rows", args, (group[0], n * height), group, defines, prelude)]


def _spread(v: Value, columns: int, y: Value) -> Weight:
    """A parameter that broadcasts along rows of `columns`, expanded to whole texels."""
    storage = y.type.storage

    def spread(data: Array) -> Array:
        out: Array = np.zeros(ceil_div(columns, 4) * 4, storage.np)
        out[:columns] = data.reshape(-1)
        return out

    return Weight(v, f"spread to texels of {columns} {storage}", spread)


@register
class ImageChannelSoftmax(ImageKernel):
    """A work-item loops over the channels of one position."""

    source = "image/image_channel_softmax.cl"
    op = "Softmax"
    rank = -1

    def refuse(self, p: Problem) -> str | None:
        if p.node.as_(Softmax).axis != 1:
            return f"channels are axis 1, the sum is over axis {p.node.as_(Softmax).axis}"
        return super().refuse(p)

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        n, channels, height, width = node.x.shape
        args: Args = {"x": node.x, "y": node.y, "channels": channels, "blocks": ceil_div(channels, 4), "width": width}
        defines = {"LOG": node.as_(Softmax).log}
        return [
            Launch(
                "image_softmax",
                {**args, "rows": n * height},
                (width, n * height),
                defines=defines,
                prelude=image_prelude(node),
            )
        ]


ALONE = 0  # most work per block for one work-group in one launch
MIN_TEXELS = 256  # fewest positions per work-item that are worth the additional launches


@register
class ImageInstanceNorm(ImageKernel):
    """A work-group per channel block; if those are few or form groups, partial moments in several launches."""

    source = "image/image_instance_norm.cl"
    op = "Normalize"
    rank = -1
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
        blocks, wg, storage = ceil_div(channels, 4), params["WG"], STORAGE[node.y.type.storage]
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
        moments, table = Scratch("moments", count * parts * 32), Scratch("table", count * 32)
        first: Args = {"x": node.x, "moments": moments, "parts": parts, "lines": lines, **sizes}
        summing, prelude = {"MOMENTS": 1, "WG": wg}, row_prelude(p.device) + image_prelude(node)
        last: Args = {"x": node.x, "table": table, "y": node.y, "channels": channels, "rows": n * height}
        last |= {**sizes, **epilogue.args}
        return [
            Launch("image_normalize_moments", first, (wg, count * parts), (wg, 1), summing, prelude),
            combine_moments(node, p.device, moments, table, 4, parts, lines * width),
            Launch("image_normalize_apply", last, (blocks * width, n * height), None, {"APPLY": 1}, texels),
        ]
