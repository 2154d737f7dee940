"""Convolution of tensors in images with filters in constant memory, as in TensorFlow Lite."""

from __future__ import annotations

import math

from ...ir.dtype import DType
from ...ops.operator import Cost
from ..codegen.epilogue import image_epilogue
from ..conv.pack_filters import ConvProblem, Groups, filter_weight
from ..kernel import Params, register
from ..launch import STORAGE, Args, Launch, Weight, ceil_div
from .image_conv import bias_texels
from .image_layout import ImageKernel, image_prelude, image_window

MOST_BYTES = 2560
"""Filters that are still read by a broadcast: TensorFlow Lite's bound on Adreno."""
MOST_BLOCKS = 8  # most output channels, whose sums a work-item holds


@register
class ImageConvConstant(ImageKernel):
    """A work-item computes all channels of TW columns: for first and last layers, which have many pixels."""

    problem = ConvProblem
    half_sums = True
    op = "Conv"
    space = {"TW": (1, 2, 4)}

    def refuse(self, p: ConvProblem) -> str | None:
        if why := super().refuse(p):
            return why
        g = p.groups(4, 4)
        if g.count > 1:
            return f"{g.count} groups have filters of their own"
        if g.out_blocks > MOST_BLOCKS:
            return f"a work-item would hold the sums of {g.out_blocks} blocks of channels, of at most {MOST_BLOCKS}"
        taps = math.prod(p.node.input(1).shape[2:])
        nbytes = 16 * g.in_blocks * g.out_blocks * taps * p.node.x.type.storage.size
        return (
            None if nbytes <= MOST_BYTES else f"its filters take {nbytes} bytes, of at most {MOST_BYTES} that are taken"
        )

    def defaults(self, p: ConvProblem) -> Params:
        # Two columns share filter loads if their accumulators are few and enough work-items remain.
        items = p.node.y.type.count // (4 * p.groups(4, 4).out_blocks)
        return {"TW": 2 if p.groups(4, 4).out_blocks <= 2 and items >= 4096 * p.device.compute_units else 1}

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        g = p.groups(4, 4)
        waste = g.merged * g.out_blocks * g.pack / g.filters
        return super().seconds(p, Cost(cost.flops * waste, cost.bytes))

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node, g, win = p.node, p.groups(4, 4), image_window(p.node)
        x, bias, y = node.x, node.get(2), node.y
        batch, m, oh, ow = y.shape
        epilogue, storage = image_epilogue(node, p.device), x.type.storage
        args: Args = {"x": x, "weights": self._weights(p, g), "y": y, "m": m, "rows": batch * oh}
        args |= {} if bias is None else {"bias": bias_texels(bias, storage)}
        sizes = win.args()
        args |= {**{k: sizes[k] for k in ("ih", "iw", "oh", "ow", "ph", "pw")}, **epilogue.args}
        defines = win.defines() | {"TW": params["TW"], "TB": g.out_blocks, "IB": g.in_blocks}
        defines |= {"HAS_BIAS": bias is not None, "STORAGE": STORAGE[storage], "HALF_WEIGHTS": storage is DType.FLOAT16}
        grid = (ceil_div(ow, params["TW"]), batch * oh)
        return [Launch("image_conv_constant", args, grid, defines=defines, prelude=image_prelude(node, epilogue))]

    @staticmethod
    def _weights(p: ConvProblem, groups: Groups) -> Weight:
        return filter_weight(p.node.input(1), groups, groups.out_blocks, p.node.x.type.storage)
