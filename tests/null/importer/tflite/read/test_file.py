"""Whole .tflite files: metadata, signatures, constants of every kind, and damage."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import ai_edge_litert.schema_py_generated as schema
import flatbuffers
import numpy as np
import pytest

from opalite.errors import ModelFormatError, OpaliteError, OptionError
from opalite.importer import load_model
from opalite.ir.constants.lazy_array import LazyArray
from opalite.ir.model_edits import ModelEdits

from .....helpers.numpy_session import NumpySession
from .....helpers.tflite_files import TfliteFile
from .....helpers.tflite_models import branching_file, looping_file
from ..oracles import check_file

F = np.float32


def adding_file(constant: np.ndarray) -> TfliteFile:
    """A file that adds a constant; the first size of its input is open."""
    file = TfliteFile()
    x = file.main.input(F, (1, *constant.shape), "x", signature=(-1, *constant.shape))
    y = file.main.tensor(F, (1, *constant.shape), "y", signature=(-1, *constant.shape))
    file.main.op("ADD", [x, file.main.constant(constant, "c")], [y], "AddOptions")
    file.main.output(y)
    return file


def test_metadata_and_packed_labels(tmp_path: Path) -> None:
    file = adding_file(np.ones(2, F))
    file.metadata("min_runtime_version", b"2.3.0\0\0")
    file.metadata("binary", b"\0\1\2")
    packed = io.BytesIO(file.bytes())
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
    path = tmp_path / "model.bin"  # the bytes decide
    path.write_bytes(packed.getvalue())
    for source in (path, packed.getvalue()):
        model = load_model(source)
        assert model.meta.custom_metadata_map == {"min_runtime_version": "2.3.0", "labels.txt": "cat\ndog\n"}
        assert model.inputs[0].shape == (None, 2)


def _normalization(mean: list[float], std: list[float]) -> bytes:
    """The metadata of a file whose first input is normalised."""
    b = flatbuffers.Builder()

    def vector(offsets: list[int], size: int, put: Callable[[int], None]) -> int:
        b.StartVector(size, len(offsets), size)
        for o in reversed(offsets):
            put(o)
        return int(b.EndVector())

    def table(fields: dict[int, int], number: tuple[int, int] | None = None) -> int:
        b.StartObject(8)
        for slot, offset in fields.items():
            b.PrependUOffsetTRelativeSlot(slot, offset, 0)
        if number is not None:
            b.PrependUint8Slot(*number, 0)
        return int(b.EndObject())

    means, stds = (vector(v, 4, b.PrependFloat32) for v in (mean, std))  # type: ignore[arg-type]
    unit = table({1: table({0: means, 1: stds})}, (0, 1))
    other = table({1: table({})}, (0, 3))
    tensor = table({4: vector([other, unit], 4, b.PrependUOffsetTRelative)})
    subgraph = table({2: vector([tensor], 4, b.PrependUOffsetTRelative)})
    b.Finish(table({3: vector([subgraph], 4, b.PrependUOffsetTRelative)}))
    return bytes(b.Output())


def test_normalization_of_inputs() -> None:
    file = adding_file(np.ones(2, F))
    file.metadata("TFLITE_METADATA", _normalization([127.5, 100], [127.5, 50]))
    metadata = load_model(file.bytes()).meta.custom_metadata_map
    assert json.loads(metadata["tflite.normalization"]) == {"x": {"mean": [127.5, 100], "std": [127.5, 50]}}


def test_damaged_normalization_says_nothing() -> None:
    whole = _normalization([127.5], [127.5])
    for raw in (b"", whole[:20], whole[: len(whole) // 2], b"\xff" * 64):
        file = adding_file(np.ones(2, F))
        file.metadata("TFLITE_METADATA", raw)
        assert load_model(file.bytes()).meta.custom_metadata_map == {}


def test_large_constants_stay_in_the_file(tmp_path: Path) -> None:
    constant = np.arange(1 << 17, dtype=F)
    path = tmp_path / "model.tflite"
    path.write_bytes(adding_file(constant).bytes())
    model = load_model(path)
    held = model.graph.constants.held("c")
    assert isinstance(held, LazyArray)
    assert held.mapped is not None
    np.testing.assert_array_equal(held.read(), constant)


def test_constants_of_sparse_and_small_types() -> None:
    file = TfliteFile()
    dense = np.zeros((3, 8), F)
    dense[0, 4:], dense[2, :4] = 1, 2  # blocks of 1 by 4
    kinds = schema.SparseIndexVector
    level = schema.DimensionMetadataT(
        format=1,
        arraySegmentsType=kinds.Int32Vector,
        arraySegments=schema.Int32VectorT(values=[0, 1, 1, 2]),
        arrayIndicesType=kinds.Uint8Vector,
        arrayIndices=schema.Uint8VectorT(values=[1, 0]),
    )
    levels = [schema.DimensionMetadataT(0, 3), level, schema.DimensionMetadataT(0, 4)]
    sparsity = schema.SparsityParametersT(traversalOrder=[0, 1, 2], blockMap=[1], dimMetadata=levels)
    raw = np.array([1, 1, 1, 1, 2, 2, 2, 2], F).tobytes()
    x = file.main.input(F, (3, 8), "x")
    w = file.main.tensor(F, (3, 8), "w", buffer=file.buffer(raw), sparsity=sparsity)
    plain, y = file.main.tensor(F, (3, 8), "plain"), file.main.tensor(F, (3, 8), "y")
    file.main.op("DENSIFY", [w], [plain])
    file.main.op("ADD", [x, plain], [y], "AddOptions")
    file.main.output(y)
    found = check_file(file.bytes(), [np.zeros((3, 8), F)])
    np.testing.assert_array_equal(found[0], dense)
    small = TfliteFile()
    four = small.main.tensor(17, (3,), "four", buffer=small.buffer(bytes([0x1F, 0x08])))
    small.main.output(four)
    assert load_model(small.bytes()).graph.constants["four"].astype(int).tolist() == [-1, 1, -8]


def test_a_subgraph_by_its_signature() -> None:
    file = adding_file(np.ones(2, F))
    other = file.subgraph("other")
    a, b = other.input(F, (3,), "a"), other.tensor(F, (3,), "b")
    other.op("NEG", [a], [b])
    other.output(b)
    file.signature("negate", {"value": a}, {"result": b}, 1)
    for wanted in ("negate", "1"):
        assert [v.name for v in load_model(file.bytes(), edits=ModelEdits(subgraph=wanted)).inputs] == ["a"]
    with pytest.raises(OptionError, match="no signature 'none': it has negate, and 2 subgraphs"):
        load_model(file.bytes(), edits=ModelEdits(subgraph="none"))
    assert load_model(file.bytes(), edits=ModelEdits(open_sizes=True)).inputs[0].shape == (None, None)


def test_open_sizes_are_symbols() -> None:
    session = NumpySession(adding_file(np.ones(2, F)).bytes())
    for rows in (3, 5):
        assert session.run({"x": np.zeros((rows, 2), F)})[0].shape == (rows, 2)
    assert len(session.imported) == 1


@pytest.mark.parametrize("make", [branching_file, looping_file])
def test_damaged_files_give_a_sentence(make: object) -> None:
    raw, rng = make(), np.random.default_rng(0)  # type: ignore[operator]
    for cut in (8, 20, len(raw) // 2, len(raw) - 8):
        with pytest.raises(ModelFormatError):
            load_model(raw[:cut])
    for _ in range(150):
        damaged = bytearray(raw)
        for at in rng.integers(8, len(raw), rng.integers(1, 6)):
            damaged[at] = rng.choice([0, 1, 127, 255, int(rng.integers(256))])
        with suppress(OpaliteError):  # anything else ends the test
            load_model(bytes(damaged))
