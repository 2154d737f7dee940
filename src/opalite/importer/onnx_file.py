"""ONNX files: the bytes parsed, checked, and read to a Model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import defs

from ..errors import ModelError, ModelFormatError, OptionError, UnsupportedOpError
from ..ir.constants.model_file import FilePart, ModelFile
from ..ir.model_edits import ModelEdits, ModelMetadata
from .model import NO_VERSION, Model, check_model
from .proto.apply_edits import edit_model, infer_outputs
from .proto.decode import TensorReader
from .proto.extract_weights import FileView, load_weights
from .proto.functions import read_functions
from .proto.graphdef import parse_graph, read_opsets
from .proto.group_experts import group_experts
from .proto.undo_nchwc import undo_nchwc

Weights = Mapping[int, memoryview | FilePart]
"""Initializer data stored outside the protobuf message, by initializer number."""


def make_onnx_model(
    proto: Any, weights: Weights, folder: Path | None, path: Path | None, edits: ModelEdits | None
) -> Model:
    """Apply `edits` to a ModelProto, and return it as a checked Model; external data is read from `folder`."""
    if edits and (edits.subgraph or edits.open_sizes):
        raise OptionError("a subgraph, or open sizes, can be asked for of .tflite files alone; this is an ONNX model")
    if edits:
        weights = edit_model(proto, weights, edits)
        folder = Path(edits.folder) if edits.folder else folder
    infer_outputs(proto, bool(edits and (edits.dims or edits.dims_by_denotation)))
    opsets = _check_versions(proto)
    reader = TensorReader(folder, edits.files if edits else {}, None if path is None else path.resolve().parent)
    graph = group_experts(undo_nchwc(parse_graph(proto.graph, opsets, reader, weights)))
    functions = read_functions(proto.functions, reader)
    check_model(graph, functions)
    meta = ModelMetadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        int(proto.model_version) if proto.HasField("model_version") else NO_VERSION,
        {p.key: p.value for p in proto.metadata_props},
    )
    return Model(graph, functions, opsets, int(proto.ir_version), meta, path, reader.opened)


def parse_onnx(source: bytes | ModelFile, what: str) -> tuple[Any, Weights]:
    """Parse bytes into (ModelProto without large weights, data of these weights by initializer number)."""
    view = FileView(source) if isinstance(source, ModelFile) else None
    size = source.size if isinstance(source, ModelFile) else len(source)
    try:
        rest, weights = load_weights(source if view is None else view)  # type: ignore[arg-type]
        proto = onnx.ModelProto.FromString(rest)
    except ModelError:
        raise
    except Exception as e:  # protobuf's DecodeError; this package does not depend on protobuf
        raise ModelFormatError(
            f"{what} is not a complete ONNX model ({size} bytes): it is damaged, cut off or of another format"
        ) from e
    if not proto.HasField("graph") or not (proto.ir_version or proto.opset_import):
        raise ModelFormatError(f"{what} holds no ONNX graph: it is of another format or was cut off")
    return proto, weights


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
