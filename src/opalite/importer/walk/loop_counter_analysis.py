"""Analysis of loop bodies: whether the loop counter determines shapes, slice positions or branches.

Such a body is a different program in each iteration: only unrolling makes it one program. The analysis is static, by
names, and need not be exact, because loops give equal results unrolled or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..proto.graphdef import GraphDef

_CONTENT_INPUTS: dict[str, tuple[int, ...]] = {
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "If": (0,),
    "Loop": (0, 1),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "SequenceAt": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Upsample": (1,),
}
"""Inputs whose contents the importer needs, by operator."""

_SHAPE_ONLY = ("Shape", "Size")
"""Operators that do not read contents."""


def shapes_depend_on(body: GraphDef, names: Iterable[str]) -> bool:
    """Whether shapes, slices or branches of the body depend on the contents of its inputs `names`."""
    known = set(names)
    for node in body.nodes:
        read = [i for i, name in enumerate(node.inputs) if name in known]
        captured = any(known.intersection(graph.captures) for graph in node.graphs)
        if not read and not captured:
            continue
        deciding = () if node.domain else _CONTENT_INPUTS.get(node.op_type, ())
        if any(i in deciding for i in read):
            return True
        if any(shapes_depend_on(graph, known) for graph in node.graphs):
            return True
        if node.op_type not in _SHAPE_ONLY:
            known.update(n for n in node.outputs if n)
    return False
