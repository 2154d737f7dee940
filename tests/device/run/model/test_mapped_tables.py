"""Large tables of which runs pick rows: they stay in the file that holds them, and nobody reads all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from onnx import TensorProto, numpy_helper
from opalite import InferenceSession
from opalite.cl.runtime import Runtime
from opalite.ir.constants import model_file
from opalite.ir.constants.lazy_array import LazyArray
from opalite.plan import emit_program
from opalite.plan.bundle import read_bundle
from opalite.run.model.plans import external_data_files

from ....helpers.small_models import make_model, port

ROWS, COLUMNS = 3000, 64
TABLE = np.random.default_rng(5).standard_normal((ROWS, COLUMNS), np.float32)
IDS = np.array([0, 7, ROWS - 1, -1])


@pytest.fixture(autouse=True)
def small(rt: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tables of half a megabyte count as large; nothing is known of other tests' files."""
    if not rt.info.on_host:
        pytest.skip("all of a table goes to a GPU")
    monkeypatch.setattr(emit_program, "MAPPED", 1 << 19)
    monkeypatch.setattr(read_bundle, "TABLE", 1 << 19)
    monkeypatch.setattr(model_file, "HASHED", 1 << 19)
    monkeypatch.setattr(external_data_files, "HASHED", 1 << 19)
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))


def write(folder: Path, external: bool, tied: bool = False, shift: float = 0) -> str:
    """A model that picks rows of a table, and, where it is tied, multiplies by it."""
    nodes = [onnx.helper.make_node("Gather", ["W", "ids"], ["e"])]
    nodes.append(onnx.helper.make_node("MatMul", ["e", "T" if tied else "P"], ["y"]))
    if tied:
        nodes.insert(0, onnx.helper.make_node("Transpose", ["W"], ["T"], perm=[1, 0]))
    constants = {} if tied else {"P": np.ones((COLUMNS, 1), np.float32)}
    model = make_model(nodes, [port("ids", ["n"], TensorProto.INT64)], [port("y", None)], constants)
    table = numpy_helper.from_array(TABLE + np.float32(shift), "W")
    model.graph.initializer.append(table)
    path = folder / "m.onnx"
    if external:
        onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=1 << 16)
    else:
        onnx.save_model(model, path)
    return str(path)


def want(tied: bool = False, shift: float = 0) -> Any:
    table = TABLE + np.float32(shift)
    return table[IDS] @ (table.T if tied else np.ones((COLUMNS, 1), np.float32))


@pytest.fixture
def mappings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the parts of models' files that were mapped."""
    found: list[int] = []
    real = model_file.ModelFile.map

    def counted(self: Any, offset: int, nbytes: int) -> Any:
        found.append(nbytes)
        return real(self, offset, nbytes)

    monkeypatch.setattr(model_file.ModelFile, "map", counted)
    return found


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("external", [False, True])
def test_a_table_is_mapped_from_the_models_file(
    external: bool, tied: bool, tmp_path: Path, rt: Runtime, mappings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, external, tied)
    session = InferenceSession(path, device=rt.info.id)
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, {"ids": IDS})[0], want(tied), rtol=1e-4, atol=1e-4)
    session.settle()
    np.testing.assert_allclose(session.run(None, {"ids": IDS})[0], want(tied), rtol=1e-4, atol=1e-4)
    assert TABLE.nbytes in mappings


def test_a_plan_says_where_the_table_lies(
    tmp_path: Path, rt: Runtime, mappings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    path = write(tmp_path, True)
    with InferenceSession(path, device=rt.info.id) as session:
        session.run(None, {"ids": IDS})
        session.settle()
    assert not list((tmp_path / "cache").glob("plans/*/*/weights/*"))
    assert sum(f.stat().st_size for f in (tmp_path / "cache").glob("plans/*/*/*.opal")) < TABLE.nbytes
    mappings.clear()
    with InferenceSession(path, device=rt.info.id) as session:
        np.testing.assert_allclose(session.run(None, {"ids": IDS})[0], want(), rtol=1e-4, atol=1e-4)
        assert session.stats().plans_loaded == 1
    assert mappings == [TABLE.nbytes]
    write(tmp_path, True, shift=1)  # another model file of the same bytes, with other data
    with InferenceSession(path, device=rt.info.id) as session:
        np.testing.assert_allclose(session.run(None, {"ids": IDS})[0], want(shift=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trust", [True, False])
def test_a_bundles_table_is_mapped_from_it(
    trust: bool, tmp_path: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bundle = write(tmp_path, True), tmp_path / "m.opal"
    opalite.compile(path, bundle, shapes={"ids": (4,)}, device=rt.info.id)
    os.remove(tmp_path / "w.bin")
    read: list[int] = []
    real = read_bundle.byte_sum
    monkeypatch.setattr(read_bundle, "byte_sum", lambda a: (read.append(a.nbytes), real(a))[1])
    for _ in range(2):
        session = InferenceSession(bundle, device=rt.info.id, trust=trust)
        np.testing.assert_allclose(session.run(None, {"ids": IDS})[0], want(), rtol=1e-4, atol=1e-4)
    assert max(read, default=0) < TABLE.nbytes
    program = read_bundle.load_bundle(bundle).variants[0].program
    assert any(isinstance(a, LazyArray) and a.is_mapped for a in program.weights.values())


def test_compiling_again_gives_the_same_bytes(tmp_path: Path, rt: Runtime) -> None:
    path = write(tmp_path, True)
    for name in ("a.opal", "b.opal"):
        opalite.compile(path, tmp_path / name, shapes={"ids": (4,)}, device=rt.info.id)
        os.utime(tmp_path / "w.bin")  # its times name a mapped table, not a bundle's
    assert (tmp_path / "a.opal").read_bytes() == (tmp_path / "b.opal").read_bytes()
