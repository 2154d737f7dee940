"""Commands for devices that are not here: inspect, profile --plan, compare and compile by a description."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import opalite
from opalite.cl.runtime import find_runtime
from opalite.cli import main
from opalite.cli.compare import _read_plans, worse_plans
from opalite.cost.cost_tables import EstimateError
from opalite.errors import InputError
from opalite.run.report.device_plan import plan_for_device

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


@pytest.fixture
def model(tmp_path: Path) -> str:
    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 16, 16])]
    graph = helper.make_graph(nodes, "small", ins, outs, [w])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def test_plans_of_several_devices(model: str) -> None:
    result = run("compare", model, "--devices", "adreno_640,mali_g610", "--shape", "x:2x3x16x16", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found) == ["adreno_640", "mali_g610"]
    assert found["adreno_640"]["precision"] == "fp16"
    assert found["adreno_640"]["kernels"] != found["mali_g610"]["kernels"]
    assert all(f["launches"] == sum(f["kernels"].values()) and f["predicted_ms"] > 0 for f in found.values())
    table = run("compare", model, "--devices", "adreno_640,mali_g610").stdout
    assert "x: [1, 3, 16, 16] assumed" in table
    assert "mali_g610" in table


def test_a_worse_plan_ends_with_1(model: str, tmp_path: Path) -> None:
    file = str(tmp_path / "plans.json")
    assert run("compare", model, "--devices", "adreno_640", "-o", file).exit_code == 0
    assert run("compare", model, "--devices", "adreno_640", "--against", file).exit_code == 0
    plans = json.loads(Path(file).read_text())
    plans["adreno_640"]["launches"] -= 1
    Path(file).write_text(json.dumps(plans))
    result = run("compare", model, "--devices", "adreno_640,mali_g76", "--against", file)
    assert result.exit_code == 1
    assert "adreno_640: launches" in result.output
    assert "not compared: mali_g76" in result.output
    assert "1 of 1 plans are worse" in result.output
    result = run("compare", model, "--devices", "mali_g76", "--against", file)
    assert result.exit_code == 1
    assert "nothing to compare" in result.output
    result = run("compare", model, "--devices", " Adreno 640, mali-g76", "--against", file)
    assert "1 of 1 plans are worse" in result.output, "names are those of the descriptions"


def test_a_file_that_holds_no_plans(model: str, tmp_path: Path) -> None:
    """A check does not pass because a figure is none."""
    file = tmp_path / "plans.json"
    plan = plan_for_device(model, "adreno_640").to_raw()
    wrong = [plan | {key: value} for key in ("launches", "predicted_ms") for value in ("3", None, -1, True, math.nan)]
    wrong += [
        plan | {"kernels": {"Other": "b"}},
        plan | {"kernels": []},
        {},
        {k: plan[k] for k in plan if k != "kernels"},
    ]
    for text in (*(json.dumps({"adreno_640": w}) for w in wrong), "{}", "[]", "", json.dumps(plan)[:50], "[" * 100_000):
        file.write_text(text)
        with pytest.raises(InputError, match="does not hold plans"):
            _read_plans(str(file))
    result = run("compare", model, "--devices", "adreno_640", "--against", str(tmp_path / "gone.json"))
    assert result.exit_code == 1
    assert "gone.json cannot be read: No such file" in result.output


def test_growth_within_the_tolerance_is_no_worse_plan(model: str) -> None:
    plan = plan_for_device(model, "mali_g76").to_raw()
    before, worse = (
        {"a": plan},
        {key: {"a": {**plan, key: int(plan[key] * 1.5) + 1}} for key in plan if "_bytes" in key},
    )
    worse |= {"predicted_ms": {"a": {**plan, "predicted_ms": plan["predicted_ms"] * 1.1}}}
    worse |= {"kernels": {"a": {**plan, "launches": plan["launches"] + 1, "kernels": {"Other": 9}}}}
    del worse["image_bytes"]  # of which there are none
    for key, now in worse.items():
        assert worse_plans(before, now, 0.02), key
        assert bool(worse_plans(before, now, 1.0)) == (key == "kernels")
    assert "Other 0 -> 9" in worse_plans(before, worse["kernels"])[0]
    assert not worse_plans(worse["kernels"], before), "fewer launches"
    moved = {"a": {**plan, "arena_bytes": 0, "image_bytes": plan["arena_bytes"]}}
    assert not worse_plans(before, moved), "from buffers to images"


def test_estimates_tell_what_they_are_worth(model: str) -> None:
    for device in ("adreno_640", "nvidia_h200", "apple_m1", "pocl_avx2"):
        plan = plan_for_device(model, device)
        error, (low, high) = EstimateError.of(plan.device), plan.likely_seconds
        assert low < plan.seconds / error.ratio < high
        assert low * error.factor**2 == pytest.approx(high)
        origin = EstimateError.origin(plan.device)
        assert origin
        for command in (("inspect", model), ("profile", model, "--plan")):
            assert f"earlier estimates beside {origin}" in run(*command, "--device", device).stdout
        assert f"by {origin}" in run("compare", model, "--devices", device).stdout


def test_inspect_and_profile_by_description(model: str) -> None:
    result = run("inspect", model, "--device", "adreno_750")
    assert result.exit_code == 0, result.output
    assert "Adreno 750" in result.stdout
    assert "times are estimates" in result.stdout
    assert "candidate" in run("inspect", model, "--device", "adreno_750", "--node", "conv").stdout
    profiled = run("profile", model, "--plan", "--device", "adreno_750").stdout
    assert "Adreno 750, precision fp16" in profiled
    refused = run("profile", model, "--device", "adreno_750")
    assert refused.exit_code == 1
    assert "give --plan too" in refused.output


@pytest.mark.parametrize("text", [None, '{"name": "x", "compute_units": 0}'])
def test_files_that_describe_no_device(model: str, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "device.json"
    if text is not None:
        file.write_text(text)
    result = run("inspect", model, "--device", str(file))
    assert result.exit_code == 1
    assert "internal error" not in result.output
    assert "opalite devices --export" in result.output


def test_what_needs_the_device_is_refused(model: str, tmp_path: Path) -> None:
    bundle = str(tmp_path / "m.opal")
    for options in (("--precision", "auto"), ("--tune", "fast")):
        result = run("compile", model, bundle, "--device", "mali_g76", *options)
        assert result.exit_code == 1
        assert "only described" in result.output


def test_a_bundle_for_another_machine_of_the_kind_runs_here(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sources are built at the first use, as on a phone that nobody had at hand."""
    here = find_runtime(None).info
    other = {"name": "another", "driver": "1", "version": "OpenCL 3.0", "id": "other:0", "compute_units": 64}
    small = {"local_mem": here.local_mem // 2, "max_work_group_size": here.max_work_group_size // 2, "clock_mhz": 1}
    device, bundle = tmp_path / "there.json", str(tmp_path / "m.opal")
    device.write_text(dataclasses.replace(here, **other, **small).to_json())
    result = run("compile", model, bundle, "--device", str(device), "--shape", "x:1x3x16x16")
    assert result.exit_code == 0, result.output
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    (want,) = opalite.InferenceSession(model).run(None, {"x": x})
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    session = opalite.InferenceSession(bundle)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-5, atol=1e-5)
    device.write_text(dataclasses.replace(here, local_mem=2 * here.local_mem).to_json())
    assert run("compile", model, bundle, "--device", str(device), "--shape", "x:1x3x16x16").exit_code == 0
    refused = run("run", bundle)
    assert refused.exit_code == 1
    assert f"local_mem up to {2 * here.local_mem} was planned for, {here.local_mem} is here" in refused.output


def test_open_lengths_grow_until_a_model_can_be_imported(tmp_path: Path) -> None:
    """A filter of 40 samples does not fit into an example of one."""
    w = numpy_helper.from_array(np.ones((2, 1, 40), np.float32), "w")
    ins = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "samples"])]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], "sound", ins, outs, [w])
    path = str(tmp_path / "sound.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert plan_for_device(path, "mali_g76").assumed == {"x": (1, 1, 64)}
    result = run("compare", path, "--devices", "mali_g76", "--shape", "x:1x1x39")
    assert result.exit_code == 1
    assert "smaller than the filter" in result.output


def test_a_bundle_for_a_description_runs_on_that_device(model: str, tmp_path: Path) -> None:
    device, bundle = str(tmp_path / "here.json"), str(tmp_path / "m.opal")
    assert run("devices", "--export", device).exit_code == 0
    result = run("compile", model, bundle, "--device", device, "--device", "adreno_640", "--shape", "x:1x3x16x16")
    assert result.exit_code == 0, result.output
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    (want,) = opalite.InferenceSession(model).run(None, {"x": x})
    (got,) = opalite.InferenceSession(bundle).run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    refused = run("devices", "--export", str(tmp_path / "here.txt"))
    assert refused.exit_code == 1
    assert "a description is a .json file" in refused.output
    for command in (["inspect"], ["lens"], ["profile", "--plan"]):
        refused = run(*command, bundle, "--device", "mali_g76")
        assert refused.exit_code == 1
        assert "is a bundle, which has one device's plan" in refused.output
