"""Functions: model-local functions, and function bodies of ONNX operator schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from ...errors import UnsupportedOpError
from ...ir.graph import Value
from .decode import TensorReader
from .encode import make_proto, type_proto
from .graphdef import Attr, GraphDef, NodeDef, parse_attribute, parse_function
from .op_schemas import find_schema


@dataclass(eq=False)
class FunctionDef:
    """Body of a function, and its attributes with their defaults (None: no default)."""

    body: GraphDef
    attributes: Mapping[str, Attr | None] = field(default_factory=dict)

    def instantiate(self, node: NodeDef) -> GraphDef:
        """Return the body with the attributes of the calling `node`."""
        bound = {k: a for k, a in self.attributes.items() if a is not None}
        bound.update(node.attributes)
        return self.body.bind(bound)


FunctionTable = Mapping[tuple[str, str, str], FunctionDef]


def read_functions(protos: Any, reader: TensorReader) -> dict[tuple[str, str, str], FunctionDef]:
    """Return the model-local functions by (domain, name, overload)."""
    return {(p.domain, p.name, getattr(p, "overload", "")): FunctionDef(*parse_function(p, reader)) for p in protos}


def expand_schema(node: NodeDef, inputs: Sequence[Value | None]) -> GraphDef | None:
    """Return the function body of the operator's ONNX schema for inputs of these types; None if it has none."""
    schema = find_schema(node)
    if schema is None:
        return None
    raw: bytes | None = None
    if schema.has_function:
        raw = _fixed_body(schema, node.version)
    elif schema.has_context_dependent_function:
        raw = _context_body(schema, node, inputs)
    if not raw:
        return None
    body, _ = parse_function(onnx.FunctionProto.FromString(raw), TensorReader(None), node.opsets)
    return body.bind({**_schema_defaults(schema), **node.attributes})


def _fixed_body(schema: Any, version: int) -> bytes:
    found: bytes = schema.get_function_with_opset_version(_nearest(schema.function_opset_versions, version))
    return found


def _context_body(schema: Any, node: NodeDef, inputs: Sequence[Value | None]) -> bytes:
    version = _nearest(schema.context_dependent_function_opset_versions, node.version)
    types = [b"" if v is None else type_proto(v.type).SerializeToString() for v in inputs]
    body: bytes = schema.get_context_dependent_function_with_opset_version(
        version, make_proto(node).SerializeToString(), types
    )
    return body


def _nearest(versions: Sequence[int], wanted: int) -> int:
    """Return the newest of `versions` up to `wanted`, else the oldest: a body declares its own opset."""
    return max((v for v in versions if v <= wanted), default=min(versions))


def _schema_defaults(schema: Any) -> dict[str, Attr]:
    defaults = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name:
            defaults[name] = parse_attribute(attribute.default_value, {}, TensorReader(None))
    return defaults


def check_no_recursion(functions: FunctionTable) -> None:
    """Raise UnsupportedOpError if a model-local function calls itself, directly or through others."""
    done: set[tuple[str, str, str]] = set()

    def visit(key: tuple[str, str, str], path: tuple[tuple[str, str, str], ...]) -> None:
        if key in path:
            raise UnsupportedOpError(f"the model's function '{key[1]}' of domain '{key[0]}' calls itself")
        if key in done or key not in functions:
            return
        for called in called_functions(functions[key].body):
            visit(called, (*path, key))
        done.add(key)

    for key in functions:
        visit(key, ())


def called_functions(graph: GraphDef) -> set[tuple[str, str, str]]:
    """Return (domain, name, overload) of every operator in a graph and its inner graphs."""
    found = set()
    for node in graph.nodes:
        found.add((node.domain, node.op_type, node.overload))
        for inner in node.graphs:
            found |= called_functions(inner)
    return found
