"""The document of a plan: a sentence on each node of the model, joined with the program both ways."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from onnx import helper
from opalite.ir import DeviceInfo
from opalite.lens.document import lens_document, lens_file
from opalite.lens.peaks import add_roofs, peaks_of
from opalite.run.model.imported_model import ImportedModel
from opalite.run.report.device_plan import plan_for_device
from opalite.run.report.profile import Peaks
from tests.helpers.small_models import make_model, noise, port
from tests.helpers.tflite_models import branching_file, looping_file


def classifier() -> bytes:
    """Convolution with a folded scale, Relu, a Dropout, Shape arithmetic, a pool and a Softmax nobody named."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["scale"], name="fold"),
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "scale"], ["m"], name="mul"),
        helper.make_node("Relu", ["m"], ["r"], name="relu"),
        helper.make_node("Dropout", ["r"], ["d"], name="drop"),
        helper.make_node("GlobalAveragePool", ["d"], ["p"], name="pool"),
        helper.make_node("Shape", ["p"], ["s"], name="shape", end=2),
        helper.make_node("Reshape", ["p", "s"], ["f"], name="flat"),
        helper.make_node("Softmax", ["f"], ["y"]),
    ]
    held = {"w": noise(8, 3, 3, 3), "a": noise(1, 8, 1, 1), "b": noise(1, 8, 1, 1, seed=1)}
    model = make_model(nodes, [port("x", [1, 3, 16, 16])], [port("y", None)], held)
    return bytes(model.SerializeToString())


def document(model: bytes, device: str = "adreno_640", **options: Any) -> dict[str, Any]:
    imported = ImportedModel(model)
    plan = plan_for_device(imported, device, **options)
    return lens_document(plan.capture(), imported.importer.graph, name="net.onnx")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return document(classifier())


def test_each_node_of_the_model_has_a_fate(found: dict[str, Any]) -> None:
    fates = {n["name"]: n["fate"] for n in found["graph"]["nodes"]}
    assert fates == {
        **{"fold": "planned", "conv": "launch", "mul": "launch", "relu": "launch", "drop": "none"},
        **{"pool": "launch", "shape": "sizes", "flat": fates["flat"], "y": "launch"},
    }
    assert fates["flat"] in ("view", "removed", "launch")
    assert all(n["fate_words"] for n in found["graph"]["nodes"])


def test_the_join_leads_both_ways(found: dict[str, Any]) -> None:
    nodes, steps = found["program"]["nodes"], found["program"]["steps"]
    for number, model_node in enumerate(found["graph"]["nodes"]):
        assert all(number in nodes[i]["model_nodes"] for i in model_node["nodes"])
        assert all(steps[s]["kind"] == "launch" for s in model_node["launches"])
        assert (model_node["fate"] == "launch") == bool(model_node["launches"])
    for number, step in enumerate(steps):
        assert number in nodes[step["node"]]["steps"]
    conv = next(n for n in nodes if "Conv" in n["operators"])
    names = [found["graph"]["nodes"][i]["name"] for i in conv["model_nodes"]]
    assert {"conv", "mul", "relu"} <= set(names)
    touched = {found["rewrites"][r]["pass"] for r in conv["rewrites"]}
    assert {"fold_affine", "fuse_epilogues"} <= touched
    assert all(found["passes"][name] for name in touched)


def test_edges_follow_tensors_and_memory(found: dict[str, Any]) -> None:
    names = [n["name"] for n in found["graph"]["nodes"]]
    edges = {(names[a], names[b]) for a, b, _ in found["graph"]["edges"]}
    assert {("conv", "mul"), ("fold", "mul"), ("relu", "drop"), ("shape", "flat"), ("flat", "y")} <= edges
    steps = found["program"]["steps"]
    read = {b for _, b in found["program"]["edges"]}
    assert read == {i for i, s in enumerate(steps) if s["kind"] != "upload"}
    assert all(a < b for a, b in found["program"]["edges"])


def test_launches_have_sources_and_memory(found: dict[str, Any]) -> None:
    boxes = found["program"]["boxes"]
    for step in found["program"]["steps"]:
        if step["kind"] != "launch":
            continue
        text = "\n\n".join(found["pieces"][p] for p in found["sources"][step["source"]]["pieces"])
        assert f"{step['entry']}(" in text
        assert step["ms"] > 0
        assert step["roof"] > 0
        assert all(a["name"] for a in step["arguments"])
        used = [boxes[a["box"]] for a in step["arguments"] if a["kind"] == "buffer"]
        assert used
        assert all(b["bytes"] > 0 for b in used)


def test_times_add_up(found: dict[str, Any]) -> None:
    header, program = found["header"], found["program"]
    launches = sum(s["ms"] for s in program["steps"] if s["kind"] == "launch")
    assert header["device_ms"] == pytest.approx(sum(n["ms"] for n in program["nodes"]), rel=1e-3)
    assert launches <= header["device_ms"] * 1.001
    assert not header["is_measured"]
    assert "estimates" in header["error"]["words"]
    assert header["error"]["factor"] >= 1


def test_documents_compare_by_the_models_nodes(found: dict[str, Any]) -> None:
    other = document(classifier(), "mali_g610")
    lens = json.loads(json.dumps(lens_file([found, other])))
    (comparison,) = lens["comparisons"]
    assert (comparison["before"], comparison["after"]) == (1, 0)
    for side, each in enumerate((other, found)):
        total = sum(row["ms"][side] or 0.0 for row in comparison["rows"])
        assert total == pytest.approx(each["header"]["device_ms"], rel=1e-3)
        assert sum(row["launches"][side] for row in comparison["rows"]) == each["header"]["launches"]
    joined = next(row for row in comparison["rows"] if "conv" in row["nodes"])
    assert {"mul", "relu"} <= set(joined["nodes"])
    assert all(joined["kernel"])
    differences = [abs(row["difference_ms"]) for row in comparison["rows"]]
    assert differences == sorted(differences, reverse=True)


def test_control_flow_of_a_tflite_file() -> None:
    found = document(looping_file())
    assert [p["loop"] for p in found["program"]["parts"]] == ["", "Loop node 'y'"]
    assert {n["fate"] for n in found["graph"]["nodes"] if n["op"] != "Loop"} == {"launch"}
    branches = document(branching_file())
    assert {n["scope"] for n in branches["graph"]["nodes"]} == {
        "",
        "If node 'y', then_branch",
        "If node 'y', else_branch",
    }


def test_the_right_peak_for_each_kind_of_arithmetic() -> None:
    about = {"compute_units": 2, "clock_mhz": 1000, "lanes": 32, "fp16": True, "extensions": ("cl_khr_fp16",)}
    plain, measured = DeviceInfo(**about), Peaks(1e12, 1e10)
    assert peaks_of(plain, None, {}).keys() == {"bandwidth", "fp32", "fp16"}
    dots = dataclasses.replace(plain, quirks=("ptx_dot", "ptx_mma", "ptx_wgmma"))
    found = peaks_of(dots, measured, {"dot": 5e12})
    assert {k: p["is_measured"] for k, p in found.items()} == {
        **{"bandwidth": True, "fp32": True, "fp16": False, "dot": True, "matrix": False}
    }
    assert found["dot"]["rate"] == 5e12
    assert found["fp16"]["rate"] == 2e12
    assert found["matrix"]["rate"] == 2 * 1e9 * 4096
    step = {"kind": "launch", "arithmetic": "dot", "flops": 1e9, "bytes": 1.0, "ms": 1.0, "times": 2, "roof": None}
    add_roofs([step], found)
    assert step["roof"] == pytest.approx(1e9 / 5e12 / 0.5e-3)
    assert step["bound"] == "compute"
    assert "roof_words" not in step
    fast = step | {"ms": 0.1}
    add_roofs([fast], found)
    assert fast["roof_words"]


def test_numbers_that_json_lacks_are_no_numbers() -> None:
    nodes = [helper.make_node("Clip", ["x", "low"], ["y"], name="clip")]
    model = make_model(nodes, [port("x", [64])], [port("y", None)], {"low": np.float32(-np.inf)})
    json.dumps(document(model.SerializeToString()), allow_nan=False)
