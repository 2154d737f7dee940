"""Fold zero padding into the Conv or Pool that reads it."""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Node
from ...ir.patch import Patch
from ...ops.conv import Conv, neutral_zeros
from ...ops.data_movement import Pad
from ...ops.pool import Pool
from ..rewrite_driver import Sweep, joined_origin


def fold_pad(node: Node, sweep: Sweep) -> Patch | str | None:
    """Spatial zero padding becomes part of the reader's own padding."""
    op = node.op
    if not isinstance(op, Conv | Pool):
        return None
    pad = node.x.producer
    if pad is None or not isinstance(pad.op, Pad):
        return None
    if sweep.only_use(node.x) is not node:
        return "the padded tensor has other readers"
    if pad.op.mode != "constant" or pad.op.value != 0:
        return "padding is not zeros"
    rank = len(node.x.shape)
    pads = pad.op.pads
    if any(pads[:2]) or any(pads[rank : rank + 2]):
        return "padding touches batch or channels"
    if isinstance(op, Conv) and (w := node.inputs[1]) is not None and not neutral_zeros(w):
        return "zeros are not neutral for weights that may be infinite"
    if isinstance(op, Pool) and not (op.kind == "average" and (op.count_include_pad or not any(op.pads))):
        return "zeros are not neutral for this pooling"
    if isinstance(op, Pool) and op.ceil_mode:
        return "ceil_mode depends on where padding ends"
    joined = tuple(o + p for o, p in zip(op.pads, (*pads[2:rank], *pads[rank + 2 :]), strict=True))
    wide = replace(op, pads=joined, count_include_pad=True) if isinstance(op, Pool) else replace(op, pads=joined)
    made = node.with_(op=wide, inputs=[pad.x, *node.inputs[1:]], origin=joined_origin(pad, node))
    return Patch.replacing(node, made, also=[pad])
