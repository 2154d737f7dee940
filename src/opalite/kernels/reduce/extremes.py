"""The least and the largest element of a tensor, in one pass over a buffer or an image."""

from __future__ import annotations

import math

from ...cost.cost_tables import Windows
from ...ir.dtype import DType
from ...ir.place import FLAT, IMAGE, Layout, packed, texel_dims
from ...ir.symbols import hint_of
from ...ops.operator import Cost
from ..image.image_layout import image_prelude, image_refusal
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import STORAGE, Args, Defines, Launch, Scratch, ceil_div
from ..launch_workgroups import group_refusal
from .work_group_rows import power_of_two

FLOATS = (DType.FLOAT32, DType.FLOAT16)
PACK = 4
_ROW_MAJOR, _BLOCKS, _IMAGE = range(3)


class _Extremes(Kernel):
    """Base class: PARTS work-groups of WG work-items; a second launch joins the results of several."""

    op = "Extremes"
    source = "reduce/extremes.cl"
    space = {"WG": (256, 1, 64, 32, 128, 512), "PARTS": (1, 2, 4, 8, 16, 32, 64, 128, 256)}
    layout: Layout

    def refuse(self, p: Problem) -> str | None:
        return None if p.node.x.dtype in FLOATS else f"it compares floats of up to 32 bits, not {p.node.x.dtype}"

    def takes(self, i: int, stored: DType, wanted: DType) -> bool:
        return stored in FLOATS

    def bindings(self, p: Problem) -> Bindings:
        return (Binding((self.layout,), (FLAT, FLAT)),)

    def illegal(self, p: Problem, params: Params) -> str | None:
        if p.device.is_cpu and params["WG"] > 1:
            return "a CPU's work-item walks its part alone"
        return group_refusal(params["WG"], p.device)

    def defaults(self, p: Problem) -> Params:
        device = p.device
        wg = 1 if device.is_cpu else min(256, power_of_two(device.max_work_group_size))
        # One group has the bandwidth of one compute unit: more pay where that costs more than a launch.
        alone = hint_of(p.node.x.type.nbytes) * device.compute_units / device.bandwidth
        wanted = 1 if alone <= device.launch_s else 4 * device.compute_units
        useful = ceil_div(int(hint_of(p.node.x.type.count)), 4 * PACK * wg)
        return {"WG": wg, "PARTS": max(n for n in self.space["PARTS"] if n <= max(1, min(wanted, useful)))}

    def seconds(self, p: Problem, cost: Cost) -> float:
        alone = self.defaults(p)["PARTS"] == 1
        reading = cost.bytes * (p.device.compute_units if alone else 1) / p.device.bandwidth
        return reading / self.gain(p) + (1 if alone else 2) * p.device.launch_s

    def gain(self, p: Problem) -> float:
        """The speed of reading x relative to a buffer."""
        return 1.0

    def sizes(self, p: Problem) -> tuple[Defines, dict[str, int], str]:
        """(defines, size arguments, prelude) of the launch that reads x."""
        raise NotImplementedError

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        (least, largest), parts, wg = p.node.outputs, params["PARTS"], params["WG"]
        defines, sizes, prelude = self.sizes(p)
        storage = {"STORAGE": STORAGE[least.type.storage], "WG": wg}
        given = {"last": 4, "channels": 0, "blocks": 1, "width": 1, **sizes}
        results: Args = {"least": least, "largest": largest}
        if parts == 1:
            args = {"x": p.node.x, **results, **given}
            return [Launch("extremes", args, (wg,), (wg,), {**storage, **defines, "ALONE": 1}, prelude)]
        pairs = Scratch("pairs", 8 * parts)
        first: Args = {"x": p.node.x, "pairs": pairs, **given}
        return [
            Launch("extremes", first, (wg * parts,), (wg,), {**storage, **defines, "ALONE": 0}, prelude),
            Launch("join_extremes", {"pairs": pairs, **results, "parts": parts}, (wg,), (wg,), storage | {"JOIN": 1}),
        ]


def _halves(p: Problem) -> Defines:
    return {"HALVES": p.node.x.type.storage is DType.FLOAT16}


@register
class ExtremesFlat(_Extremes):
    """A row-major buffer."""

    layout = FLAT

    def sizes(self, p: Problem) -> tuple[Defines, dict[str, int], str]:
        count = p.node.x.type.count
        vectors = ceil_div(count, PACK)
        return {"SOURCE": _ROW_MAJOR, **_halves(p)}, {"vectors": vectors, "last": count - (vectors - 1) * PACK}, ""


@register
class ExtremesPacked(_Extremes):
    """A buffer in blocks of four channels."""

    layout = packed(PACK)

    def refuse(self, p: Problem) -> str | None:
        if p.device.pack != PACK:
            return f"the device's blocks have {p.device.pack} channels, not {PACK}"
        if len(p.node.x.shape) not in (3, 4, 5):
            return f"a tensor of rank {len(p.node.x.shape)} has no channels to pack"
        return super().refuse(p)

    def sizes(self, p: Problem) -> tuple[Defines, dict[str, int], str]:
        n, channels, *spatial = p.node.x.shape
        blocks, width = ceil_div(channels, PACK), math.prod(spatial)
        sizes = {"vectors": n * blocks * width, "channels": channels, "blocks": blocks, "width": width}
        return {"SOURCE": _BLOCKS, **_halves(p)}, sizes, ""


@register
class ImageExtremes(_Extremes):
    """An image."""

    layout = IMAGE
    images_only = True

    def refuse(self, p: Problem) -> str | None:
        return image_refusal(p.device, p.node.x.type) or super().refuse(p)

    def gain(self, p: Problem) -> float:
        return Windows.of(p.device).texture_gain if p.device.prefers_images else 1.0

    def sizes(self, p: Problem) -> tuple[Defines, dict[str, int], str]:
        n, channels, height, width = texel_dims(p.node.x.shape)
        blocks = ceil_div(channels, PACK)
        sizes = {"vectors": n * height * blocks * width, "channels": channels, "blocks": blocks, "width": width}
        return {"SOURCE": _IMAGE}, sizes, image_prelude(p.node)
