"""Attention with q, k and v as rows of images, as matrix products write them; y is a row-major buffer."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Node
from ...ir.place import FLAT, IMAGE
from ...ir.symbols import always_equal, is_multiple, is_symbolic_int
from ...ops.operator import Cost
from ...ops.strided_view import View
from ..attention.attention_problem import AttentionProblem
from ..kernel import Binding, Bindings, Params, register
from ..launch import Args, Launch, ceil_div
from .image_layout import ImageKernel, image_prelude, image_refusal

MOST_TEXELS = 4  # texels of an output row that a work-item keeps in registers


@register
class ImageAttention(ImageKernel):
    """RM queries and KN keys per work-item of a TX x TY work-group; heads of whole texels, at most three dimensions."""

    rank = 2
    op = "Attention"
    problem = AttentionProblem
    ranks = (1, 2, 3)
    overlaps = True
    space = {"TX": (8, 16, 4), "TY": (8, 16, 4, 1), "RM": (2, 4, 1), "KN": (2, 4, 1)}

    def refuse(self, p: AttentionProblem) -> str | None:
        node = p.node
        if why := p.refusal() or image_refusal(p.device, *(v.type for v in _operands(node)), ranks=self.ranks):
            return why
        if not is_multiple(p.sizes.columns, 4):
            return f"a row of {p.sizes.columns} columns is not made of whole texels"
        for name, v, view in zip("qkv", _operands(node), p.sizes.places, strict=False):
            place = texel_strides(view, v.shape[-1])
            if isinstance(place, str):
                return f"{name}: {place}"
        return None

    def bindings(self, p: AttentionProblem) -> Bindings:
        mask = (FLAT,) if p.node.get(3) is not None else (None,) * (len(p.node.inputs) - 3)
        return (Binding((IMAGE, IMAGE, IMAGE, *mask), (FLAT,)),)

    def illegal(self, p: AttentionProblem, params: Params) -> str | None:
        tx, ty = params["TX"], params["TY"]
        if tx * ty > p.device.max_work_group_size or ty > p.device.max_work_item_sizes[1]:
            return f"the device runs at most {p.device.max_work_group_size} work-items in a group"
        if ty * params["RM"] * (tx * params["KN"] + 1) * 4 > p.device.local_mem:
            return f"the weights do not fit the {p.device.local_mem} bytes of local memory"
        return None

    def defaults(self, p: AttentionProblem) -> Params:
        s = p.sizes
        legal = list(self.points(p))
        wide = ceil_div(s.columns, 4)
        return max(
            p.few_queries(legal), key=lambda t: (t["TY"] * t["RM"] * min(t["TX"], wide) * t["KN"], t["TX"] * t["TY"])
        )

    def seconds(self, p: AttentionProblem, cost: Cost) -> float:
        return p.tiled_seconds(super().seconds(p, cost), self.defaults(p))

    def launch(self, p: AttentionProblem, params: Params) -> list[Launch]:
        node, s = p.node, p.sizes
        tx, ty, texels = params["TX"], params["TY"], ceil_div(s.columns, 4)
        own = min(MOST_TEXELS, ceil_div(texels, tx))
        parts = ceil_div(texels, tx * own)
        shared = p.args()
        kept = ("q", "k", "v", "y", "heads", "sharing", "S", "T", "mask_b", "mask_h", "mask_s")
        args: Args = {name: shared[name] for name in kept}
        args |= {name: shared[name] for name in ("y_at", "y_b", "y_h", "y_s")}
        args["mask"] = node.get(3) or node.y  # any buffer, since nothing reads it
        for name, v, view in zip("qkv", _operands(node), s.places, strict=False):
            place = texel_strides(view, v.shape[-1])
            assert isinstance(place, dict), place
            args |= {f"{name}_{key}": step for key, step in place.items()}
        args |= {"texels_q": ceil_div(s.size, 4), "texels_v": texels, **p.scale_args(), "parts": parts}
        grid = (ceil_div(s.queries, ty * params["RM"]) * tx, s.heads * ty, s.batches * parts)
        defines = p.defines() | {"PACK": 4, "OWN": own, **params}
        return [Launch("image_attention", args, grid, (tx, ty, 1), defines, image_prelude(node))]


def _operands(node: Node) -> list[Any]:
    return [node.input(i) for i in range(3)]


def texel_strides(view: View, columns: int) -> dict[str, Any] | str:
    """Texel offsets and strides of the rows of `view` (axes B, H, S, D) in an image with rows of `columns` elements.

    x, y: the first row's texel; bx, by, hx, hy: batch and head strides; sy: row stride. Returns the reason as text if
    rows do not consist of whole texels.
    """
    found: dict[str, Any] = {}
    size, reach = view.shape[3], 0
    if is_symbolic_int(columns) or is_symbolic_int(size) or columns % 4 or size % 4:
        return f"rows of {columns} with heads of {size} are not made of whole texels"
    for axis, step in (("", view.offset), ("b", view.strides[0]), ("h", view.strides[1]), ("s", view.strides[2])):
        count = 2 if axis == "" else view.shape["bhs".index(axis)]
        if axis and always_equal(count, 1):
            rows, rest = 0, 0
        elif is_multiple(step, columns):
            rows, rest = step // columns, 0
        elif is_symbolic_int(step) or is_symbolic_int(count) or step % 4:
            return f"{axis or 'the first row'} begins {step} elements further on, which is no whole row or texel"
        else:
            rows, rest = step // columns, step % columns
            reach += rest * (count - 1)
        if axis == "s" and rest:
            return f"row stride {step} is not a multiple of {columns}"
        found |= {f"{axis}y": rows} if axis == "s" else {f"{axis}x": rest // 4, f"{axis}y": rows}
    if reach + size > columns:
        return f"heads of {size} reach beyond rows of {columns} elements"
    return found
