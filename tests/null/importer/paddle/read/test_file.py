"""Paddle's files as models: parameters beside, separate or given, folders, damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from opalite.errors import ModelError, ModelFileError, ModelFormatError, UnsupportedOpError
from opalite.importer import load_model
from opalite.ir.constants.lazy_array import LARGE, LazyArray
from opalite.ir.model_edits import ModelEdits
from tests.helpers.numpy_session import NumpySession
from tests.helpers.paddle_files import PaddleProgram, combined, tensor_bytes

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.float32([1, 2, 3, 4])
KINDS = ("pdmodel", "pir")


def linear() -> PaddleProgram:
    """y = x W + b."""
    program = PaddleProgram({"x": X}, {"w": W, "b": B}, shapes={"x": (-1, 3)})
    program.op("matmul", {"X": ["x"], "Y": ["w"]}, {"Out": ["t"]})
    return program.op("add", {"X": ["t"], "Y": ["b"]}, {"Out": ["y"]})


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_in_the_file_beside(tmp_path: Path, kind: str) -> None:
    path = linear().write(tmp_path, kind)
    for source in (path, tmp_path):  # a folder of one program is that program
        session = NumpySession(source)
        assert [(v.name, v.shape) for v in session.model.inputs] == [("x", (None, 3))]
        assert [v.name for v in session.model.outputs] == ["y"]
        np.testing.assert_allclose(session.run({"x": X})[0], X @ W + B)
    assert list(session.model.data_files) == ["inference.pdiparams"]


def test_parameters_in_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "__model__").write_bytes(linear().program_desc())
    for name, array in (("w", W), ("b", B)):
        (tmp_path / name).write_bytes(tensor_bytes(array))
    np.testing.assert_allclose(NumpySession(tmp_path).run({"x": X})[0], X @ W + B)
    (tmp_path / "w").unlink()
    with pytest.raises(ModelFileError, match="with the parameter 'w'"):
        load_model(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_need_their_parameters(kind: str) -> None:
    program = linear()
    raw = program.pir() if kind == "pir" else program.program_desc()
    with pytest.raises(ModelFormatError, match="2 parameters and was given as bytes"):
        load_model(raw)
    model = load_model(raw, edits=ModelEdits(files={"any.pdiparams": combined(program.params)}))
    assert set(model.graph.constants) == {"w", "b"}


def test_a_large_parameter_stays_in_the_file(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((LARGE // 4, 4)).astype(np.float32)
    program = PaddleProgram({"x": np.zeros((1, len(w)), np.float32)}, {"w": w})
    program.op("matmul", {"X": ["x"], "Y": ["w"]}, {"Out": ["y"]})
    model = load_model(program.write(tmp_path, "pir"))
    held = model.graph.constants.held("w")
    assert isinstance(held, LazyArray)
    np.testing.assert_array_equal(held.read(), w)


def test_missing_parameters(tmp_path: Path) -> None:
    path = linear().write(tmp_path, "pir")
    (tmp_path / "inference.pdiparams").unlink()
    with pytest.raises(ModelFileError, match=r"there is no file '.*inference\.pdiparams'"):
        load_model(path)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (combined({"b": B, "w": W})[:-1], "the file is cut off"),
        (combined({"b": B, "w": W}) + b"more", "it belongs to another program"),
        (b"\1" + combined({"b": B, "w": W})[1:], "is no tensor"),
        (b"", "ends within the parameter 'b'"),
    ],
)
def test_damaged_parameters(tmp_path: Path, raw: bytes, said: str) -> None:
    path = linear().write(tmp_path, "pdmodel")
    (tmp_path / "inference.pdiparams").write_bytes(raw)
    with pytest.raises(ModelFormatError, match=said):
        load_model(path)


@pytest.mark.parametrize("kind", KINDS)
def test_no_cut_of_a_program_crashes(tmp_path: Path, kind: str) -> None:
    path = linear().write(tmp_path, kind)
    raw = path.read_bytes()
    for end in range(0, len(raw), 7):
        path.write_bytes(raw[:end])
        with pytest.raises(ModelError):
            load_model(path)


def test_other_json_and_other_versions(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="no program of Paddle"):
        load_model(b'{"a": 1}')
    with pytest.raises(ModelFormatError, match="JSON of another kind, or was cut off"):
        load_model(b'{"a": ')
    program = json.loads(linear().pir())
    program["base_code"]["version"] = 99
    with pytest.raises(ModelFormatError, match="PIR program of version 99"):
        load_model(json.dumps(program).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_operator_is_named(tmp_path: Path, kind: str) -> None:
    program = PaddleProgram({"x": X}).op("sequence_conv", {"X": ["x"]}, {"Out": ["y"]})
    with pytest.raises(UnsupportedOpError, match="sequence_conv node 'y'"):
        load_model(program.write(tmp_path, kind))


def test_an_argument_that_is_missing_is_named(tmp_path: Path) -> None:
    program = PaddleProgram({"x": X}).op("matmul", {"X": ["x"]}, {"Out": ["y"]})
    with pytest.raises(ModelError, match="lacks its argument y; it has x"):
        NumpySession(program.write(tmp_path, "pdmodel")).run({"x": X})
