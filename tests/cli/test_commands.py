"""The commands as a user types them: results, files written, and a sentence for everything wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import opalite
from opalite.cli import main

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


@pytest.fixture
def model(tmp_path: Path) -> str:
    w = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 8, 8])]
    graph = helper.make_graph(nodes, "small", ins, outs, [w])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def check_sentence(result: Result, *words: str) -> None:
    assert result.exit_code in (1, 2), result.output
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.output, result.output


@pytest.mark.parametrize("name", ["devices", "doctor", "knobs"])
def test_what_there_is(name: str) -> None:
    result = run(name)
    assert result.output.strip(), result.exception


def test_run_writes_what_it_computed(model: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    result = run("run", model, "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz"), "--iterations", "1")
    assert result.exit_code == 0, result.output
    for word in ("device", "upload", "compute", "download", "first"):
        assert word in result.output
    y = np.load(tmp_path / "out.npz")["y"]
    assert y.shape == (2, 4, 8, 8)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = sum(padded[:, :, i : i + 8, j : j + 8].sum(1) for i in range(3) for j in range(3))
    np.testing.assert_allclose(y[:, 0], np.maximum(want, 0), rtol=1e-4, atol=1e-4)


def test_run_takes_a_picture(model: str, tmp_path: Path) -> None:
    image: Any = pytest.importorskip("PIL.Image")
    image.new("RGB", (20, 10), (255, 0, 0)).save(tmp_path / "red.png")
    out = tmp_path / "out.npy"
    result = run("run", model, "-i", str(tmp_path / "red.png"), "--mean", "0.5", "--std", "0.5", "-o", str(out))
    assert result.exit_code == 0, result.output
    assert np.load(out)[0, 0, 4, 4] == 0  # one channel of three is 1, two are -1: the sum is negative


def test_inspect_names_kernels_and_memory(model: str) -> None:
    result = run("inspect", model, "--all")
    assert result.exit_code == 0, result.output
    assert "lower bound" in result.output
    assert "candidate" in run("inspect", model, "--node", "conv").output


def test_hints_that_a_device_does_not_take_are_said(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if any(d.extensions and "cl_khr_throttle_hints" in d.extensions for d in opalite.devices()):
        pytest.skip("a device takes hints")
    told = "performance 'low' has no effect"
    assert told in run("inspect", model, "--performance", "low").output
    assert told not in run("inspect", model).output
    assert run("run", model, "--performance", "high", "--priority", "low", "--iterations", "1").exit_code == 0
    check_sentence(run("run", model, "--priority", "first"), "'first' is not one of 'high', 'normal', 'low'")
    assert told not in run("devices").output
    monkeypatch.setenv("OPALITE_PERFORMANCE", "low")
    assert told in run("devices").output


def test_compile_then_run_the_bundle(model: str, tmp_path: Path) -> None:
    bundle = str(tmp_path / "model.opal")
    assert run("compile", model, bundle, "--shape", "x:1x3x8x8").exit_code == 0
    raw = json.loads(run("run", bundle, "--iterations", "2", "--json").stdout)
    assert len(raw["runs"]) == 2
    assert all(
        r["strategy"] in ("queue", "replay", "megakernel", "host_fast_path") and r["launches"] for r in raw["runs"]
    )
    assert raw["first"]["build_s"] > raw["runs"][0]["build_s"] == 0


def test_compile_writes_to_the_current_folder(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert run("compile", model, "--shape", "x:1x3x8x8").exit_code == 0
    assert [p.name for p in here.iterdir()] == [Path(model).with_suffix(".opal").name]
    assert not Path(model).with_suffix(".opal").exists()
    check_sentence(run("compile", model, str(tmp_path / "gone" / "m.opal")), "its folder does not exist")


def test_profile_writes_a_trace(model: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    result = run("profile", model, "--trace", str(trace), "--iterations", "2")
    assert result.exit_code == 0, result.output
    assert json.loads(trace.read_text())["traceEvents"]


def test_wrong_input_gets_a_sentence(model: str, tmp_path: Path) -> None:
    check_sentence(run("run", str(tmp_path / "none.onnx")), "none.onnx")
    (tmp_path / "text.onnx").write_text("hello")
    check_sentence(run("run", str(tmp_path / "text.onnx")), "ONNX")
    (tmp_path / "cut.onnx").write_bytes(Path(model).read_bytes()[:200])
    check_sentence(run("run", str(tmp_path / "cut.onnx")), "cut.onnx")
    check_sentence(run("run", model, "--shape", "x:1x4x8x8"), "x", "3")
    check_sentence(run("run", model, "--shape", "z:1x3x8x8"), "z", "x")
    check_sentence(run("run", model, "--device", "nonsense"), "nonsense", "devices")
    check_sentence(run("run", model, "--precision", "fp7"), "fp7")
    np.save(tmp_path / "int.npy", np.zeros((1, 3, 8, 8), "U3"))
    check_sentence(run("run", model, "-i", str(tmp_path / "int.npy")), "x")
    check_sentence(run("inspect", model, "--node", "nobody"), "nobody", "conv")
    check_sentence(run("nonsense"), "nonsense")


def test_files_of_the_wrong_kind_get_a_sentence(model: str, tmp_path: Path) -> None:
    for suffix in (".npy", ".npz"):
        (tmp_path / f"text{suffix}").write_text("garbage")
        check_sentence(run("run", model, "-i", str(tmp_path / f"text{suffix}")), f"it does not begin as {suffix} files")
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 8, 8), np.float32))
    check_sentence(run("run", model, "-i", f"q={tmp_path / 'x.npy'}"), "no input is named 'q'", "inputs are x")
    result = run("run", model, "-o", str(tmp_path / "out.foo"))
    check_sentence(result, "out.foo: unknown kind of output")
    assert "device" not in result.output  # told before the model runs
    assert run("compile", model, str(tmp_path / "m.opal"), "--shape", "x:1x3x8x8").exit_code == 0
    check_sentence(run("compile", str(tmp_path / "m.opal"), str(tmp_path / "n.opal")), "m.opal", "compiled already")
    check_sentence(run("run", model, "--shape", f"x:{2**62}x3x8x8"), "no memory can hold", "--shape")


def test_a_model_without_outputs_has_nothing_to_show(tmp_path: Path) -> None:
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "none", ins, [])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    check_sentence(run("run", str(tmp_path / "m.onnx"), "--top-k", "2"), "--top-k", "there is no output")
    check_sentence(run("run", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "y.npy")), "y.npy", "no outputs")


def test_verify_takes_an_empty_batch(model: str) -> None:
    result = run("verify", model, "--shape", "x:0x3x8x8")
    assert result.exit_code == 0, result.output
