"""Plans of .onnx models in the cache: equal results, keys that miss when anything differs, damage that heals.

Longer than 400 lines: cases that do not know each other.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.external_data_helper import convert_model_to_external_data

import onnx
import opalite
from onnx import TensorProto, helper
from opalite.cache.cache_folder import cache_entries, clear
from opalite.cache.hit_counters import process_counts
from opalite.cl.runtime import Runtime
from opalite.errors import InputError, ModelFormatError
from opalite.ir.constants.model_file import ModelFile
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.plan.bundle.read_bundle import load_bundle
from opalite.run.model.background.graph_compiler import Compiler
from opalite.run.model.compile_options import CompileOptions
from opalite.run.model.onnx_model import OnnxModel
from opalite.run.model.plans.plan_store import PlanStore
from opalite.tune.tuning_database import TuningDatabase, Verdict, open_database
from opalite.tune.tuning_levels import Level

from .....helpers.small_models import classifier, determinant, make_model, noise, port

X = noise(1, 3, 8, 8)


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "classifier.onnx"
    path.write_bytes(classifier().SerializeToString())
    return path


def open_session(model: Any, rt: Runtime, **options: Any) -> opalite.InferenceSession:
    return opalite.InferenceSession(model, device=rt.info.id, **options)


def plans(folder: Path) -> list[Path]:
    return sorted(u.path for u in cache_entries(folder) if u.kind == "plan")


def model_of(session: opalite.InferenceSession) -> OnnxModel:
    model = session._model
    assert isinstance(model, OnnxModel)
    return model


def imports(session: opalite.InferenceSession) -> bool:
    """Whether the session parsed its file."""
    return model_of(session).is_imported


# Hits


def test_the_second_session_plans_nothing(model: Path, folder: Path, rt: Runtime) -> None:
    first = open_session(model, rt)
    want = first.run(None, {"x": X})[0]
    assert imports(first)
    assert len(plans(folder)) == 1
    second = open_session(model, rt)
    for _ in range(2):
        np.testing.assert_array_equal(second.run(None, {"x": X})[0], want)
    assert not imports(second)
    assert second.get_inputs() == first.get_inputs()
    assert second.get_outputs() == first.get_outputs()
    assert second.get_modelmeta() == first.get_modelmeta()
    assert second.opset == first.opset > 0
    assert second.example_shapes() == first.example_shapes()
    assert str(second.explain()) == str(first.explain())
    second.close()
    np.testing.assert_array_equal(second.run(None, {"x": X})[0], want)
    assert not imports(second)


def test_a_process_with_a_plan_imports_neither_onnx_nor_passes(model: Path, folder: Path, rt: Runtime) -> None:
    want = open_session(model, rt).run(None, {"x": X})[0]
    x, y = model.with_name("x.npy"), model.with_name("y.npy")
    np.save(x, X)
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import numpy as np, opalite\n"
        f"session = opalite.InferenceSession({str(model)!r}, device={rt.info.id!r})\n"
        f"np.save({str(y)!r}, session.run(None, {{'x': np.load({str(x)!r})}})[0])\n"
        "print(*(p for p in ('passes', 'kernels', 'ops', 'importer') if f'opalite.{p}' in sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stdout.split()) == (0, []), result.stderr
    np.testing.assert_array_equal(np.load(y), want)


def test_the_same_bytes_serve_under_any_name(model: Path, folder: Path, rt: Runtime) -> None:
    open_session(model, rt).run(None, {"x": X})
    moved = model.rename(model.with_name("moved.onnx"))
    assert not imports(open_session(moved, rt))
    assert not imports(open_session(moved.read_bytes(), rt))


def test_other_shapes_are_planned(model: Path, folder: Path, rt: Runtime) -> None:
    open_session(model, rt).run(None, {"x": X})
    session = open_session(model, rt)
    two = np.concatenate([X, X])
    both, one = session.run(None, {"x": two})[0], session.run(None, {"x": X})[0]
    np.testing.assert_allclose(both[:1], one, rtol=1e-5, atol=1e-6)
    assert imports(session)
    assert len(plans(folder)) == 2
    again = open_session(model, rt)
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], one)
    np.testing.assert_array_equal(again.run(None, {"x": two})[0], both)
    assert not imports(again)


def test_an_input_of_which_only_the_shape_is_read(folder: Path, rt: Runtime, tmp_path: Path) -> None:
    nodes = [helper.make_node("Shape", ["like"], ["shape"]), helper.make_node("Expand", ["x", "shape"], ["y"])]
    model = make_model(nodes, [port("like", ["n", 4]), port("x", [1, 4])], [port("y", ["n", 4])])
    x = noise(1, 4)
    for _ in range(2):
        session = open_session(model.SerializeToString(), rt)
        for rows in (2, 3, 2):
            (y,) = session.run(None, {"like": noise(rows, 4), "x": x})
            np.testing.assert_array_equal(y, np.repeat(x, rows, 0))
    path = tmp_path / "expand.opal"
    source = tmp_path / "expand.onnx"
    source.write_bytes(model.SerializeToString())
    opalite.compile(source, path, device=rt.info.id, shapes={"like": (2, 4)})
    bundle = open_session(path, rt)
    assert bundle.run(None, {"like": noise(2, 4), "x": x})[0].shape == (2, 4)
    assert bundle.run(None, {"like": noise(3, 4), "x": x})[0].shape == (3, 4)


def test_a_model_keeps_a_plan_for_one_and_one_for_all_others(model: Path, folder: Path, rt: Runtime) -> None:
    """A batch of one is planned apart."""
    for batch in (1, 2, 3, 4, 5, 6):
        open_session(model, rt).run(None, {"x": noise(batch, 3, 8, 8)})
    assert len(plans(folder)) == 2


def test_a_session_keeps_both(model: Path, folder: Path, rt: Runtime) -> None:
    """Also one that begins with a batch of one, whose plan has no symbols."""
    session = open_session(model, rt)
    for batch in (1, 2, 3):
        session.run(None, {"x": noise(batch, 3, 8, 8)})
    assert len(plans(folder)) == 2


def test_a_session_keeps_one_plan_and_a_model_four(
    model: Path, folder: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPALITE_SYMBOLS", "0")
    session = open_session(model, rt)
    for batch in (1, 2, 3):
        session.run(None, {"x": noise(batch, 3, 8, 8)})
    assert len(plans(folder)) == 1
    for batch in (2, 3, 4, 5, 6):
        open_session(model, rt).run(None, {"x": noise(batch, 3, 8, 8)})
    assert len(plans(folder)) == 4


def test_hits_and_misses_are_counted(model: Path, folder: Path, rt: Runtime) -> None:
    for want in ((0, 1), (1, 0)):
        before = process_counts()["plans"]
        session = open_session(model, rt)
        for _ in range(2):
            session.run(None, {"x": X})
        after = process_counts()["plans"]
        assert (after.hits - before.hits, after.misses - before.misses) == want


def test_shapes_to_try_are_the_same_with_and_without_plans(
    model: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    guessed = opalite.InferenceSession(model, device=rt.info.id).example_shapes()
    assert guessed == {"x": (1, 3, 224, 224)}
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "0")
    assert opalite.InferenceSession(model, device=rt.info.id).example_shapes() == guessed


def test_host_steps_and_several_inputs(folder: Path, rt: Runtime, tmp_path: Path) -> None:
    path = tmp_path / "det.onnx"
    path.write_bytes(determinant().SerializeToString())
    for _ in range(2):
        assert open_session(path, rt).run(None, {"x": np.array([[1, 0], [0, 2]], np.float32)})[0] == 2
    node = helper.make_node("Sub", ["a", "b"], ["y"])
    two = make_model([node], [port("a", [3]), port("b", [3])], [port("y", [3]), port("a", [3])])
    a, b = noise(3), noise(3) + 1
    for feeds in ({"a": a, "b": b}, {"b": b, "a": a}):
        session = open_session(two.SerializeToString(), rt)
        y, same = session.run(None, feeds)
        np.testing.assert_array_equal(y, a - b)
        np.testing.assert_array_equal(same, a)
        same.fill(9)
        assert not np.array_equal(a, same)
    assert not imports(session)


# Misses


def key_of(model: Any, rt: Runtime, **options: Any) -> Path:
    found = PlanStore.open(model, Compiler(rt, CompileOptions(**options)))
    assert found is not None
    return found.folder


def test_keys_differ_with_all_that_decides_a_plan(
    model: Path, folder: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = model.read_bytes()
    keys = [key_of(model, rt), key_of(raw + b"\0", rt), key_of(model, rt, precision="fp16")]
    assert key_of(raw, rt) == keys[0]
    keys += [key_of(model, rt, memory="image"), key_of(model, rt, strict=True)]
    for nodes in ({}, {"conv1": "it overflows"}):
        keys.append(key_of(model, rt, precision=PrecisionPolicy(Precision.FP16, nodes)))
    with monkeypatch.context() as m:
        m.setenv("OPALITE_PLANNER", "naive")
        keys.append(key_of(model, rt))
    with monkeypatch.context() as m:
        m.setenv("OPALITE_BUFFER_ALIASING", "0")
        keys.append(key_of(model, rt))
    with monkeypatch.context() as m:
        m.setenv("OPALITE_EXCLUDE_KERNELS", "ConvDirect")
        keys.append(key_of(model, rt))
    with monkeypatch.context() as m:
        m.setattr(rt, "fingerprint", "another driver")
        keys.append(key_of(model, rt))
    with monkeypatch.context() as m:
        m.setattr("opalite.run.model.plans.plan_key.package_state", lambda: "another version")
        keys.append(key_of(model, rt))
    with monkeypatch.context() as m:
        m.setattr("opalite.run.model.plans.plan_key.foreign_state", lambda: "a kernel of somebody's")
        keys.append(key_of(model, rt))
    database = TuningDatabase(folder / "tuning.sqlite")
    database.put_verdict("device", "graph", Verdict(True, 1.0, 0.5, Level.FAST))
    database.close()
    assert len(set(keys)) == len(keys)
    assert key_of(model, rt) == keys[0]  # tuning drops plans one by one


@pytest.mark.parametrize(
    "field, value",
    [
        ("global_mem", 1 << 31),
        ("max_alloc", 1 << 30),
        ("compute_units", 64),
        ("cache_bytes", 1 << 20),
        ("clock_mhz", 9),
    ],
)
def test_a_plan_serves_on_a_machine_of_another_size(
    model: Path, folder: Path, rt: Runtime, field: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images of containers are filled on one machine and run on others."""
    want = open_session(model, rt).run(None, {"x": X})[0]
    monkeypatch.setattr(rt, "info", dataclasses.replace(rt.info, **{field: value}))
    session = open_session(model, rt)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    assert not imports(session)
    assert ("planned for" in str(session.explain())) is (field == "compute_units")


def test_a_plan_is_not_taken_where_local_memory_is_less(
    model: Path, folder: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = open_session(model, rt).run(None, {"x": X})[0]
    monkeypatch.setattr(rt, "info", dataclasses.replace(rt.info, local_mem=rt.info.local_mem // 2))
    session = open_session(model, rt)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want, rtol=1e-5, atol=1e-6)
    assert imports(session)


@pytest.mark.parametrize(
    ("name", "value"), [("PLAN_CACHE", "0"), ("CACHE", "0"), ("CHECK", "1"), ("DEBUG", "1"), ("STOP_AFTER", "3")]
)
def test_settings_that_plan_anew(
    model: Path, folder: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"OPALITE_{name}", value)
    assert PlanStore.open(model, Compiler(rt, CompileOptions())) is None
    open_session(model, rt).run(None, {"x": X})
    assert not plans(folder)


def test_what_chance_or_data_decide_is_not_kept(folder: Path, rt: Runtime) -> None:
    drawn = make_model(
        [helper.make_node("RandomNormalLike", ["x"], ["r"]), helper.make_node("Add", ["x", "r"], ["y"])],
        [port("x", [8])],
        [port("y", [8])],
    )
    sessions = [open_session(drawn.SerializeToString(), rt) for _ in "ab"]
    assert not np.array_equal(*(session.run(None, {"x": np.zeros(8, np.float32)})[0] for session in sessions))
    assert "plan: not kept in the cache: the model draws random numbers" in str(sessions[0].explain())
    where = helper.make_node("NonZero", ["x"], ["y"])
    depends = make_model([where], [port("x", [2])], [port("y", None, TensorProto.INT64)])
    for x, count in (([0.0, 1.0], 1), ([1.0, 1.0], 2)):
        got = open_session(depends.SerializeToString(), rt).run(None, {"x": np.array(x, np.float32)})[0]
        assert got.shape == (1, count)
    assert not plans(folder)


def test_plans_are_for_what_data_files_contain(
    folder: Path, rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the files' times say."""
    weights = np.arange(1 << 17, dtype=np.float32)
    shape = [weights.size]
    built = make_model([helper.make_node("Add", ["x", "k"], ["y"])], [port("x", shape)], [port("y", shape)])
    built.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    path, data = tmp_path / "m.onnx", tmp_path / "m.data"
    onnx.save(built, path, save_as_external_data=True, location="m.data")
    x = np.ones(shape, np.float32)
    first = data.stat()
    monkeypatch.setattr(
        "opalite.run.model.plans.external_data_files.SETTLED_S", -1.0
    )  # so that digests are kept at once
    for scale, is_known in ((1, False), (1, True), (2, False), (2, True), (1, True)):
        data.write_bytes((scale * weights).tobytes())
        os.utime(data, ns=(first.st_atime_ns, first.st_mtime_ns))
        session = open_session(path, rt)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], scale * weights + 1)
        assert imports(session) is not is_known
        session.close()
    assert len(plans(folder)) == 2
    kept = [u for u in cache_entries(folder) if u.kind == "weight"]
    assert sorted(u.nbytes for u in kept) == [weights.nbytes] * 2
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/m.onnx").write_bytes(path.read_bytes())
    with pytest.raises(ModelFormatError, match=r"'.*m\.data', which does not exist"):
        open_session(tmp_path / "elsewhere/m.onnx", rt)
    session = open_session(path, rt)
    data.write_bytes((3 * weights).tobytes())
    session.run(None, {"x": x})
    with pytest.raises(ModelFormatError, match=r"m\.data' has changed since the session was opened"):
        session.run(None, {"x": x.astype(np.float64).tolist()})  # which wants a closer look at the model


def test_a_damaged_weight_file_heals(folder: Path, rt: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    weights = np.arange(1 << 17, dtype=np.float32)
    shape = [weights.size]
    built = make_model([helper.make_node("Add", ["x", "k"], ["y"])], [port("x", shape)], [port("y", shape)])
    built.graph.initializer.append(onnx.numpy_helper.from_array(weights, "k"))
    x = np.ones(shape, np.float32)
    for harm in (None, "cut", "gone", None):
        if harm is not None:
            (path,) = (u.path for u in cache_entries(folder) if u.kind == "weight")
            os.truncate(path, 1000)
            if harm == "gone":
                path.unlink()
        session = open_session(built.SerializeToString(), rt)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], weights + 1)
        session.close()
    assert sum("it will be made again" in r.getMessage() for r in caplog.records) == 2


def test_a_file_that_has_changed_since_it_was_asked_for(model: Path, folder: Path, rt: Runtime) -> None:
    session = open_session(model, rt)
    model.write_bytes(model.read_bytes() + bytes([0x32, 0]))  # an empty field that says nothing
    session.run(None, {"x": X})
    assert imports(open_session(model, rt)), "the plan that was kept is of what the session was opened with"


def test_large_plans_are_not_kept(model: Path, folder: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE_MB", "0")
    open_session(model, rt).run(None, {"x": X})
    assert not plans(folder)


def test_a_plan_leaves_room_on_the_disk(
    model: Path, folder: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for free, kept in ((100, 0), (1 << 30, 1)):
        monkeypatch.setattr("opalite.run.model.plans.plan_files.free_bytes", lambda folder, free=free: free)
        open_session(model, rt).run(None, {"x": X})
        assert len(plans(folder)) == kept


def test_a_folder_that_cannot_be_written(model: Path, folder: Path, rt: Runtime) -> None:
    folder.write_text("in the way")
    assert open_session(model, rt).run(None, {"x": X})[0].shape[0] == 1


def test_feeds_get_the_same_checks(model: Path, folder: Path, rt: Runtime) -> None:
    first = open_session(model, rt)
    want = first.run(None, {"x": X})[0]
    for feeds in ({}, {"z": X}, {"x": X[0]}, {"x": X.astype(np.float64)}, {"x": noise(1, 4, 8, 8)}):
        with pytest.raises(InputError) as a:
            first.run(None, feeds)
        with pytest.raises(InputError) as b:
            open_session(model, rt).run(None, feeds)
        assert str(a.value) == str(b.value)
    for same in (X.tolist(), X.astype(">f4"), np.asfortranarray(X)):
        np.testing.assert_array_equal(open_session(model, rt).run(None, {"x": same})[0], want)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_once(model: Path, folder: Path, rt: Runtime) -> None:
    pipe = model.with_name("pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(model.read_bytes()))
    writer.start()
    assert open_session(pipe, rt).run(None, {"x": X})[0].shape[0] == 1
    writer.join()
    assert not plans(folder)


def test_files_that_are_no_models(folder: Path, rt: Runtime, tmp_path: Path) -> None:
    with pytest.raises(opalite.ModelFormatError, match="there is no file"):
        open_session(tmp_path / "nothing.onnx", rt)
    with pytest.raises(opalite.ModelFormatError, match="is a folder"):
        open_session(tmp_path, rt)
    (tmp_path / "cut.onnx").write_bytes(classifier().SerializeToString()[:50])
    with pytest.raises(opalite.ModelFormatError):
        open_session(tmp_path / "cut.onnx", rt)


# Damage


@pytest.mark.parametrize("how", ["empty", "cut", "bit", "foreign", "version"])
def test_a_damaged_plan_heals_with_one_log_line(
    model: Path, folder: Path, rt: Runtime, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    want = open_session(model, rt).run(None, {"x": X})[0]
    (path,) = plans(folder)
    raw = path.read_bytes()
    if how == "version":
        for module in ("read_bundle", "write_bundle"):
            monkeypatch.setattr(f"opalite.plan.bundle.{module}.VERSION", 99)
    else:
        variants = load_bundle(path).variants
        weight = next(iter(variants[0].program.weights.values())).tobytes()
        at = raw.index(weight)
        bit = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        path.write_bytes({"empty": b"", "cut": raw[:-9], "bit": bit, "foreign": b"PK" + bytes(900)}[how])
    with caplog.at_level(logging.WARNING):
        session = open_session(model, rt)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    assert len([r for r in caplog.records if "removed plan" in r.message]) == len(caplog.records) == 1
    assert len(plans(folder)) == 1
    caplog.clear()
    third = open_session(model, rt)
    np.testing.assert_array_equal(third.run(None, {"x": X})[0], want)
    assert not caplog.records
    assert not imports(third)


def test_a_plan_that_is_removed_under_a_session(model: Path, folder: Path, rt: Runtime) -> None:
    want = open_session(model, rt).run(None, {"x": X})[0]
    session = open_session(model, rt)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    assert clear(folder) > 0
    assert not plans(folder)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    session.close()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    assert imports(session)


def test_tuning_a_session_that_started_from_a_plan(model: Path, folder: Path, rt: Runtime) -> None:
    want = open_session(model, rt).run(None, {"x": X})[0]
    session = open_session(model, rt)
    session.run(None, {"x": X})
    assert session.tune({"x": X}, "fast")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], want, rtol=1e-5, atol=1e-6)
    for expected in (True, False):  # the tuning database has changed, and then stays as it is
        later = open_session(model, rt)
        np.testing.assert_allclose(later.run(None, {"x": X})[0], want, rtol=1e-5, atol=1e-6)
        assert imports(later) is expected


def test_tuning_drops_the_plans_that_it_changes_and_no_others(model: Path, folder: Path, rt: Runtime) -> None:
    """Of two models one is tuned, on a machine where nothing was tuned before and then once more."""
    other = scaled(2)
    for _ in range(2):
        want = open_session(model, rt).run(None, {"x": X})[0]
        open_session(other, rt).run(None, {"x": X})
        forget_tuning(model, rt)
        assert open_session(model, rt).tune({"x": X}, "fast")
        untouched = open_session(other, rt)
        np.testing.assert_array_equal(untouched.run(None, {"x": X})[0], X * np.float32(2))
        assert not imports(untouched)
        tuned = open_session(model, rt)
        np.testing.assert_allclose(tuned.run(None, {"x": X})[0], want, rtol=1e-5, atol=1e-6)
        assert imports(tuned)


def forget_tuning(model: Path, rt: Runtime) -> None:
    """Have the next search measure anew, and the plan of the tuned model be one of the untuned."""
    open_database().clear()
    open_session(model, rt).run(None, {"x": X})


# Files that change behind a session


def scaled(scale: float) -> bytes:
    """A model whose file has the same size for every scale."""
    k = np.full((1, 3, 8, 8), scale, np.float32)
    model = make_model(
        [helper.make_node("Mul", ["x", "k"], ["y"])], [port("x", ["N", 3, 8, 8])], [port("y", None)], {"k": k}
    )
    found: bytes = model.SerializeToString()
    return found


def rewrite(path: Path, contents: bytes, how: str) -> None:
    """Put other contents in the file's place, of the same size and time."""
    before = path.stat()
    if how == "in place":
        with path.open("r+b") as f:
            f.write(contents)
    else:
        other = path.with_name("other")
        other.write_bytes(contents)
        other.replace(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_an_unchanged_model_is_hashed_once(
    folder: Path, tmp_path: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that has just been written is read again: clocks are coarse. Size and time of writing may lie."""
    hashed: list[str] = []
    real = ModelFile._sum
    monkeypatch.setattr(ModelFile, "_sum", lambda self: hashed.append(self.path.name) or real(self))
    path = tmp_path / "model.onnx"
    path.write_bytes(scaled(2))
    for settled, reads in ((3600.0, 1), (3600.0, 2), (-3600.0, 3), (-3600.0, 3)):
        monkeypatch.setattr("opalite.run.model.plans.external_data_files.SETTLED_S", settled)
        open_session(path, rt)
        assert len(hashed) == reads
    before = path.stat()
    path.write_bytes(scaled(3))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    np.testing.assert_array_equal(open_session(path, rt).run(None, {"x": X})[0], X * np.float32(3))


@pytest.mark.parametrize("how", ["in place", "by another file"])
@pytest.mark.parametrize("plans", ["1", "0"])
def test_a_model_replaced_between_sessions(
    folder: Path, tmp_path: Path, rt: Runtime, how: str, plans: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPALITE_PLAN_CACHE", plans)
    path = tmp_path / "model.onnx"
    path.write_bytes(scaled(2))
    for scale in (2, 2, 3, 3, 2):
        rewrite(path, scaled(scale), how)
        np.testing.assert_array_equal(open_session(path, rt).run(None, {"x": X})[0], X * np.float32(scale))


@pytest.mark.parametrize("how", ["in place", "by another file"])
@pytest.mark.parametrize("plans", ["1", "0"])
@pytest.mark.parametrize("planned", [True, False])
def test_a_model_replaced_behind_a_session(
    folder: Path, tmp_path: Path, rt: Runtime, how: str, plans: str, planned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with what it was opened with, and where it would have to read the file again, it says so."""
    monkeypatch.setenv("OPALITE_PLAN_CACHE", plans)
    path = tmp_path / "model.onnx"
    path.write_bytes(scaled(2))
    if planned:
        open_session(path, rt).run(None, {"x": X})
    session = open_session(path, rt)
    twice = X * np.float32(2)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], twice)
    rewrite(path, scaled(3), how)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], twice)
    session.close()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], twice)
    both = {"x": np.concatenate([X, X])}
    if plans == "1" and planned and how == "in place":
        with pytest.raises(ModelFormatError, match=r"model.onnx' has changed since the session was opened: open a new"):
            session.run(None, both)
    else:
        np.testing.assert_array_equal(session.run(None, both)[0][:1], twice)
    np.testing.assert_array_equal(open_session(path, rt).run(None, both)[0][:1], X * np.float32(3))


def test_a_plan_cut_in_place_leaves_a_running_session_as_it_is(model: Path, folder: Path, rt: Runtime) -> None:
    want = open_session(model, rt).run(None, {"x": X})[0]
    session = open_session(model, rt)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    (plan,) = plans(folder)
    with plan.open("r+b") as f:
        f.truncate(100)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)
    session.close()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], want)


@pytest.mark.parametrize("how", ["in place", "by another file"])
def test_a_data_file_replaced_behind_a_session(folder: Path, tmp_path: Path, rt: Runtime, how: str) -> None:
    path, data = tmp_path / "model.onnx", tmp_path / "data.bin"
    proto = onnx.load_from_string(scaled(2))
    convert_model_to_external_data(proto, location="data.bin", size_threshold=0)
    onnx.save(proto, path)
    session = open_session(path, rt)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * np.float32(2))
    rewrite(data, np.full(192, 3, np.float32).tobytes(), how)
    both = np.concatenate([X, X])
    np.testing.assert_array_equal(session.run(None, {"x": both})[0], both * np.float32(2))
    session.close()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * np.float32(2))
    np.testing.assert_array_equal(open_session(path, rt).run(None, {"x": X})[0], X * np.float32(3))
    os.truncate(data, 8)
    np.testing.assert_array_equal(session.run(None, {"x": both})[0], both * np.float32(2))
    with pytest.raises(ModelFormatError, match=r"needs 768 bytes at offset 0 of 'data.bin', which has 8 bytes"):
        open_session(path, rt)
