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


@operation("control", 0.3)
def changed_sequence(b: Builder) -> None:
    """Pieces of which one is put in and one taken out, at places that are constants or inputs."""
    if not b.has("SequenceInsert"):
        raise Rejected("SequenceInsert")
    d, x = b.draw, b.real(where=lambda a: a.ndim >= 1 and 0 < a.size <= 3000)
    axis = d.between(0, b[x].ndim - 1)
    count = b[x].shape[axis]
    pieces, more, less, y = b.name("s"), b.name("s"), b.name("s"), b.name("v")
    at, gone = (b.const(np.int64(n), 0.3) for n in (d.between(-count, count), d.between(-count - 1, count)))
    nodes = [
        helper.make_node("SplitToSequence", [x], [pieces], name=f"SplitToSequence_{pieces}", axis=axis),
        helper.make_node("SequenceInsert", [pieces, x, at], [more], name=f"SequenceInsert_{more}"),
        helper.make_node("SequenceErase", [more, gone], [less], name=f"SequenceErase_{less}"),
        helper.make_node("ConcatFromSequence", [less], [y], name=f"ConcatFromSequence_{y}", axis=axis),
    ]
    b.add(nodes, [y])
