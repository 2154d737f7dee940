"""Convolution and transposed convolution of tensors in images; filters and bias are images too, as in MNN."""

from __future__ import annotations

import math

import numpy as np

from ...ir.dtype import DType
from ...ir.graph import Value
from ...ops.operator import Cost
from ..codegen.epilogue import image_epilogue
from ..conv.pack_filters import ConvProblem, Groups, bias_weight, filter_weight
from ..filter_window import Window
from ..kernel import Params, register
from ..launch import STORAGE, Args, Array, Defines, Launch, Weight, ceil_div
from .image_layout import ImageKernel, image_prelude, image_window, texture_refusal

MAX_MERGE = 16  # groups that may be merged into one; the filters grow by this factor


class _ImageConvolution(ImageKernel):
    """Base class of image convolutions: groups, bindings, launch."""

    problem = ConvProblem
    half_sums = True
    entry: str
    transposed: bool = False
    space = {"TW": (4, 2, 1, 8), "TB": (1, 2, 4)}

    def refuse(self, p: ConvProblem) -> str | None:
        if why := super().refuse(p):
            return why
        groups = p.groups(4, 4)
        if groups.merged > MAX_MERGE:
            return f"{groups.merged} groups would have to be merged to fill texels"
        refusals = [_filter_refusal(p, groups, across) for across in (False, True)]
        return refusals[0] if all(refusals) else None

    def columns(self, win: Window, tw: int) -> int:
        """Work-items along the output columns, each of which computes TW columns."""
        raise NotImplementedError

    def bounds(self, win: Window) -> Defines:
        """Defines that say whether taps may be outside the input."""
        return {}

    def defaults(self, p: ConvProblem) -> Params:
        blocks = p.groups(4, 4).out_blocks
        items = p.node.y.type.count // 16
        # Two blocks share column loads if enough work-items remain.
        return {"TW": 4, "TB": 2 if blocks % 2 == 0 and items >= 2048 * p.device.compute_units else 1}

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        return super().seconds(p, Cost(cost.flops * p.groups(4, 4).waste, cost.bytes))

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node = p.node
        x, bias, y = node.x, node.get(2), node.y
        win, g, storage = image_window(node), p.groups(4, 4), node.y.type.storage
        batch, m, oh, _ = y.shape
        tw, tb = params["TW"], min(params["TB"], g.out_blocks)
        epilogue = image_epilogue(node, p.device)
        across = _filter_refusal(p, g, False) is not None
        weights = filter_texels(node.input(1), g, storage, self.transposed, across)
        args: Args = {"x": x, "weights": weights, "y": y}
        args |= {} if bias is None else {"bias": bias_texels(bias, storage)}
        args |= {"groups": g.count, "ib": g.in_blocks, "ob": g.out_blocks, "m": m, "rows": batch * oh}
        sizes = win.args()
        args |= {**{k: sizes[k] for k in ("ih", "iw", "oh", "ow", "ph", "pw")}, **epilogue.args}
        defines = win.defines() | {"TW": tw, "TB": tb, "HAS_BIAS": bias is not None, **self.bounds(win)}
        defines |= {"ACROSS": 1} if across else {}
        grid = (self.columns(win, tw), batch * oh, g.count * ceil_div(g.out_blocks, tb))
        return [Launch(self.entry, args, grid, defines=defines, prelude=image_prelude(node, epilogue))]


@register
class ImageConv(_ImageConvolution):
    """Filters of any size, 1x1 included; groups are merged until they fill texels."""

    op = "Conv"
    entry = "image_conv"

    def columns(self, win: Window, tw: int) -> int:
        return ceil_div(win.out[2], tw)

    def bounds(self, win: Window) -> Defines:
        return {"BOUNDS": not win.is_pointwise}


@register
class ImageConvTranspose(_ImageConvolution):
    """A tile is the output columns that use the same filter columns."""

    op = "ConvTranspose"
    source = "image/image_conv_transpose.cl"
    entry = "image_conv_transpose"
    transposed = True

    def columns(self, win: Window, tw: int) -> int:
        return win.strides[2] * ceil_div(ceil_div(win.out[2], win.strides[2]), tw)


def _filter_shape(w: Value, groups: Groups, across: bool) -> tuple[int, int, int]:
    blocks, columns, taps = groups.count * groups.out_blocks, groups.in_blocks * 4, math.prod(w.shape[2:])
    return (blocks, taps * columns, 4) if across else (blocks * taps, columns, 4)


def _filter_refusal(p: ConvProblem, groups: Groups, across: bool) -> str | None:
    height, width, _ = _filter_shape(p.node.input(1), groups, across)
    why = texture_refusal(p.device, width, height)
    return None if why is None else f"its filter {why}"


def filter_texels(w: Value, groups: Groups, storage: DType, transposed: bool = False, across: bool = False) -> Weight:
    """`w` [M, C/g, KH, KW] ([C, M/g, KH, KW] if `transposed`) as an image.

    Input channels are along x; output blocks and taps along y. across: output blocks along y; taps, and the input
    channels of each, along x.
    """
    packed = filter_weight(w, groups, 1, storage, transposed)
    shape = _filter_shape(w, groups, across)

    def texels(data: Array) -> Array:
        # From [groups, out_blocks, in_blocks, taps, in_pack, 1, pack] to [groups, out_blocks, taps, in_blocks, ...].
        return np.ascontiguousarray(packed.fn(data).swapaxes(2, 3).reshape(shape))

    return Weight(w, f"image {packed.form}{' across' if across else ''}", texels, image=True)


def bias_texels(bias: Value, storage: DType) -> Weight:
    """`bias` [M] as an image of one row, a texel per block."""
    packed = bias_weight(bias, 4, storage)
    return Weight(bias, f"image {packed.form}", lambda data: packed.fn(data).reshape(1, -1, 4), image=True)


MOST_BYTES = 2560
"""Filters that are still read by a broadcast: TensorFlow Lite's bound on Adreno."""
MOST_BLOCKS = 8  # most output channels, whose sums a work-item holds


@register
class ImageConvConstant(ImageKernel):
    """A work-item computes all channels of TW columns: for first and last layers, which have many pixels."""

    source = "image/image_conv_constant_memory.cl"
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
        nbytes = 16 * g.in_blocks * g.out_blocks * taps * p.node.y.type.storage.size
        return (
            None if nbytes <= MOST_BYTES else f"its filters take {nbytes} bytes, of at most {MOST_BYTES} that are taken"
        )

    def defaults(self, p: ConvProblem) -> Params:
        # Two columns share filter loads if their accumulators are few and enough work-items remain.
        items = p.node.y.type.count // (4 * p.groups(4, 4).out_blocks)
        return {"TW": 2 if p.groups(4, 4).out_blocks <= 2 and items >= 4096 * p.device.compute_units else 1}

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        return super().seconds(p, Cost(cost.flops * p.groups(4, 4).waste, cost.bytes))

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node, g, win = p.node, p.groups(4, 4), image_window(p.node)
        x, bias, y = node.x, node.get(2), node.y
        batch, m, oh, ow = y.shape
        epilogue, storage = image_epilogue(node, p.device), y.type.storage
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
        return filter_weight(p.node.input(1), groups, groups.out_blocks, p.node.y.type.storage)
