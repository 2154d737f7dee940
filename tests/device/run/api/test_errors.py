"""Errors around a device have clear messages: no device, no memory, wrong feeds, damaged models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.errors import (
    DeviceMemoryError,
    InputError,
    InputTypeError,
    ModelError,
    ModelFormatError,
    NoDeviceError,
    OpaliteError,
)
from opalite.run.model.compile_options import CompileOptions

from ....helpers.small_models import adder, classifier, inverter, make_model, noise, one_node, port, save

ROOT = Path(__file__).parents[4]


def session_of(rt: Runtime, model: Any, **options: Any) -> opalite.InferenceSession:
    return opalite.InferenceSession(model.SerializeToString(), **{"device": rt.info.id, **options})


# Devices


@pytest.mark.parametrize("request_", ["nonsense", "9:9", "tpu"])
def test_a_device_that_is_not_there(request_: str, monkeypatch: pytest.MonkeyPatch, rt: Runtime) -> None:
    said = (
        f"(?s)no OpenCL device matches '{request_}'. Found:.*{rt.info.id}.*`opalite devices` lists them.*opalite doctor"
    )
    with pytest.raises(NoDeviceError, match=said):
        opalite.InferenceSession(adder().SerializeToString(), device=request_)
    monkeypatch.setenv("OPALITE_DEVICE", request_)
    with pytest.raises(NoDeviceError, match=said):
        opalite.InferenceSession(adder().SerializeToString())


def test_a_device_is_named_by_a_text() -> None:
    with pytest.raises(InputError, match="device is a text such as 'gpu' or '0:1', got 5; `opalite devices`"):
        opalite.InferenceSession(adder().SerializeToString(), device=5)  # type: ignore[arg-type]


def test_no_platform_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the loader reports it: an error instead of an empty list."""

    def fail() -> list[Any]:
        raise cl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")

    monkeypatch.setattr(cl, "get_platforms", fail)
    with pytest.raises(NoDeviceError, match=r"no OpenCL device was found.*`pip install pocl.*opalite doctor"):
        opalite.InferenceSession(adder().SerializeToString())
    assert opalite.devices() == []


def test_no_driver_in_a_new_process(tmp_path: Path) -> None:
    code = f"import opalite; opalite.InferenceSession({save(adder(), tmp_path / 'm.onnx')!r})"
    env = {
        **os.environ,
        "OCL_ICD_VENDORS": str(tmp_path / "none"),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    if result.returncode == 0:
        pytest.skip("this loader does not read OCL_ICD_VENDORS")
    assert "NoDeviceError: no OpenCL device was found" in result.stderr


# Memory


def test_a_tensor_larger_than_the_device(rt: Runtime) -> None:
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["a"], name="spread"),
        helper.make_node("Add", ["a", "z"], ["y"], name="sum"),
    ]
    model = make_model(
        nodes, [port("x", [1, 1]), port("z", [1, 1])], [port("y", None)], {"shape": np.array([1 << 20, 1 << 22])}
    )
    feeds = {"x": noise(1, 1), "z": noise(1, 1)}
    with pytest.raises(
        DeviceMemoryError, match=r"\[1048576, 4194304\] takes 16.0 TiB, but .* has .* [GM]iB in all. Use"
    ):
        session_of(rt, model, precision="fp32").run(None, feeds)


def test_an_enlargement_beyond_all_memory(rt: Runtime) -> None:
    """Refused before the tables of the enlargement are made, which would take the host's memory."""
    scales = {"s": np.array([1, 1, 1e6, 1e6], np.float32)}
    model = one_node("Resize", ["x", "", "s"], [port("x", [1, 1, 4, 4])], scales)
    with pytest.raises(DeviceMemoryError, match=r"Resize node 'culprit'.*4000000, 4000000\] takes .* TiB"):
        session_of(rt, model).run(None, {"x": noise(1, 1, 4, 4)})


def test_an_input_larger_than_the_device(rt: Runtime) -> None:
    count = rt.info.global_mem // 4 + (1 << 20)
    huge = np.broadcast_to(np.float32(1), (count,))
    with pytest.raises(DeviceMemoryError, match=rf"tensor 'x': f32\[{count}\] takes .* smaller batch or input"):
        session_of(rt, inverter(("n",)), precision="fp32").run(None, {"x": huge})


def test_an_allocation_that_the_driver_refuses(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    make = cl.Buffer
    monkeypatch.setattr(cl, "Buffer", lambda context, flags, *_, **__: make(context, flags, 1 << 60))
    session = session_of(rt, inverter())
    at_once = (
        r"has no room for a buffer of \d+ bytes .*its memory is \d+ MiB, its largest buffer \d+ MiB.*smaller batch"
    )
    at_its_first_use = r"Writing \d+ bytes on .* failed with MEM_OBJECT_ALLOCATION_FAILURE.*smaller batch"
    said = f"{at_once}|{at_its_first_use}"
    with pytest.raises(DeviceMemoryError, match=said) as refused:
        session.run(None, {"x": noise(1, 3, 8, 8)})
    monkeypatch.undo()
    if "Writing" in str(refused.value):  # what this driver took without having it, the session keeps
        session = session_of(rt, inverter())
    session.run(None, {"x": noise(1, 3, 8, 8)})


def test_a_host_without_memory(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(rt, inverter())

    def fail(*_: Any) -> Any:
        raise MemoryError("Unable to allocate 4 TiB")

    monkeypatch.setattr(session._model, "run", fail)
    with pytest.raises(DeviceMemoryError, match=r"host ran out of memory .*4 TiB.* use a smaller batch"):
        session.run(None, {"x": noise(1, 3, 8, 8)})


# Feeds


@pytest.mark.parametrize(
    ("feeds", "said"),
    [
        ({"x": noise(2, 3)}, "needs 'z', which the feeds lack; given: 'x'"),
        ({}, "needs 'x', 'z'"),
        ({"x": noise(2, 3), "z": noise(2, 3), "w": 1}, "has no input 'w'; its inputs are 'x', 'z'"),
        ({"X": noise(2, 3), "z": noise(2, 3)}, "has no input 'X'"),
        ({"x": np.zeros((2, 3)), "z": noise(2, 3)}, r"'x' is float32, got float64: pass x.astype\(np.float32\)"),
        ({"x": noise(2), "z": noise(2, 3)}, r"'x' has rank 2 \(float32\[2, 3\]\), got shape \(2,\) of rank 1"),
        ({"x": noise(2, 4), "z": noise(2, 3)}, r"'x' has size 3 along axis 1 .*, got shape \(2, 4\)"),
        ({"x": None, "z": noise(2, 3)}, r"'x' is None; a tensor float32\[2, 3\] is expected"),
        ({"x": [[1], [2, 3]], "z": noise(2, 3)}, r"'x' cannot be made an array of float32\[2, 3\]"),
        ({"x": "abc", "z": noise(2, 3)}, "'x' cannot be made an array"),
    ],
    ids=["missing", "empty", "extra", "case", "dtype", "rank", "size", "none", "ragged", "text"],
)
def test_feeds_that_do_not_fit(rt: Runtime, feeds: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        session_of(rt, adder()).run(None, feeds)


def test_shapes_that_only_meet_inside_name_the_node(rt: Runtime) -> None:
    with pytest.raises(ModelError, match=r"(?s)\(2, 3\), \(5, 3\) do not broadcast.*while importing Add node 'add'"):
        session_of(rt, adder()).run(None, {"x": noise(2, 3), "z": noise(5, 3)})


def test_a_session_outlives_a_bad_run(rt: Runtime) -> None:
    session = session_of(rt, adder())
    for _ in range(2):
        with pytest.raises(OpaliteError):
            session.run(None, {"x": noise(2, 3), "z": noise(5, 3)})
        assert session.run(None, {"x": noise(2, 3), "z": noise(1, 3)})[0].shape == (2, 3)


# Models


def test_files_that_are_no_model(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("not a model")
    (tmp_path / "empty.onnx").touch()
    for source, said in (
        (tmp_path / "text.onnx", r"text.onnx' is not a complete ONNX model \(11 bytes\)"),
        (tmp_path / "empty.onnx", "empty.onnx' is empty: a model was expected"),
        (tmp_path / "nope.onnx", "there is no file '.*nope.onnx'"),
        (tmp_path, "is a folder: give the model file in it"),
        (b"", "is empty"),
    ):
        with pytest.raises(ModelFormatError, match=said):
            opalite.InferenceSession(source)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="a model is a path or bytes, got NoneType"):
        opalite.InferenceSession(None)  # type: ignore[arg-type]


def test_a_model_cut_anywhere_is_refused_or_runs(rt: Runtime) -> None:
    raw = classifier(channels=2, classes=2).SerializeToString()
    for length in range(0, len(raw), 13):
        with pytest.raises(ModelError):
            opalite.InferenceSession(raw[:length], device=rt.info.id).run(None, {"x": noise(1, 3, 8, 8)})


# Options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "fp99"}, "precision 'fp99' is not known; choose fp32, fp16, fp16_fast, int8, auto"),
        ({"memory": "disk"}, "memory 'disk' is not known; choose auto, buffer, image, low, normal"),
        ({"tune": "hard"}, "tune 'hard' is not known; choose none, fast"),
    ],
)
def test_options_that_do_not_exist(options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        CompileOptions(**options)
    with pytest.raises(InputError, match=said):
        opalite.InferenceSession(adder().SerializeToString(), **options)


@pytest.mark.parametrize("name", ["OPALITE_PRECISION", "OPALITE_PLANNER", "OPALITE_CHECK", "OPALITE_FLUSH"])
def test_settings_that_do_not_parse(rt: Runtime, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "nonsense")
    with pytest.raises(InputError, match=f"{name}='nonsense' is not valid: expected"):
        session_of(rt, adder()).run(None, {"x": noise(2, 3), "z": noise(2, 3)})
