"""Pad in all modes, on row-major and channel-packed tensors."""

from __future__ import annotations

import math

import numpy as np

from ...ir.graph import Node
from ...ir.place import FLAT, Layout, packed
from ...ir.symbols import is_multiple
from ...ops.data_movement import Pad
from ..codegen.vector_types import Vec
from ..kernel import Binding, Bindings, Kernel, Params, Problem, flat_binding, register
from ..launch import ELEMENT, Args, Launch, ceil_div
from .strided_copy import MAX_AXES, accesses, row_major

MODES = {"constant": 0, "reflect": 1, "edge": 2, "wrap": 3, "symmetric": 4}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@register
class PadRows(Kernel):
    """Copies each output row as border, x, border. Packed tensors move a channel block as one element."""

    op = "Pad"
    space = {"VEC": (16, 8, 4, 1), "EACH": (256, 64, 1024, 1)}
    untuned = {"VEC": 16, "EACH": 256}, {"VEC": 1, "EACH": 1}

    def refuse(self, p: Problem) -> str | None:
        axes = len(merged_axes(p.node, FLAT))
        return f"{axes} axes that cannot be merged are more than {MAX_AXES + 1}" if axes > MAX_AXES + 1 else None

    def bindings(self, p: Problem) -> Bindings:
        node = p.node
        flat, layout, rank = flat_binding(node), packed(p.device.pack), len(node.x.shape)
        if rank not in (3, 4, 5) or not node.x.dtype.is_float:
            return (flat,)
        op, pack, channels = node.as_(Pad), layout.pack, node.x.shape[1]
        zeros = op.mode == "constant" and op.value == 0
        # The lanes past C must stay zero, whatever the border's value.
        fills = op.mode == "constant" and not zeros and not is_multiple(channels, pack)
        # Zero lanes past C are a border too, and whole blocks may follow or precede them.
        splits = any(op.pads[k] for k in (1, rank + 1)) and not (zeros and is_multiple(op.pads[1], pack))
        if fills or splits or any(op.pads[k] for k in (0, rank)):
            return (flat,)
        return flat, Binding((layout,), (layout,))

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        pack, storage = node.y.type.layout.pack, node.x.type.storage
        axes = merged_axes(node, node.y.type.layout)
        columns, begin, wide = axes[-1]
        vec = params["VEC"] if node.y.type.layout.is_row_major else 1
        while vec > max(1, columns):
            vec //= 2
        element = Vec(ELEMENT[storage.size], pack)
        load, store = accesses(storage.size, vec)
        defines = {"T": element, "V": element.base, "MODE": MODES[node.as_(Pad).mode], "OUTER": len(axes) - 1}
        prelude = f"#define LOAD_T(p) {load}\n#define STORE_T(v, p) {store}\n"
        value = np.asarray(node.as_(Pad).value).astype(storage.np).reshape(()).view(_UNSIGNED[storage.size])[()]
        rows = math.prod(a[2] for a in axes[:-1])
        args: Args = {"x": node.x, "y": node.y, "value": value, "columns": columns, "begin": begin}
        args |= {"wide": wide, "each": params["EACH"], "rows": rows}
        strides = row_major([a[0] for a in axes])
        for k, (extent, first, padded) in enumerate(axes[:-1]):
            args |= {f"x_{k}": extent, f"b_{k}": first, f"y_{k}": padded, f"s_{k}": strides[k]}
        grid = (ceil_div(wide, params["EACH"]), rows)
        return [Launch("pad", args, grid, defines={**defines, "VEC": vec}, prelude=prelude)]


def merged_axes(node: Node, layout: Layout) -> list[tuple[int, int, int]]:
    """(extent of x, start of the border, extent of y) of each axis, in elements or channel blocks.

    Axes without a border are merged into the previous axis.
    """
    x, y = list(node.x.shape), list(node.y.shape)
    begins = list(node.as_(Pad).pads[: len(x)])
    if not layout.is_row_major:
        x[1], y[1], begins[1] = (ceil_div(n, layout.pack) for n in (x[1], y[1], begins[1]))
    axes: list[tuple[int, int, int]] = []
    for extent, begin, padded in zip(x, begins, y, strict=True):
        if axes and extent == padded and axes[-1][0] == axes[-1][2]:
            axes[-1] = (axes[-1][0] * extent, 0, axes[-1][2] * padded)
        else:
            axes.append((extent, begin, padded))
    return axes or [(1, 0, 1)]
