"""Devices of a node are given to one actor each, and free again when its process has ended."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from opalite import knobs
from opalite.errors import DeviceError, ExtraError, InputError, InputTypeError
from opalite.ray import device_resources
from opalite.ray.predictor import fetch, put
from opalite.ray.serve_deployment import deployment


def fake_ray(assigned: dict[str, float] | None, tmp: Path) -> Any:
    """Ray as an actor with these resources sees it, or the driver for None."""

    def get() -> dict[str, float]:
        assert assigned is not None
        return assigned

    context = types.SimpleNamespace(get_assigned_resources=get, get_node_id=lambda: tmp.name)
    return types.SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend to be in an actor."""
    monkeypatch.setattr(device_resources.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(device_resources, "devices", lambda: [types.SimpleNamespace(id=i, kind=k) for i, k in FOUND])
    for name in ("POCL_MAX_PTHREAD_COUNT", "POCL_AFFINITY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return lambda assigned: monkeypatch.setitem(sys.modules, "ray", fake_ray(assigned, tmp_path))


FOUND = [("a:gpu:0", "gpu"), ("b:gpu:1", "gpu"), ("pocl:cpu:0", "cpu")]


def test_a_node_announces_its_gpus_or_else_its_cpu(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_resources.resources() == {"opencl": 2}
    monkeypatch.setattr(device_resources, "devices", lambda: [types.SimpleNamespace(id="cpu", kind="cpu")])
    assert device_resources.resources() == {"opencl": 1}


def test_outside_of_an_actor_nothing_is_assigned(ray: Any) -> None:
    assert device_resources.assign_device() == device_resources.DeviceAssignment(None)
    ray(None)  # the driver
    assert device_resources.assign_device() == device_resources.DeviceAssignment(None)
    ray({"CPU": 0.5})
    assert device_resources.assign_device() == device_resources.DeviceAssignment(None)
    assert not knobs.has_foreign("POCL_MAX_PTHREAD_COUNT")


def test_cores_that_ray_assigns_are_threads_of_pocl(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ray({"CPU": 3.0})
    assert device_resources.assign_device() == device_resources.DeviceAssignment(None)
    assert knobs.foreign("POCL_MAX_PTHREAD_COUNT") == "3"
    assert knobs.foreign("POCL_AFFINITY") == "0"
    monkeypatch.setenv("POCL_MAX_PTHREAD_COUNT", "7")  # the user's
    device_resources.assign_device()
    assert knobs.foreign("POCL_MAX_PTHREAD_COUNT") == "7"


def test_an_actor_has_one_device_for_all_its_predictors(ray: Any) -> None:
    ray({"opencl": 1.0})
    first = device_resources.assign_device()
    assert first.device == "a:gpu:0"
    assert device_resources.assign_device() is first
    del first
    again = device_resources.assign_device()  # what the last predictor left is free
    assert again.device == "a:gpu:0"
    ray({"opencl": 2.0})
    with pytest.raises(InputError, match="request"):
        device_resources.assign_device()


def test_each_actor_has_its_own_device_until_it_ends(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from opalite.ray.device_resources import _acquire_device\n"
        "place = _acquire_device(['a', 'b'], float(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], 0.1)\n"
        "print(place.device, flush=True); sys.stdin.read()"
    )

    folder = tmp_path / "shares"

    def actor(share: float, node: str = "node-1") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", code, str(share), str(folder), node]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def device(process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    one = actor(1)
    assert device(one) == "a"
    two = actor(1)
    assert device(two) == "b"
    with pytest.raises(DeviceError, match="other actors use all"):
        device_resources._acquire_device(["a", "b"], 1, folder, "node-1", 0.0)
    other = actor(1, "node-2")
    assert device(other) == "a"
    one.kill()
    one.wait()
    three = actor(1)
    assert device(three) == "a"
    for process in (two, three):
        process.kill()
        process.wait()
    found = [device_resources._acquire_device(["a", "b"], 0.5, folder, "node-1", 0.0) for _ in range(4)]
    assert [p.device for p in found] == ["a", "a", "b", "b"]
    found.clear()
    assert [p.name for p in folder.iterdir() if p.name != "guard"] == ["node-2-0-0-10000"]
    other.communicate("")  # it ends by itself, and is the last
    assert not folder.exists()


def test_parts_of_devices_add_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def claim(share: float) -> device_resources.DeviceAssignment:
        return device_resources._acquire_device(["a", "b"], share, tmp_path / "shares", "node", 0.0)

    held = [claim(share) for share in (0.5, 1, 0.25, 0.25)]
    assert [p.device for p in held] == ["a", "b", "a", "a"]
    with pytest.raises(DeviceError, match="other actors use all"):
        claim(1)
    del held[1]
    thirds = [claim(1 / 3) for _ in range(3)]
    assert [p.device for p in thirds] == ["b", "b", "b"]
    del held[0], thirds[:]
    unequal = [claim(0.6), claim(0.4)]
    assert [p.device for p in unequal] == ["b", "a"]
    assert not caplog.records
    assert claim(0.7).device == "b"  # 0.6 of it are taken, and 0.9 of the other
    assert "request fractions 1/n" in caplog.text


def test_models_are_paths_bytes_or_references() -> None:
    assert fetch("m.onnx") == "m.onnx"
    assert fetch(b"bytes") == b"bytes"
    with pytest.raises(InputTypeError, match="got int"):
        fetch(3)


def test_without_ray_what_needs_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray.serve", None)
    for needs in (lambda: put(b"model"), lambda: deployment("m.onnx")):
        with pytest.raises(ExtraError, match=r"opalite-cl\[ray\]"):
            needs()
