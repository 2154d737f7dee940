"""Fold a Pad of zeros into the Conv or Pool that reads it."""

from __future__ import annotations

from ..ir.graph import Node
from ..ir.names import output_like
from ..ir.patch import Patch
from ..ops.conv import neutral_zeros
from .rewrite import Sweep


def fold_pad(node: Node, sweep: Sweep) -> Patch | str | None:
    """Spatial zero padding becomes part of the reader's own padding."""
    if node.op.name not in ("Conv", "Pool") or node.x.producer is None or node.x.producer.op.name != "Pad":
        return None
    pad = node.x.producer
    if sweep.only_use(node.x) is not node:
        return "the padded tensor has other readers"
    if pad.attrs["mode"] != "constant" or pad.attrs.get("value", 0) != 0:
        return "padding is not zeros"
    rank = len(node.x.shape)
    pads = pad.attrs["pads"]
    if any(pads[:2]) or any(pads[rank : rank + 2]):
        return "padding touches batch or channels"
    if node.op.name == "Conv" and (w := node.inputs[1]) is not None and not neutral_zeros(w):
        return "zeros are not neutral for weights that may be infinite"
    if node.op.name == "Pool" and not (
        node.attrs["kind"] == "average" and (node.attrs["count_include_pad"] or not any(node.attrs["pads"]))
    ):
        return "zeros are not neutral for this pooling"
    if node.op.name == "Pool" and node.attrs.get("ceil_mode"):
        return "ceil_mode depends on where padding ends"
    own = node.attrs["pads"]
    joined = tuple(o + p for o, p in zip(own, (*pads[2:rank], *pads[rank + 2 :]), strict=True))
    attrs = {**node.attrs, "pads": joined}
    if node.op.name == "Pool":
        attrs["count_include_pad"] = True
    out = output_like(node)
    moved = Node(node.op, [pad.x, *node.inputs[1:]], [out], attrs, node.name, node.origin)
    return Patch([pad, node], [moved], {node.y: out})
