"""Transposes between channel-packed blocks and channels-last rows, without separate layout casts.

Networks that normalise or multiply over channels (ConvNeXt, MaxViT, SegFormer) move channels last and back between
convolutions.
"""

from __future__ import annotations

import math

from ...ir.graph import Node
from ...ir.place import FLAT, packed
from ...ops.data_movement import Transpose
from ..kernel import Binding, Bindings, Kernel, Params, Problem, register
from ..launch import ELEMENT, Args, Launch, ceil_div
from .strided_copy_axes import accesses


@register
class TransposeChannelBlocks(Kernel):
    """A work-item moves one channel block at EACH positions."""

    op = "Transpose"
    space = {"EACH": (1, 4, 16, 64, 256)}

    def refuse(self, p: Problem) -> str | None:
        if p.device.pack == 1:
            return "the device has no channel blocks"
        if not p.node.x.dtype.is_float:
            return f"{p.node.x.dtype} is not held in channel blocks"
        return None if _ends_in_rows(p.node) is not None else "channels neither go last nor come from there"

    def bindings(self, p: Problem) -> Bindings:
        blocks = packed(p.device.pack)
        return (Binding((blocks,), (FLAT,)) if _ends_in_rows(p.node) else Binding((FLAT,), (blocks,)),)

    def defaults(self, p: Problem) -> Params:
        return {"EACH": 64 if p.device.is_cpu else 1}

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        ends_in_rows = _ends_in_rows(node)
        n, channels, *rest = node.x.shape if ends_in_rows else node.y.shape
        size, pack, spatial = node.x.type.storage.size, p.device.pack, math.prod(rest)
        blocks, each = ceil_div(channels, pack), params["EACH"]
        load, store = accesses(size, pack)
        prelude = f"#define LOAD_BLOCK(p) {load}\n#define STORE_BLOCK(v, p) {store}\n"
        args: Args = {"x": node.x, "y": node.y, "channels": channels, "blocks": blocks, "spatial": spatial}
        entry = "blocks_to_rows" if ends_in_rows else "rows_to_blocks"
        grid = (blocks, ceil_div(spatial, each), n)
        defines = {"T": ELEMENT[size], "PACK": pack}
        return [Launch(entry, {**args, "each": each, "outer": n}, grid, defines=defines, prelude=prelude)]


def _ends_in_rows(node: Node) -> bool | None:
    """True if the transpose moves channels last, False if it moves them back, None for any other order."""
    perm = node.as_(Transpose).perm
    rank = len(perm)
    if rank < 3:
        return None
    if perm == (0, *range(2, rank), 1):
        return True
    return False if perm == (0, rank - 1, *range(1, rank - 1)) else None
