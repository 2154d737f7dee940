"""Sequences and optionals, from a tensor and back to one."""

from __future__ import annotations

import numpy as np

from onnx import helper

from ..builder import Builder, Rejected
from ..registry import operation


@operation("control", 0.4)
def through_sequence(b: Builder) -> None:
    """Cut into pieces and joined again, or one of them taken."""
    if not b.has("SplitToSequence"):
        raise Rejected("SplitToSequence")
    d, x = b.draw, b.real(where=lambda a: a.ndim >= 1 and a.size > 0)
    axis = d.between(0, b[x].ndim - 1)
    pieces, y = b.name("s"), b.name("v")
    size = b.const(np.int64(d.between(1, max(1, b[x].shape[axis] // 2))), 0.0)
    nodes = [helper.make_node("SplitToSequence", [x, size], [pieces], name=f"SplitToSequence_{pieces}", axis=axis)]
    if d.chance(0.5):
        nodes.append(helper.make_node("ConcatFromSequence", [pieces], [y], name=f"ConcatFromSequence_{y}", axis=axis))
    else:
        nodes.append(helper.make_node("SequenceAt", [pieces, b.const(np.int64(0), 0.0)], [y], name=f"SequenceAt_{y}"))
    b.add(nodes, [y])


@operation("control", 0.3)
def made_sequence(b: Builder) -> None:
    """Two tensors of one shape, stacked."""
    if not b.has("SequenceConstruct"):
        raise Rejected("SequenceConstruct")
    x = b.real(where=lambda a: 0 < a.size <= 3000)
    other = b.find(lambda a: a.dtype == b.dtype and a.shape == b[x].shape) or x
    pair, y = b.name("s"), b.name("v")
    nodes = [
        helper.make_node("SequenceConstruct", [x, other], [pair], name=f"SequenceConstruct_{pair}"),
        helper.make_node("ConcatFromSequence", [pair], [y], name=f"ConcatFromSequence_{y}", axis=0, new_axis=1),
    ]
    b.add(nodes, [y])
