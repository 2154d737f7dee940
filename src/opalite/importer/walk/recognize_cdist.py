"""Recognition of Scans that compute all pairwise distances; one PairwiseDistance replaces the loop.

Exporters of nearest-neighbour and Gaussian-process models write such Scans. The state is one set of points and stays
unchanged. Each row of the other set is subtracted from the state, squared (or made absolute) and summed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.graph import Value
from ...ops.pairwise_distance import PairwiseDistance
from ..op_registry import onnx_op
from ..proto.graphdef import DOMAIN, GraphDef, NodeDef
from .node_context import NodeContext


def distance_power(body: GraphDef) -> int | None:
    """Return the power of the summed differences if the body of a Scan computes distances, else None.

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


@onnx_op("Distances", domain=DOMAIN)
def distances(ctx: NodeContext) -> Value:
    """Import Distances: compute pairwise distances [M, N] of points x[N,F] and y[M,F]; attribute `power`."""
    x, y = ctx.input(0), ctx.input(1)
    found = ctx.add(PairwiseDistance(power=ctx.attr("power")), [x, ctx.transpose(y, (1, 0))])
    return ctx.transpose(found, (1, 0))
