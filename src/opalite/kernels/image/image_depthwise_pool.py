"""Depthwise convolution and pooling of tensors in images: four pixels per work-item, as in MNN."""

from __future__ import annotations

import numpy as np

from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ..codegen.epilogue import image_epilogue
from ..conv.pack_filters import ConvProblem
from ..filter_window import WindowProblem
from ..kernel import Params, register
from ..launch import Args, Array, Defines, Launch, Weight, ceil_div
from ..pool.pool import kind_defines
from .image_conv import bias_texels
from .image_layout import ImageKernel, image_prelude, image_window, texture_refusal


class _Channelwise(ImageKernel):
    """Base class: windows over single channels; a work-item owns TW columns of one block."""

    problem = WindowProblem
    space = {"TW": (4, 2, 1, 8)}

    def constants(self, node: Node) -> Args:
        """Kernel arguments between input and output."""
        return {}

    def kind(self, node: Node) -> Defines:
        """The defines that select the computation over a window."""
        return kind_defines(node)

    def launch(self, p: WindowProblem, params: Params) -> list[Launch]:
        node = p.node
        win, epilogue = image_window(node), image_epilogue(node, p.device)
        batch, channels, oh, ow = node.y.shape
        blocks = ceil_div(channels, 4)
        _, run, step = win.runs()
        args: Args = {"x": node.x, **self.constants(node), "y": node.y, "blocks": blocks, "channels": channels}
        sizes = win.args()
        args |= {"rows": batch * oh, **{k: sizes[k] for k in ("ih", "iw", "oh", "ow", "ph", "pw")}}
        args |= {"rh": win.end[1], "rw": win.end[2], **epilogue.args}
        defines = {**win.defines(), **self.kind(node), "TW": params["TW"], "RUN": run, "STEP": step}
        grid = (ceil_div(ow, params["TW"]), batch * oh, blocks)
        return [Launch("image_channelwise", args, grid, defines=defines, prelude=image_prelude(node, epilogue))]


@register
class ImageDepthwise(_Channelwise):
    """Conv with one filter for each channel (group = C = M)."""

    problem = ConvProblem
    op = "Conv"

    def refuse(self, p: ConvProblem) -> str | None:
        if why := super().refuse(p) or p.depthwise_refusal:
            return why
        why = texture_refusal(p.device, int(np.prod(p.node.input(1).shape[2:])), ceil_div(p.node.x.shape[1], 4))
        return None if why is None else f"its filter {why}"

    def constants(self, node: Node) -> Args:
        storage, bias = node.y.type.storage, node.get(2)
        filters = depthwise_texels(node.input(1), storage)
        args: Args = {"weights": filters}
        return args if bias is None else {**args, "bias": bias_texels(bias, storage)}

    def kind(self, node: Node) -> Defines:
        return {"KIND": 3, "HAS_BIAS": node.get(2) is not None}


@register
class ImagePool(_Channelwise):
    """Maximum, average and Lp pooling without indices."""

    op = "Pool"

    def refuse(self, p: WindowProblem) -> str | None:
        return "positions of the maxima are asked for" if len(p.node.outputs) > 1 else super().refuse(p)


def depthwise_texels(w: Value, storage: DType) -> Weight:
    """`w` [C, 1, KH, KW] as an image: taps along x, channel blocks along y."""

    def texels(data: Array) -> Array:
        channels, taps = data.shape[0], int(np.prod(data.shape[1:]))
        padded: Array = np.zeros((ceil_div(channels, 4) * 4, taps), storage.np)
        padded[:channels] = data.reshape(channels, taps)
        return np.ascontiguousarray(padded.reshape(-1, 4, taps).swapaxes(1, 2))

    return Weight(w, f"image depthwise filter {storage}", texels, image=True)
