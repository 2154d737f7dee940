"""read_tflite: a .tflite file as a Model."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnx import IR_VERSION

from ....errors import ModelError, ModelFormatError
from ....ir import Array
from ....ir.constants.model_file import ModelFile
from ....ir.model_edits import ModelEdits, ModelMetadata
from ...edit_graph import edit_graph
from ...model import Model, check_model
from ...proto.functions import FunctionTable
from ...proto.graphdef import GraphDef
from ...proto.op_schemas import TFLITE
from ...walk.evaluate_graphdef import evaluate_graphdef
from .bodies import PAST, Body
from .subgraphs import SubgraphReader
from .tables import Tables, schema, text
from .tensors import Buffers

_DAMAGE = (
    *(struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError),
    *(AttributeError, AssertionError, MemoryError, zipfile.BadZipFile, RecursionError),
)
"""What flatbuffers' readers raise for offsets that point nowhere."""


def read_tflite(contents: bytes | ModelFile, what: str, path: Path | None, edits: ModelEdits | None) -> Model:
    """Read the first subgraph of a file, with all that it calls. ModelFormatError if the file is damaged."""
    schema()
    try:
        body, reader, meta = _read(contents)
    except ModelError:
        raise
    except _DAMAGE as e:
        raise ModelFormatError(f"{what} is damaged or was cut off: {type(e).__name__}: {e}") from e
    graph = edit_graph(with_variables(body), edits)
    check_model(graph, reader.functions)
    return Model(graph, reader.functions, {"": reader.opset, TFLITE: 1}, IR_VERSION, meta, path)


def _read(contents: bytes | ModelFile) -> tuple[Body, SubgraphReader, ModelMetadata]:
    raw = contents.map(0, contents.size).data if isinstance(contents, ModelFile) else memoryview(contents)
    model = schema().Model.GetRootAs(raw, 0)
    tables = Tables(raw)
    reader = SubgraphReader(tables, model, Buffers(tables, model, contents), _evaluate)
    meta = ModelMetadata(
        producer_name="tflite",
        graph_name=text(reader.graphs[0].Name()) if reader.graphs else "",
        description=text(model.Description()),
        version=int(model.Version()),
        custom_metadata_map=_metadata(tables, model, reader.buffers, raw),
    )
    return reader.read(0), reader, meta


def _evaluate(graph: GraphDef, functions: FunctionTable) -> list[Array]:
    check_model(graph, functions)
    return evaluate_graphdef(graph, functions)


def with_variables(body: Body) -> GraphDef:
    """Return the graph with the first value of each variable as an initializer, which a run may override."""
    for v in body.reads:
        body.graph.constants[v.name + PAST] = np.asarray(body.initial.get(v.name, v.initial()))
    return body.graph


def _metadata(tables: Tables, model: Any, buffers: Buffers, raw: memoryview) -> dict[str, str]:
    """Return the file's metadata that is text, and the text files packed behind the model, such as labels."""
    found: dict[str, str] = {}
    for entry in tables.tables(model, "Metadata"):
        held = text(buffers.raw(int(entry.Buffer())).rstrip(b"\0"))
        if held.isprintable():
            found[text(entry.Name())] = held
    found.update(_packed_files(raw))
    return found


_LARGEST_TEXT = 1 << 24


def _packed_files(raw: memoryview) -> Mapping[str, str]:
    """Return the text files of the zip archive that follows the model, by name."""
    end = bytes(raw[max(0, len(raw) - (1 << 16) - 22) :]).rfind(b"PK\5\6")
    if end < 0:
        return {}
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            small = [i for i in archive.infolist() if i.file_size <= _LARGEST_TEXT]
            return {i.filename: archive.read(i).decode("utf-8", "replace") for i in small}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError):
        return {}  # bytes of a weight that look like an archive
