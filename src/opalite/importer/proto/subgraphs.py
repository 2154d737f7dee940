"""Nodes of subgraphs of an ONNX NodeProto."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx


def nested_nodes(node: Any) -> Iterator[Any]:
    """Yield all nodes of a node's subgraphs, recursively."""
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            for inner in graph.node:
                yield inner
                yield from nested_nodes(inner)
