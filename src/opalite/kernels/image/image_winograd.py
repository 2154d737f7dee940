"""Winograd convolution on images: 3x3 filters with a quarter of the multiplications."""

from __future__ import annotations

import numpy as np

from ...cost.cost_tables import Windows
from ...ir.dtype import DType
from ...ir.graph import Node
from ...ir.symbols import hint_of
from ...ops.conv import Conv
from ...ops.operator import Cost
from ..codegen.epilogue import image_epilogue
from ..conv.pack_filters import ConvProblem, Groups, pack_filters
from ..conv.winograd import WinogradTiles, transform_filters
from ..kernel import Params, register
from ..launch import Args, Array, Launch, Scratch, Weight, ceil_div
from .image_conv import bias_texels
from .image_layout import ImageKernel, image_prelude, image_window, texture_refusal

STRIP = 16
"""MiB that the transformed tiles of a strip take at most, or as much as the filters."""


MOST_FILTERS = 16 << 20
"""Bytes that the transformed filters of a layer take at most: phones share their memory with everybody."""


@register
class ImageWinograd(ImageKernel):
    """F x F outputs per tile; a work-item multiplies TW tiles by TB output blocks."""

    problem = ConvProblem
    op = "Conv"
    space = {"F": (4, 2), "TW": (4, 2, 8), "TB": (2, 1, 4)}

    def refuse(self, p: ConvProblem) -> str | None:
        if why := super().refuse(p):
            return why
        win = p.window
        if win.kernel != (1, 3, 3) or win.strides != (1, 1, 1) or win.dilations[1:] != (1, 1):
            return "only 3x3 filters of stride 1 without dilation have this form"
        if p.node.as_(Conv).exact:
            return "the transformed filters are fractions, and the sums must be exact"
        if p.node.as_(Conv).group > 1:
            return "each group of channels would have filters of its own"
        return None if self._sides(p) else filters_refusal(p, min(self.space["F"]))

    def illegal(self, p: ConvProblem, params: Params) -> str | None:
        return filters_refusal(p, params["F"])

    def _sides(self, p: ConvProblem) -> list[int]:
        return [f for f in self.space["F"] if filters_refusal(p, f) is None]

    def defaults(self, p: ConvProblem) -> Params:
        f = min(self._sides(p), key=lambda f: self._estimate(p, f))
        return {"F": f, "TW": 4, "TB": 2 if p.groups(4, 4).out_blocks % 2 == 0 else 1}

    def seconds(self, p: ConvProblem, cost: Cost) -> float:
        return min(self._estimate(p, f) for f in self._sides(p))

    def _estimate(self, p: ConvProblem, f: int) -> float:
        """Seconds: tiles move through memory in and out of each launch, and products read them from buffers."""
        node, device = p.node, p.device
        t, gain = (
            WinogradTiles.of(node, device, f, STRIP),
            Windows.of(device).texture_gain if device.prefers_images else 1.0,
        )
        flops = 2.0 * hint_of(t.count) * t.filters / (device.peak_flops * self.share(device))
        tiles = 2 * 4 * hint_of(t.count) * t.elements * (t.in_blocks + t.out_blocks) * t.groups.pack
        textures = hint_of(node.x.type.nbytes + node.y.type.nbytes) + 4 * t.filters * t.number
        return float(flops + (tiles + textures / gain) / device.bandwidth + 3 * t.number * device.launch_s)

    def launch(self, p: ConvProblem, params: Params) -> list[Launch]:
        node, win, f = p.node, image_window(p.node), params["F"]
        t, g, bias, y = WinogradTiles.of(node, p.device, f, STRIP), p.groups(4, 4), node.get(2), node.y
        (th, tw), per_block = t.sides, t.strip * t.elements * 16
        v, m = Scratch("tiles", per_block * t.in_blocks), Scratch("products", per_block * t.out_blocks)
        tb = min(params["TB"], t.out_blocks)
        epilogue = image_epilogue(node, p.device)
        prelude = image_prelude(node, epilogue)  # defines of all three launches, so that they share one program
        sizes, sides = win.args(), {"th": th, "tw": tw}
        defines = {"F": f, "TW": params["TW"], "TB": tb, "HAS_BIAS": bias is not None}
        own: Args = {} if bias is None else {"bias": bias_texels(bias, node.y.type.storage)}
        launches: list[Launch] = []

        def add(entry: str, args: Args, grid: tuple[int, ...]) -> None:
            launches.append(Launch(entry, args, grid, defines=defines, prelude=prelude))

        for first, count in t.strips():
            of = {"t0": first, "count": count, **sides}
            args: Args = {"x": node.x, "v": v, "blocks": t.in_blocks, **of}
            args |= {k: sizes[k] for k in ("ih", "iw", "ph", "pw")}
            add("image_winograd_input", args, (count, t.in_blocks))
            args = {"v": v, "u": transformed_texels(node, g, f), "m": m}
            args |= {"count": count, "ib": t.in_blocks, "ob": t.out_blocks}
            grid = (ceil_div(count, params["TW"]), ceil_div(t.out_blocks, tb), t.elements)
            add("image_winograd_product", args, grid)
            args = {"m": m, **own, "y": y, "blocks": t.out_blocks, **of, "channels": y.shape[1]}
            args |= {"oh": sizes["oh"], "ow": sizes["ow"], **epilogue.args}
            add("image_winograd_output", args, (count, t.out_blocks))
        return launches


def filters_refusal(p: ConvProblem, f: int) -> str | None:
    """The reason why filters transformed for `f` x `f` outputs fit no image, or pay off too little; or None."""
    g, elements = p.groups(4, 4), (f + 2) ** 2
    why = texture_refusal(p.device, g.in_blocks * 4, elements * g.out_blocks)
    if why is not None:
        return f"its filter {why}"
    nbytes = elements * g.in_blocks * g.out_blocks * 64
    return f"its transformed filters take {nbytes >> 20} MiB" if nbytes > MOST_FILTERS else None


def transformed_texels(node: Node, groups: Groups, f: int) -> Weight:
    """The weights of `node` as u = G g G^T in a float32 image: input channels along x, blocks and elements along y.

    The output transform would amplify the rounding errors of halves.
    """

    def texels(data: Array) -> Array:
        elements = (f + 2) ** 2
        moved = transform_filters(data, f).reshape(elements, data.shape[0], -1).transpose(1, 2, 0)
        packed = pack_filters(moved, groups, 1, DType.FLOAT32)
        shape = (groups.out_blocks * elements, groups.in_blocks * 4, 4)
        return np.ascontiguousarray(packed.swapaxes(2, 3).reshape(shape))

    return Weight(node.input(1), f"image winograd {f} {groups.count}x{groups.merged} groups", texels, image=True)
