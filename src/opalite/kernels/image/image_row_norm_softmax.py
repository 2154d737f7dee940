"""Normalisation and softmax along rows of tensors of up to three dimensions in images."""

from __future__ import annotations

import math

import numpy as np

from ...ir.graph import Value
from ...ir.place import texel_dims
from ...ops.normalize import TRAILING, Normalize
from ...ops.softmax import Softmax
from ..codegen.epilogue import epilogue_refusal, image_epilogue
from ..kernel import Params, Problem, register
from ..launch import STORAGE, Args, Array, Launch, Weight, ceil_div
from ..norm.layer_norm_rows import epsilon_arg
from ..reduce.work_group_rows import ROW_SPACE, row_group, row_group_refusal, row_prelude
from .image_layout import ImageKernel, image_prelude, image_refusal


class _ImageRows(ImageKernel):
    """Base class of kernels with a work-group per row."""

    ranks = (1, 2, 3)
    overlaps = True
    space = ROW_SPACE

    def illegal(self, p: Problem, params: Params) -> str | None:
        return row_group_refusal(params, p.device)

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
        args: Args = {k: _spread(v, columns, node.x) for k, v in given.items() if v is not None}
        args |= {"x": node.x, "y": node.y, "rows": n * height, "columns": columns, "H": height}
        args |= {"epsilon": epsilon_arg(node), **epilogue.args}
        defines = {**params, "NORMALIZE": 1, "RMS": node.as_(Normalize).kind == "rms"}
        defines |= {"STORAGE": STORAGE[node.x.type.storage]}
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


def _spread(v: Value, columns: int, x: Value) -> Weight:
    """A parameter that broadcasts along rows of `columns`, expanded to whole texels."""
    storage = x.type.storage

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
