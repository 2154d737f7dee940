"""benchmarks.programs: what is compiled, recorded as text, and compared between two checkouts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from benchmarks.programs.difference import compare, without_comments
from benchmarks.programs.record import Job, graphs_of, record

import onnx
from onnx import TensorProto, helper
from opalite.ir.device.device_descriptions import FOLDER
from opalite.ir.symbols import is_symbolic

from ..helpers.small_models import classifier, tagger

ROOT = Path(__file__).parents[2]
DEVICES = [str(FOLDER / f"{name}.json") for name in ("pocl_avx512", "adreno_640")]


@pytest.fixture
def models(tmp_path):
    """Files of two small models."""
    paths = [tmp_path / "classifier.onnx", tmp_path / "tagger.onnx"]
    for path, make in zip(paths, (classifier, tagger), strict=True):
        onnx.save(make(), path)
    return [str(path) for path in paths]


def recorded(models, folder):
    record(Job(models, DEVICES, ["fp32", "fp16"], str(folder)))
    return folder


def run(*arguments):
    command = [sys.executable, "-m", "benchmarks.programs", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_same_code_gives_equal_records_in_any_order(models, tmp_path):
    first = recorded(models, tmp_path / "first")
    second = recorded(models[::-1], tmp_path / "second")
    found = compare(first, second)
    assert (found.equal, found.differing, found.failed) == (8, [], [])
    assert found.summary == "8 of 8 programs are equal"


def test_a_record_tells_all_of_a_launch(models, tmp_path):
    folder = recorded(models[:1], tmp_path / "kept")
    lines = (folder / "classifier" / "pocl_avx512.fp32.jsonl").read_text().splitlines()
    launches = [r for r in map(json.loads, lines) if r["step"] == "launch"]
    assert launches
    for launch in launches:
        assert launch["entry"] in (folder / "sources" / f"{launch['source']}.cl").read_text()
        assert any(a.startswith(("arena", "own")) for a in launch["args"])
    assert any(a.startswith("weight float32[") for launch in launches for a in launch["args"])


@pytest.mark.parametrize("what, value", [("grid", [1, 2]), ("args", []), ("group", None), ("options", "-DX=1")])
def test_a_changed_launch_shows(models, tmp_path, what, value):
    old = recorded(models[:1], tmp_path / "old")
    new = shutil.copytree(old, tmp_path / "new")
    path = new / "classifier" / "adreno_640.fp16.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    changed = next(r for r in records if r["step"] == "launch")
    changed[what] = value
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    found = compare(old, new)
    assert found.differing == ["classifier/adreno_640.fp16"]
    assert any(what in line for line in found.lines)


def test_a_changed_source_is_shown_once(models, tmp_path):
    """And what else differs is not hidden by it."""
    old = recorded(models[:1], tmp_path / "old")
    new = shutil.copytree(old, tmp_path / "new")
    files = sorted(new.glob("*/*.jsonl"))
    launches = [r for f in files for r in map(json.loads, f.read_text().splitlines()) if "entry" in r]
    used = Counter(r["source"] for r in launches if r["entry"].startswith("softmax"))
    key, count = used.most_common(1)[0]
    assert count > 1
    (new / "sources" / "changed.cl").write_text((new / "sources" / f"{key}.cl").read_text() + "int more;\n")
    for path in files:
        path.write_text(path.read_text().replace(key, "changed").replace('"entry": "softmax', '"entry": "soft_max'))
    found = compare(old, new)
    assert "\n".join(found.lines).count("+int more;") == 1
    assert sum("entry: softmax" in line for line in found.lines) == len(found.differing)
    for path in files:
        path.write_text(path.read_text().replace("soft_max", "softmax"))
    found = compare(old, new)
    assert len(found.differing) == count
    assert found.lines.count("  only sources differ, as shown above") == count - 1


def test_comments_alone_are_no_difference(models, tmp_path):
    old = recorded(models[:1], tmp_path / "old")
    new = shutil.copytree(old, tmp_path / "new")
    for path in new.glob("sources/*.cl"):
        text = path.read_text()
        path.write_text(f"/* of\nmore lines */ {text} // that ends\n")
        path.rename(path.with_name(f"other-{path.name}"))
    for path in new.glob("*/*.jsonl"):
        path.write_text(path.read_text().replace('"source": "', '"source": "other-'))
    assert not compare(old, new).differing


def test_what_a_text_holds_is_no_comment():
    assert without_comments('asm("a; // b" : "=r"(x)); // c\n\n/* d */ e;\n') == 'asm("a; // b" : "=r"(x));\n  e;\n'


def test_names_alone_are_no_difference(models, tmp_path):
    old = recorded(models[:1], tmp_path / "old")
    new = shutil.copytree(old, tmp_path / "new")
    for path in new.glob("*/*.jsonl"):
        path.write_text(path.read_text().replace('"node": "', '"node": "renamed '))
    assert not compare(old, new).differing


def test_parts_that_depend_on_data_are_recorded_too():
    """What comes after a NonZero is planned for the shape that the references find."""
    nodes = [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Neg", ["i"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    graphs = list(graphs_of(model.SerializeToString(), {"x": np.array([1, 0, 2, 3], np.float32)}))
    assert [g.outputs[0].shape for g in graphs][-1] == (1, 3)


def test_parts_of_open_sizes_are_evaluated_at_those_at_hand():
    """And planned with their sizes open, as a session plans them."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 5] x) => (int64[R, K] y)
        <int64[1] last = {-1}, int64[1] from = {0}, int64[1] axis = {0}>
        { a = Slice(x, from, last, axis) i = NonZero(a) y = Neg(i) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    graphs = list(graphs_of(model, {"x": np.eye(4, 5, dtype=np.float32)}))
    assert graphs[-1].outputs[0].shape == (2, 3)
    assert is_symbolic(graphs[0].inputs[0].shape)
    assert graphs[0].trace.holds((7,))


def test_a_changed_source_of_another_checkout_shows(models, tmp_path):
    """The other package is taken from its folder: its sources are what changed, in one kernel's line."""
    other = tmp_path / "other" / "src"
    shutil.copytree(ROOT / "src" / "opalite", other / "opalite", ignore=shutil.ignore_patterns("__pycache__"))
    common = other / "opalite" / "kernels" / "include" / "common.cl"
    common.write_text(f"{common.read_text()}int another_line;\n")
    options = ("--devices", "mali_g76", "--precisions", "fp32", "--jobs", "1", models[0])
    same = run("--against", str(ROOT / "src"), *options)
    assert (same.returncode, same.stdout.splitlines()[-1]) == (0, "1 of 1 programs are equal"), same.stderr
    changed = run("--against", str(other), *options)
    assert (changed.returncode, changed.stdout.splitlines()[-1]) == (1, "0 of 1 programs are equal"), changed.stderr
    assert "-int another_line;" in changed.stdout


def test_a_record_is_kept_and_compared_later(models, tmp_path):
    options = ("--devices", "mali_g76", "--precisions", "fp32", "--jobs", "1", models[1])
    kept = tmp_path / "kept"
    assert run("--keep", str(kept), *options).returncode == 0
    assert run("--against", str(kept), *options).returncode == 0
    again = run("--keep", str(kept), *options)
    assert again.returncode == 2
    assert "name a new folder" in again.stderr
