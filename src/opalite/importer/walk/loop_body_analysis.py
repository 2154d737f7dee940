"""Analysis of loop bodies: dependence on the loop counter, and recognition of pairwise distances.

A body whose counter determines shapes, slice positions or branches is a different program in each iteration: only
unrolling makes it one program. That analysis is static, by names, and need not be exact, because loops give equal
results unrolled or not.

Exporters of nearest-neighbour and Gaussian-process models write Scans that compute all pairwise distances. The state is
one set of points and stays unchanged. Each row of the other set is subtracted from the state, squared (or made
absolute) and summed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..proto.graphdef import GraphDef, NodeDef

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


def distance_power(body: GraphDef) -> int | None:
    """Return the power p (1 or 2) if the body of a Scan sums |state - row|^p (distances), else None.

    The body has one state and one scanned input: state' = state; out = sum over axis 1 of |state - row| or (state -
    row)^2.
    """
    if len(body.inputs) != 2 or len(body.outputs) != 2:
        return None
    state, row = (v.name for v in body.inputs)
    made = {n.outputs[0]: n for n in body.nodes if len(n.outputs) == 1 and not n.domain}
    if len(made) != len(body.nodes) or _source(body.outputs[0].name, made) != state:
        return None
    total = made.get(_source(body.outputs[1].name, made))
    if total is None or total.attrs.get("keepdims", 1) or _axes(total, body) != (1,):
        return None
    power = {"ReduceSumSquare": 2, "ReduceL1": 1}.get(total.op_type)
    of = made.get(_source(total.inputs[0], made))
    if total.op_type == "ReduceSum" and of is not None and of.op_type == "Abs":
        power, of = 1, made.get(_source(of.inputs[0], made))
    if power is None or of is None or of.op_type != "Sub":
        return None
    pair = {_source(n, made) for n in of.inputs}
    return power if pair == {state, row} else None


def _source(name: str, made: dict[str, NodeDef]) -> str:
    """Follow Identity nodes from `name` to their source."""
    while name in made and made[name].op_type == "Identity":
        name = made[name].inputs[0]
    return name


def _axes(node: NodeDef, body: GraphDef) -> tuple[int, ...] | None:
    given: Any = node.attrs.get("axes")
    if given is None and len(node.inputs) > 1:
        given = body.constants.get(node.inputs[1])
    return None if given is None else tuple(int(a) for a in np.asarray(given).reshape(-1))
