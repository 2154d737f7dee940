"""Encoding to ONNX messages, for functions of the onnx package: inference, function bodies, host operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper, numpy_helper

from ...ir.tensor_type import TensorType
from .decode import ValueInfo, elem_code
from .graphdef import Attr, GraphDef, NodeDef


def make_proto(node: NodeDef) -> Any:
    """Return a NodeProto with inputs x0, x1... and outputs y0, y1...; '' for an absent one."""
    inputs = [f"x{i}" if n else "" for i, n in enumerate(node.inputs)]
    outputs = [f"y{i}" if n else "" for i, n in enumerate(node.outputs)]
    return _node_proto(node, inputs, outputs)


def type_proto(t: TensorType) -> Any:
    """Return a TensorType as TypeProto."""
    return helper.make_tensor_type_proto(elem_code(t.dtype), t.shape)


def _node_proto(node: NodeDef, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name, input=inputs, output=outputs)
    proto.attribute.extend(_attribute_proto(name, attr) for name, attr in node.attributes.items())
    return proto


def _attribute_proto(name: str, attr: Attr) -> Any:
    value = attr.value
    if attr.type == onnx.AttributeProto.TENSOR:
        value = numpy_helper.from_array(value)
    elif attr.type == onnx.AttributeProto.TENSORS:
        value = [numpy_helper.from_array(v) for v in value]
    elif attr.type == onnx.AttributeProto.GRAPH:
        value = _graph_proto(value)
    elif attr.type == onnx.AttributeProto.GRAPHS:
        value = [_graph_proto(g) for g in value]
    return helper.make_attribute(name, value, attr_type=attr.type)


def _graph_proto(graph: GraphDef) -> Any:
    proto = onnx.GraphProto(name=graph.name)
    proto.input.extend(map(_value_info, graph.inputs))
    proto.output.extend(map(_value_info, graph.outputs))
    proto.node.extend(_node_proto(n, n.inputs, n.outputs) for n in graph.nodes)
    proto.initializer.extend(numpy_helper.from_array(a, n) for n, a in graph.constants.items())
    return proto


def _value_info(info: ValueInfo) -> Any:
    proto = onnx.ValueInfoProto(name=info.name)
    if info.kind == "tensor" and info.dtype is not None:
        shape = None if info.shape is None else list(info.shape)
        proto.type.CopyFrom(helper.make_tensor_type_proto(elem_code(info.dtype), shape))
    return proto
