"""Model: an ONNX file, decoded and checked, before any input shape is known."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx
from onnx import defs

from ..errors import ModelError, ModelFileError, ModelFormatError, UnsupportedOpError
from ..ir.constants.model_file import FilePart, ModelFile
from ..ir.model_edits import ModelEdits, ModelMetadata
from .proto.apply_edits import edit_model, infer_outputs
from .proto.decode import TensorReader, ValueInfo, file_kind
from .proto.extract_weights import FileView, load_weights
from .proto.functions import FunctionTable, check_no_recursion, read_functions
from .proto.graphdef import GraphDef, NodeDef, parse_graph, read_opsets
from .proto.op_schemas import find_schema, unknown_op
from .proto.undo_nchwc import undo_nchwc
from .walk.constant_evaluation import RANDOM_OPS
from .walk.control_flow import find_control
from .walk.model_importer import ModelImporter
from .walk.node_context import find_handler

_NO_VERSION = 2**63 - 1
"""Version of a model that declares none, as onnxruntime reports it."""

_PIPE_S = 1.0  # wait in seconds for a writer to open a pipe


@dataclass(frozen=True, eq=False)
class Model:
    """Checked ONNX model.

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


Weights = Mapping[int, memoryview | FilePart]
"""Initializer data stored outside the protobuf message, by initializer number."""


def load_model(
    source: str | os.PathLike[str] | bytes | Any,
    folder: str | os.PathLike[str] | None = None,
    edits: ModelEdits | None = None,
    file: ModelFile | None = None,
) -> Model:
    """Load a model from a path, the bytes of a file, or a ModelProto, and apply `edits`.

    External data is read from the folder of the file, or from `folder`. file: the file at the path, if it is open
    already. Raises ModelFormatError if the bytes are no complete ONNX model or data files are missing, and
    UnsupportedOpError for operators without an implementation.
    """
    path: Path | None = None
    weights: Weights = {}
    if isinstance(source, onnx.ModelProto):
        proto = source
    elif isinstance(source, (bytes, bytearray, memoryview)):
        proto, weights = _parse(bytes(source), "the model given as bytes")
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        proto, weights = _parse(_open_file(path) if file is None else file, f"'{path}'")
    else:
        raise ModelFormatError(f"a model is a path, bytes or an onnx.ModelProto, got {type(source).__name__}")
    base = Path(folder) if folder is not None else path.parent if path is not None else None
    try:
        if edits:
            weights = edit_model(proto, weights, edits)
            base = Path(edits.folder) if edits.folder else base
        infer_outputs(proto, bool(edits and (edits.dims or edits.dims_by_denotation)))
        return _make_model(proto, weights, base, path, edits.files if edits else {})
    except ModelError as e:
        e.add_context(f"while loading '{path}'" if path else "while loading the model")
        raise


def _make_model(
    proto: Any, weights: Weights, folder: Path | None, path: Path | None, files: Mapping[str, bytes]
) -> Model:
    opsets = _check_versions(proto)
    reader = TensorReader(folder, files, None if path is None else path.resolve().parent)
    graph = undo_nchwc(parse_graph(proto.graph, opsets, reader, weights))
    functions = read_functions(proto.functions, reader)
    check_no_recursion(functions)
    _check_reads(graph)
    _check_operators(graph, functions)
    meta = ModelMetadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        int(proto.model_version) if proto.HasField("model_version") else _NO_VERSION,
        {p.key: p.value for p in proto.metadata_props},
    )
    return Model(graph, functions, opsets, int(proto.ir_version), meta, path, reader.opened)


# Bytes

_OTHER_FORMATS = (
    (0, b"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"\x89HDF", "an HDF5 file, such as a Keras model"),
    (0, b"\x80\x02", "a pickle, such as an old PyTorch checkpoint"),
    (0, b"{", "JSON"),
    (0, b"<", "XML, such as an OpenVINO model or a web page"),
    (0, b"version https://git-lfs", "a Git LFS pointer: fetch the file itself with `git lfs pull`"),
)


def _open_file(path: Path) -> bytes | ModelFile:
    """Open the file at `path`; a pipe is read at once."""
    if path.is_dir():
        raise ModelFormatError(f"'{path}' is a folder: give the .onnx file in it")
    try:
        # Windows locks open files: the model could not be replaced.
        if path.is_fifo():
            return _read_pipe(path)
        if not path.is_file():
            raise ModelFormatError(f"'{path}' is {file_kind(path.stat().st_mode)}: give the .onnx file itself")
        return ModelFile(path) if os.name == "posix" else path.read_bytes()
    except FileNotFoundError:
        raise ModelFileError(f"there is no file '{path}'") from None
    except OSError as e:
        raise ModelFormatError(f"'{path}' cannot be read: {e.strerror or e}") from e
    except ValueError as e:  # for example a zero byte in the name
        raise ModelFormatError(f"{str(path)!r} cannot be the name of a file: {e}") from e


def _read_pipe(path: Path) -> bytes:
    """Read a pipe to its end; ModelFileError if no process opens it for writing within a second."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(number, "rb", buffering=0) as file:
        select.select([number], [], [], _PIPE_S)
        head = file.read(1 << 16)
        if head == b"":
            raise ModelFileError(f"'{path}' is a pipe that nobody writes to: give the .onnx file itself")
        os.set_blocking(number, True)
        return (head or b"") + file.read()  # None: a writer has opened the pipe and not yet written


def _parse(source: bytes | ModelFile, what: str) -> tuple[Any, Weights]:
    """Parse bytes into (ModelProto without large weights, data of these weights by initializer number)."""
    view = FileView(source) if isinstance(source, ModelFile) else None
    size = source.size if isinstance(source, ModelFile) else len(source)
    if not size:
        raise ModelFormatError(f"{what} is empty: an ONNX model was expected")
    head = bytes(view.part(0, min(size, 64))) if view is not None else source[:64]  # type: ignore[index]
    for offset, mark, kind in reversed(_OTHER_FORMATS):
        if head.startswith(mark, offset):
            raise ModelFormatError(f"{what} is not an ONNX model but {kind}")
    try:
        rest, weights = load_weights(source if view is None else view)  # type: ignore[arg-type]
        proto = onnx.ModelProto.FromString(rest)
    except ModelError:
        raise
    except Exception as e:  # protobuf's DecodeError; this package does not depend on protobuf
        if head[8:9] == b"{":  # after the 8-byte length of the header
            raise ModelFormatError(
                f"{what} is not an ONNX model but a safetensors file or an .opal bundle, which is compiled already"
            ) from e
        raise ModelFormatError(
            f"{what} is not a complete ONNX model ({size} bytes): it is damaged, cut off or of another format"
        ) from e
    if not proto.HasField("graph") or not (proto.ir_version or proto.opset_import):
        raise ModelFormatError(f"{what} holds no ONNX graph: it is of another format or was cut off")
    return proto, weights


# Checks


def _check_versions(proto: Any) -> dict[str, int]:
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelFormatError(
            f"the model has IR version {proto.ir_version}; onnx {onnx.__version__} knows up to {onnx.IR_VERSION}: "
            "upgrade the onnx package"
        )
    newest = defs.onnx_opset_version()
    # Only other domains are declared: onnxruntime then uses the newest version of ai.onnx.
    opsets = {"": newest, **read_opsets(proto.opset_import)} if proto.opset_import else {"": 1}
    if opsets.get("", 0) > newest:
        raise UnsupportedOpError(
            f"the model uses opset {opsets['']}; onnx {onnx.__version__} knows up to {newest}: upgrade the onnx "
            "package or convert the model to an older opset"
        )
    return opsets


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
            raise unknown_op(node)
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
