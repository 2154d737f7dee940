"""read_tflite: a .tflite file as a Model."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnx import IR_VERSION

from ....errors import ModelFormatError, OpaliteError, OptionError
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
from .normalization import KEY, NAME, read_normalization
from .subgraphs import SubgraphReader
from .tables import Tables, schema, text
from .tensors import Buffers

_DAMAGE = (
    *(struct.error, IndexError, KeyError, ValueError, TypeError, OverflowError),
    *(AttributeError, AssertionError, MemoryError, zipfile.BadZipFile, RecursionError),
)
"""What flatbuffers' readers raise for offsets that point nowhere."""


@dataclass(frozen=True, eq=False)
class Signature:
    """Names for inputs and outputs of a subgraph: tensor numbers by name."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class TfliteFile:
    """An open file, whose subgraphs `reader` reads."""

    reader: SubgraphReader
    signatures: Mapping[str, Signature]
    meta: ModelMetadata

    def index_of(self, subgraph: str) -> int:
        """Return the number of a subgraph given by its number or by a signature's name; '' is the first one."""
        if subgraph in self.signatures:
            return self.signatures[subgraph].subgraph
        if subgraph and not subgraph.isdecimal():
            raise OptionError(
                f"the file has no signature '{subgraph}': it has {', '.join(self.signatures) or 'none'}, and "
                f"{len(self.reader.graphs)} subgraphs, numbered from 0"
            )
        return int(subgraph or 0)


def read_tflite(contents: bytes | ModelFile, what: str, path: Path | None, edits: ModelEdits | None) -> Model:
    """Read a subgraph, by default the first, with all that it calls. ModelFormatError if the file is damaged."""
    file = open_tflite(contents, what)
    body = read_body(file, file.index_of(edits.subgraph if edits else ""), what)
    functions, opsets = file.reader.functions, {"": file.reader.opset, TFLITE: 1}
    graph = edit_graph(body.graph, edits)
    check_model(graph, functions)
    return Model(graph, functions, opsets, IR_VERSION, file.meta, path)


def open_tflite(contents: bytes | ModelFile, what: str) -> TfliteFile:
    """Open a file. ModelFormatError if it is damaged, ExtraError without the package that reads it."""
    package = schema()
    with _damage_reported(what):
        raw = contents.map(0, contents.size).data if isinstance(contents, ModelFile) else memoryview(contents)
        model = package.Model.GetRootAs(raw, 0)
        tables = Tables(raw)
        reader = SubgraphReader(tables, model, Buffers(tables, model, contents), _evaluate)
        first = reader.graphs[0] if reader.graphs else None
        inputs = [text(first.Tensors(i).Name()) for i in tables.ints(first, "Inputs")] if first is not None else []
        meta = ModelMetadata(
            producer_name="tflite",
            graph_name=text(first.Name()) if first is not None else "",
            description=text(model.Description()),
            version=int(model.Version()),
            custom_metadata_map=_metadata(tables, model, reader.buffers, raw, inputs),
        )
        found = [_signature(tables, s) for s in tables.tables(model, "SignatureDefs")]
        return TfliteFile(reader, {s.key: s for s in found}, meta)


def read_body(file: TfliteFile, index: int, what: str) -> Body:
    """Read a subgraph, with the first values of its variables as initializers, which a run may override."""
    with _damage_reported(what):
        body = file.reader.read(index)
        for v in body.reads:
            body.graph.constants[v.name + PAST] = np.asarray(body.initial.get(v.name, v.initial()))
        return body


@contextmanager
def _damage_reported(what: str) -> Iterator[None]:
    try:
        yield
    except OpaliteError:
        raise
    except _DAMAGE as e:
        raise ModelFormatError(f"{what} is damaged or was cut off: {type(e).__name__}: {e}") from e


def _signature(tables: Tables, table: Any) -> Signature:
    inputs, outputs = (
        {text(m.Name()): int(m.TensorIndex()) for m in tables.tables(table, name)} for name in ("Inputs", "Outputs")
    )
    return Signature(text(table.SignatureKey()), int(table.SubgraphIndex()), inputs, outputs)


def _evaluate(graph: GraphDef, functions: FunctionTable) -> list[Array]:
    check_model(graph, functions)
    return evaluate_graphdef(graph, functions)


def _metadata(tables: Tables, model: Any, buffers: Buffers, raw: memoryview, inputs: Sequence[str]) -> dict[str, str]:
    """Return the file's metadata that is text, the normalisation of `inputs`, and the text files behind the model."""
    found: dict[str, str] = {}
    for entry in tables.tables(model, "Metadata"):
        contents = bytes(buffers.raw(int(entry.Buffer())))
        if text(entry.Name()) == NAME:
            if numbers := read_normalization(contents, inputs):
                found[KEY] = numbers
            continue
        held = text(contents.rstrip(b"\0"))
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
