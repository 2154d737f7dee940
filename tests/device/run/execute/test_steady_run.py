"""A repeated run: the files of the package that it executes, its strategy, and its trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.pocl.megakernel.host_thread_loop import supports_host_loop
from opalite.run.execute.strategies import megakernel_builder

from ....helpers.small_models import classifier, make_model, noise, port

MOST_FILES = 8  # and those of copies where the device's memory is its own
MOST_CALLS = 30  # of models with one input, one output and one stretch of launches
COPIES = {f"cl/memory/{name}.py" for name in ("host_device_copies", "staging_buffer", "device_pointers")}
PACKAGE = os.path.dirname(opalite.__file__) + os.sep
X = {"x": noise(1, 3, 8, 8)}
Open = Callable[..., opalite.InferenceSession]


@contextmanager
def called() -> Iterator[list[str]]:
    """Files of the package that functions are called in, in order, one entry a call."""
    found: list[str] = []

    def hook(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.append(frame.f_code.co_filename[len(PACKAGE) :])

    sys.setprofile(hook)
    try:
        yield found
    finally:
        sys.setprofile(None)


def check_short(session: opalite.InferenceSession, feeds: Mapping[str, Any]) -> None:
    with called() as files:
        session.run(None, feeds)
    path = " > ".join(dict.fromkeys(files))
    assert len(set(files) - COPIES) <= MOST_FILES, path
    calls = sum(f not in COPIES for f in files)
    assert calls <= MOST_CALLS, f"{calls} calls: {path}"


@pytest.fixture
def open_session(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Open:
    def make(model: Any, **options: Any) -> opalite.InferenceSession:
        source = model if isinstance(model, Path) else model.SerializeToString()
        return opalite.InferenceSession(source, device=rt.info.id, precision="fp32", **options)

    return make


def test_by_launches(open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    session = open_session(classifier())
    want = session.run(None, X)[0]
    session.run(None, X)
    check_short(session, X)
    np.testing.assert_array_equal(session.run(None, X)[0], want)
    assert session.last_trace.strategy == "queue"


def test_by_replay(rt: Runtime, open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "replay")
    if isinstance(rt.replay, str):
        pytest.skip(rt.replay)
    session = open_session(classifier())
    for _ in range(3):
        session.run(None, X)
    with called() as files:
        session.run(None, X)
    assert len(set(files)) <= MOST_FILES + 1, "one more than without: the driver's calls of recordings"
    assert session.last_trace.strategy == "replay"


def test_by_a_loop(rt: Runtime, open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megakernel_builder, "WORTH_RUNS", 2)
    if not megakernel_builder.supports_megakernel(rt):
        pytest.skip("launches cost too little here to be joined")
    session = open_session(classifier())
    want = session.run(None, X)[0]
    for _ in range(3):
        session.run(None, X)
    assert session.settle(120)
    for _ in range(3):
        session.run(None, X)
    check_short(session, X)
    assert session.last_trace.strategy == ("host_fast_path" if supports_host_loop(rt) else "megakernel")
    np.testing.assert_allclose(session.run(None, X)[0], want, rtol=1e-5)


def test_of_a_bundle(open_session: Open, rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    source, path = tmp_path / "m.onnx", tmp_path / "m.opal"
    source.write_bytes(classifier().SerializeToString())
    opalite.compile(source, path, device=rt.info.id, shapes={"x": (1, 3, 8, 8)}, precision="fp32")
    session = open_session(path)
    for _ in range(2):
        session.run(None, X)
    check_short(session, X)


def test_other_types_take_the_usual_way_and_are_steady_then(open_session: Open) -> None:
    session = open_session(classifier())
    for n in (1, 2, 1, 3, 3):
        x = noise(n, 3, 8, 8, seed=n)
        got = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(got, open_session(classifier()).run(None, {"x": x})[0], rtol=1e-5)
    with pytest.raises(opalite.InputError, match="float64"):
        session.run(None, {"x": noise(3, 3, 8, 8).astype(np.float64)})
    with pytest.raises(opalite.InputError, match="'z'"):
        session.run(None, {"z": noise(3, 3, 8, 8)})
    np.testing.assert_array_equal(session.run(None, {"x": noise(3, 3, 8, 8, seed=3).tolist()})[0], got)


def test_what_the_caller_gave_and_what_the_model_holds_stay_theirs(open_session: Open) -> None:
    """Outputs that are an input, a constant, or one value twice: each run gives arrays that the caller may write to."""
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["c"], ["constant"]),
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Identity", ["n"], ["m"]),
    ]
    outputs = [port(name, [3]) for name in ("same", "constant", "n", "m")]
    session = open_session(make_model(nodes, [port("x", [3])], outputs, {"c": np.float32([5, 6, 7])}))
    x = np.float32([1, 2, 3])
    for _ in range(4):
        found = session.run(None, {"x": x})
        for got, want in zip(found, ([1, 2, 3], [5, 6, 7], [-1, -2, -3], [-1, -2, -3]), strict=True):
            np.testing.assert_array_equal(got, np.float32(want))
        for array in found:
            array += 100
    np.testing.assert_array_equal(x, [1, 2, 3])


def test_the_trace_of_a_run(open_session: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    session = open_session(classifier())
    session.run(None, X)
    first = session.last_trace
    assert first is session.last_timing
    assert first.import_s > 0
    assert first.first_s >= first.total_s
    outputs = session.run(None, X)
    trace = session.last_trace
    assert trace is not first
    assert trace.import_s == trace.build_s == 0
    assert trace.strategy == "queue"
    assert trace.launches == session.explain().launches
    assert (trace.bytes_up, trace.bytes_down) == (X["x"].nbytes, outputs[0].nbytes)
    assert trace.waits >= 1
    parts = trace.upload_s + trace.compute_s + trace.download_s + trace.host_s
    assert 0 < parts <= trace.total_s
    raw = trace.to_raw()
    assert raw["strategy"] == "queue"
    assert raw["bytes_up"] == X["x"].nbytes


def test_what_stays_on_the_device_does_not_cross(open_session: Open, rt: Runtime) -> None:
    session = open_session(classifier())
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(X["x"], "opencl", rt.info.id))
    binding.bind_output(session.get_outputs()[0].name, "opencl")
    for _ in range(3):
        session.run_with_iobinding(binding)
    assert (session.last_trace.bytes_up, session.last_trace.bytes_down) == (0, 0)
    session.run(None, X)
    assert session.last_trace.bytes_up == X["x"].nbytes


def test_a_trace_keeps_no_memory_of_the_device(open_session: Open) -> None:
    session = open_session(classifier())
    session.run(None, X)
    session.run(None, X)
    assert session.last_trace.run_record is None


def test_many_outputs_that_differ_in_a_scalar(open_session: Open) -> None:
    """One program serves all, so that one megakernel has all launches."""
    factors = [np.float32(20.1 + i) for i in range(200)]
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"y{i}"]) for i in range(len(factors))]
    outputs = [port(f"y{i}", [5]) for i in range(len(factors))]
    session = open_session(make_model(nodes, [port("x", [5])], outputs, {f"c{i}": c for i, c in enumerate(factors)}))
    x = noise(5)
    session.run(None, {"x": x})
    session.settle()
    for y, factor in zip(session.run(None, {"x": x}), factors, strict=True):
        np.testing.assert_array_equal(y, x * factor)
    assert len(session._dispatcher.run_record.executables[0].program.sources) == 1
