"""Model: a file of any format, decoded and checked, before any input shape is known.

The reader of a format (onnx_file.py, tflite/read) gives GraphDefs of NodeDefs, whose importer functions are found by
domain and operator name. Nothing that follows knows the format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..errors import ModelFormatError
from ..ir.constants.model_file import ModelFile
from ..ir.model_edits import ModelMetadata
from .proto.decode import ValueInfo
from .proto.functions import FunctionTable, check_no_recursion
from .proto.graphdef import GraphDef, NodeDef
from .proto.op_schemas import find_schema, unknown_op
from .walk.constant_evaluation import RANDOM_OPS
from .walk.control_flow import find_control
from .walk.model_importer import ModelImporter
from .walk.node_context import find_handler

NO_VERSION = 2**63 - 1
"""Version of a model that declares none, as onnxruntime reports it."""


@dataclass(frozen=True, eq=False)
class Model:
    """Checked model.

    opsets: versions by domain. path: the source file, if any. data_files: files with external tensor data, by location.
    """

    graph: GraphDef
    functions: FunctionTable
    opsets: Mapping[str, int]
    ir_version: int
    meta: ModelMetadata
    path: Path | None = None
    data_files: Mapping[str, ModelFile] = field(default_factory=dict)

    @cached_property
    def is_reproducible(self) -> bool:
        """Whether file and input types determine every import: no external data, no random numbers."""
        return not self.data_files and not self.uses_random_numbers

    @cached_property
    def uses_random_numbers(self) -> bool:
        """Whether a node draws random numbers."""
        bodies = [self.graph, *(f.body for f in self.functions.values())]
        return any(_is_random(n) for g in bodies for n in _all_nodes(g))

    @cached_property
    def name(self) -> str:
        """Name for messages: the file name, else the graph name."""
        return self.path.name if self.path is not None else self.graph.name or "model"

    @cached_property
    def input_infos(self) -> dict[str, ValueInfo]:
        """All inputs by name, including those with an initializer."""
        return {v.name: v for v in self.graph.inputs}

    @cached_property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """Inputs that every run needs: those without an initializer."""
        return tuple(v for v in self.graph.inputs if v.name not in self.graph.constants)

    @property
    def overridable_inputs(self) -> tuple[ValueInfo, ...]:
        """Inputs with an initializer, which a run may override."""
        return tuple(v for v in self.graph.inputs if v.name in self.graph.constants)

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """Model outputs in order."""
        return self.graph.outputs

    @cached_property
    def importer(self) -> ModelImporter:
        """The importer of this model, shared by all its sessions together with its cached segments."""
        return ModelImporter(self.graph, self.functions)


def check_model(graph: GraphDef, functions: FunctionTable) -> None:
    """Raise ModelError if functions recurse, a node reads an undefined name, or nothing knows an operator."""
    check_no_recursion(functions)
    _check_reads(graph)
    _check_operators(graph, functions)


def _check_reads(graph: GraphDef) -> None:
    """Raise ModelFormatError if a node reads an undefined name, or an input or output has no name."""
    if not all(v.name for v in (*graph.inputs, *graph.outputs)):
        raise ModelFormatError("an input or output of the graph has no name")
    own = {v.name for v in graph.inputs} | graph.constants.keys() | {o for n in graph.nodes for o in n.outputs}
    for name in graph.captures:
        reader = next((n for n in graph.nodes if name in n.reads), None)
        who = f"{reader.label} reads" if reader is not None else "the graph has the output"
        raise ModelFormatError(
            f"{who} '{name}', which no input, initializer or node defines (the graph has {len(own)} names)"
        )


def _check_operators(graph: GraphDef, functions: FunctionTable) -> None:
    """Raise UnsupportedOpError for the first node without importer function, model function or schema."""
    seen = set()
    called = []
    for node in _all_nodes(graph):
        key = (node.op_type, node.domain, node.overload, node.version)
        if key in seen:
            continue
        seen.add(key)
        function = functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            called.append(function)
        elif not _is_known(node):
            error = unknown_op(node)
            error.operator = node.domain, node.op_type
            raise error
    for function in called:
        _check_operators(function.body, functions)


def _is_known(node: NodeDef) -> bool:
    if find_control(node) is not None:
        return True
    return find_handler(node.op_type, node.domain, node.version) is not None or find_schema(node) is not None


def _is_random(node: NodeDef) -> bool:
    """Whether a node may draw random numbers, from a seed chosen at import."""
    return node.op_type in RANDOM_OPS and (node.op_type != "Dropout" or len(node.inputs) > 2)


def _all_nodes(graph: GraphDef) -> Iterator[NodeDef]:
    for node in graph.nodes:
        yield node
        for inner in node.graphs:
            yield from _all_nodes(inner)
