"""Nodes of the graphs that a node of an ONNX message holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx


def inside(node: Any) -> Iterator[Any]:
    """All nodes of a node's subgraphs."""
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            for inner in graph.node:
                yield inner
                yield from inside(inner)
