"""Storage precision, marked before kernels are picked: some of them hold one element type only."""

from __future__ import annotations

from ..ir.dtype import DType
from ..ir.graph import Graph


def mark_precision(graph: Graph, precision: DType | None) -> None:
    """Note on every float32 value that the graph computes that the device will store it as `precision`."""
    for node in graph.nodes:
        for v in node.outputs:
            if v.dtype is DType.FLOAT32:
                v.type = v.type.with_place(v.type.place.with_precision(precision))
