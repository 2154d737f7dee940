"""Looking into ONNX's protobuf messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

SCALES = {
    "QLinearAdd": (1, 4, 6),
    "QLinearMul": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "QLinearConv": (1, 4, 6),
    "QLinearSigmoid": (1, 3),
    "QLinearLeakyRelu": (1, 3),
    "QLinearAveragePool": (1, 3),
    "QLinearGlobalAveragePool": (1, 3),
    "QLinearReduceMean": (1, 3),
    "QLinearSoftmax": (1, 3),
}
"""Where the scales stand among the inputs of operators that compute in floats from integers to integers."""


def reads(node: Any) -> list[str]:
    """Names that a node reads, those that its subgraphs capture included."""
    found = [i for i in node.input if i]
    for attribute in node.attribute:
        for graph in subgraphs(attribute):
            own = {v.name for v in (*graph.input, *graph.initializer)} | {o for n in graph.node for o in n.output}
            inner = [r for n in graph.node for r in reads(n)] + [o.name for o in graph.output]
            found += [r for r in inner if r not in own]
    return found


def subgraphs(attribute: Any) -> Sequence[Any]:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return [attribute.g]
    return list(attribute.graphs)


def copy_model(model: Any) -> Any:
    found = onnx.ModelProto()
    found.CopyFrom(model)
    return found


def opset_of(model: Any) -> int:
    """The version of ai.onnx."""
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def prune(model: Any) -> None:
    """Drop nodes, initializers and inputs that no output needs."""
    graph = model.graph
    live = {o.name for o in graph.output}
    kept = []
    for node in reversed(graph.node):
        if any(o in live for o in node.output):
            kept.append(node)
            live.update(reads(node))
    for field, items in (
        (graph.node, kept[::-1]),
        (graph.initializer, [t for t in graph.initializer if t.name in live]),
        (graph.input, [t for t in graph.input if t.name in live]),
        (graph.value_info, []),
    ):
        items = list(items)
        del field[:]
        field.extend(items)


def opset_ids(version: int) -> list[Any]:
    """What a model of the fuzzer imports: `version` of ai.onnx, and the other domains that graphs draw from."""
    domains = (("", version), ("com.microsoft", 1), ("ai.onnx.ml", 3))
    return [helper.make_opsetid(*d) for d in domains]


def scales_of(node: Any) -> list[str]:
    """Scales that an operator on quantised tensors reads, which it dequantises and quantises by within."""
    return [node.input[i] for i in SCALES.get(node.op_type, ()) if i < len(node.input) and node.input[i]]
