"""The document of runs on a device: times, timeline, and the parts of models that are no single program."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import onnx
import opalite
from onnx import TensorProto, helper
from opalite.cli import main
from opalite.lens.document import lens_document
from opalite.run.model.imported_model import ImportedModel
from tests.helpers.small_models import classifier, make_model, noise, port

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


@pytest.fixture
def document(device_id: str) -> Callable[..., dict[str, Any]]:
    """The document of three runs of a model, through JSON."""

    def make(model: Any, feeds: dict[str, Any], **options: Any) -> dict[str, Any]:
        data = model.SerializeToString()
        with opalite.InferenceSession(data, device=device_id, **options) as session:
            capture = session.capture(feeds, 3)
        graph = ImportedModel(data).importer.graph
        found: dict[str, Any] = json.loads(json.dumps(lens_document(capture, graph, name="net.onnx")))
        return found

    return make


def fates(found: dict[str, Any]) -> dict[str, str]:
    return {n["name"]: n["fate"] for n in found["graph"]["nodes"]}


def kinds(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(e["kind"], e["depth"]) for e in found["timeline"]["events"]]


def test_times_of_a_run(document: Callable[..., dict[str, Any]]) -> None:
    found = document(classifier(), {"x": noise(2, 3, 8, 8)})
    header, steps = found["header"], found["program"]["steps"]
    assert header["is_measured"]
    assert header["error"] is None
    assert header["runs"] == 3
    assert 0 < header["device_ms"] < header["run_ms"]
    assert header["device_ms"] == pytest.approx(sum(s["ms"] for s in steps if s["kind"] == "launch"), rel=1e-3)
    assert all(s["ms"] > 0 for s in steps)
    assert found["peaks"]["fp32"]["is_measured"]
    assert found["graph"]["tensors"]["x"]["shape"] == "2x3x8x8"
    assert found["graph"]["tensors"]["a"]["shape"] == "2x8x8x8"
    assert fates(found)["conv1"] == fates(found)["relu1"] == "launch"
    assert 0 < found["timeline"]["ms"] <= found["timeline"]["run_ms"]
    order = [e["start_ms"] for e in found["timeline"]["events"]]
    assert order == sorted(order)
    assert kinds(found)[0] == ("upload", 0)
    assert kinds(found)[-1] == ("download", 0)
    assert sum(kind == "launch" for kind, _ in kinds(found)) == header["launches"]


def loop() -> Any:
    inside = [
        helper.make_node("MatMul", ["h", "w"], ["m"], name="mul"),
        helper.make_node("Tanh", ["m"], ["h2"], name="tanh"),
        helper.make_node("Identity", ["c"], ["c2"], name="go"),
    ]
    taken = [port("i", [], INT64), port("c", [], BOOL), port("h", [4, 4])]
    body = helper.make_graph(inside, "body", taken, [port("c2", [], BOOL), port("h2", [4, 4])])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("Loop", ["n", "", "r"], ["y"], name="loop", body=body),
        helper.make_node("Neg", ["y"], ["z"], name="last"),
    ]
    return make_model(nodes, [port("x", [4, 4]), port("n", [], INT64)], [port("z", None)], {"w": noise(4, 4)})


def test_a_loop_shows_the_steps_of_its_iterations(document: Callable[..., dict[str, Any]]) -> None:
    found = document(loop(), {"x": noise(4, 4), "n": np.int64(3)})
    assert [p["loop"] for p in found["program"]["parts"]] == ["", "Loop node 'loop'", ""]
    assert fates(found) == {
        **{"first": "launch", "loop": "flow", "mul": "launch", "tanh": "launch", "go": "none", "last": "launch"}
    }
    inside = found["program"]["parts"][1]["steps"]
    launches = [s for s in inside if found["program"]["steps"][s]["kind"] == "launch"]
    assert all(found["program"]["steps"][s]["times"] == 3 for s in inside)
    assert found["header"]["launches"] == 2 + 3 * len(launches), "as often as they ran"
    nodes = {n["name"]: n for n in found["graph"]["nodes"]}
    assert nodes["loop"]["launches"] == launches, "the loop stands for its body"
    assert nodes["tanh"]["within"] == found["graph"]["nodes"].index(nodes["loop"])
    assert nodes["first"]["within"] is None
    events = found["timeline"]["events"]
    assert [e["kind"] for e in events if e["depth"] == 0].count("loop") == 1
    assert sum(e["depth"] == 1 and e["step"] in launches for e in events) == 3 * len(launches)
    (edge,) = [(a, b) for a, b, tensor in found["graph"]["edges"] if tensor == "y"]
    assert [found["graph"]["nodes"][n]["name"] for n in edge] == ["loop", "last"]


def test_branches_that_are_not_taken_are_idle(document: Callable[..., dict[str, Any]]) -> None:
    sides = [
        helper.make_graph([helper.make_node(op, ["x"], ["t"], name=op)], op, [], [port("t", None)])
        for op in ("Exp", "Sqrt")
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["q"], name="sum", keepdims=0),
        helper.make_node("Greater", ["q", "zero"], ["c"], name="gt"),
        helper.make_node("If", ["c"], ["y"], name="if", then_branch=sides[0], else_branch=sides[1]),
    ]
    model = make_model(nodes, [port("x", [4, 4])], [port("y", None)], {"zero": np.float32(0)})
    found = document(model, {"x": np.ones((4, 4), np.float32)})
    assert fates(found) == {"sum": "host", "gt": "host", "if": "flow", "Exp": "launch", "Sqrt": "idle"}
    scopes = {n["name"]: n["scope"] for n in found["graph"]["nodes"]}
    assert scopes["Exp"] == "If node 'if', then_branch"


def test_segments_and_the_host_between_them(document: Callable[..., dict[str, Any]]) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("NonZero", ["r"], ["nz"], name="where"),
        helper.make_node("Transpose", ["nz"], ["t"], name="turn"),
        helper.make_node("GatherND", ["x", "t"], ["v"], name="take"),
        helper.make_node("Exp", ["v"], ["y"], name="exp"),
    ]
    model = make_model(nodes, [port("x", [4, 4])], [port("y", None)])
    found = document(model, {"x": np.eye(4, dtype=np.float32)})
    assert len(found["program"]["parts"]) == 2
    assert fates(found)["where"] == "host"
    assert ("host", 0) in kinds(found)
    assert found["header"]["host_steps"] == 1
    (host,) = [n for n in found["program"]["nodes"] if n["target"] == "host"]
    assert host["ms"] > 0
    assert found["graph"]["tensors"]["nz"]["shape"] == "2x4"


def test_a_model_of_host_operators_alone(document: Callable[..., dict[str, Any]]) -> None:
    model = make_model(
        [helper.make_node("NonZero", ["x"], ["y"], name="where")], [port("x", [4])], [port("y", None, INT64)]
    )
    found = document(model, {"x": np.ones(4, np.float32)})
    assert fates(found) == {"where": "host"}
    assert kinds(found) == [("host", 0)]
    assert found["header"]["device_ms"] == 0
    assert found["header"]["run_ms"] > 0


def test_a_call_of_a_function_is_one_node(document: Callable[..., dict[str, Any]]) -> None:
    inside = [helper.make_node("Exp", ["a"], ["t"], name="inner"), helper.make_node("Tanh", ["t"], ["b"])]
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("my", "Act", ["a"], ["b"], inside, opsets)
    nodes = [
        helper.make_node("Act", ["x"], ["q"], name="call", domain="my"),
        helper.make_node("MatMul", ["q", "w"], ["p"], name="product"),
        helper.make_node("Act", ["p"], ["y"], name="again", domain="my"),
    ]
    model = make_model(nodes, [port("x", [4, 4])], [port("y", None)], {"w": noise(4, 4)}, domains=["my"])
    model.functions.append(function)
    found = document(model, {"x": noise(4, 4)})
    assert fates(found) == dict.fromkeys(("call", "product", "again"), "launch")
    calls = {n["name"]: n for n in found["graph"]["nodes"]}
    assert set(calls["call"]["launches"]).isdisjoint(calls["again"]["launches"])


def test_the_command_compares_each_node_with_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device_id: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(classifier([1, 3, 8, 8]), "net.onnx")
    args = ["lens", "net.onnx", "--verify", "--drift", "--runs", "2", "-o", "net.json"]
    result = CliRunner().invoke(main, [*args, *(["--device", device_id] if device_id else [])])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(Path("net.json").read_text())["documents"]
    assert found["header"]["command"]
    assert all(n["error"]["passed"] for n in found["graph"]["nodes"] if n["fate"] == "launch")
    assert {check["what"] for check in found["checks"]} >= {"output 'y'"}
    assert all(check["passed"] for check in found["checks"])
    drift = found["drift"]
    names = {n["name"] for n in found["graph"]["nodes"]}
    assert {name for p in drift["points"] for name in p["nodes"]} <= names
    assert drift["passed"]
    assert drift["policies"][-1]["error"] == 0


def test_wrong_options_get_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(classifier([1, 3, 8, 8]), path)
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "old.json").write_text('{"opalite_lens": 0, "documents": []}')
    (tmp_path / "text.onnx").write_text("hello")
    for args, words in (
        ([path, "-o", "page.pdf"], "write a page, .html, or its data, .json"),
        ([path, "--json", "--against", tmp_path / "other.json"], "does not hold a document"),
        ([path, "--json", "--against", tmp_path / "old.json"], "another version"),
        ([path, "--json", "--device", "adreno_640", "--verify"], "on which --verify cannot run"),
        ([tmp_path / "text.onnx", "--json"], "ONNX"),
    ):
        result = CliRunner().invoke(main, ["lens", *map(str, args)])
        assert result.exit_code == 1
        assert words in result.output
        assert "Traceback" not in result.output


def test_a_bundle_shows_what_it_still_knows(tmp_path: Path, device_id: str) -> None:
    path = tmp_path / "net.opal"
    model = classifier([1, 3, 8, 8])
    opalite.compile(model.SerializeToString(), path, device=device_id)
    with opalite.InferenceSession(path, device=device_id) as session:
        capture = session.capture({"x": noise(1, 3, 8, 8)}, 3)
    found = lens_document(capture, None, name="net.opal")
    assert {"conv1", "relu1", "fc"} <= fates(found).keys()
    assert fates(found)["conv1"] == "launch"
    assert found["rewrites"] == []
    assert found["header"]["device_ms"] > 0
