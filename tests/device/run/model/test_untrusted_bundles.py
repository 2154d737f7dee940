"""Bundles that nobody vouches for: what they hold is data, and only what this version makes of it runs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
import opalite
from opalite import BundleError, InferenceSession

from ....helpers import small_models as small
from ....helpers.forests import FEATURES, forest
from ....helpers.forged_bundles import Forged, mutate, records

FEEDS = {"x": np.random.default_rng(3).standard_normal((1, 3, 8, 8), np.float32)}
Change = Callable[[Forged], None]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "good.opal"
    opalite.compile(small.classifier((1, 3, 8, 8)).SerializeToString(), path)
    return path


@pytest.fixture(scope="module")
def want(bundle: Path) -> list[Any]:
    return InferenceSession(bundle, trust=True).run(None, FEEDS)


@pytest.fixture
def forge(bundle: Path, tmp_path: Path) -> Callable[[Change], Path]:
    def made(change: Change) -> Path:
        forged = Forged(bundle)
        change(forged)
        path = tmp_path / "forged.opal"
        forged.write(path)
        return path

    return made


def _change_program(name: str, change: Callable[[list[Any]], None]) -> Change:
    """Have `change` change each record of a class in the program."""

    def changed(forged: Forged) -> None:
        def every(program: Any) -> None:
            found = records(program, name)
            assert found
            for fields in found:
                change(fields)

        forged.set_program(every)

    return changed


def _set(field: int, value: Any) -> Callable[[list[Any]], None]:
    def change(fields: list[Any]) -> None:
        fields[field] = value(fields[field]) if callable(value) else value

    return change


HOSTILE = {
    "a source": _change_program("SourceSpec", _set(1, "kernel void nothing() {}")),
    "an include": _change_program("SourceSpec", _set(1, lambda text: f'#include "/etc/hostname"\n{text}')),
    "options": _change_program("SourceSpec", _set(2, lambda text: f"{text} -DSTORAGE=nonsense")),
    "an entry": _change_program("LaunchStep", _set(2, "other")),
    "grids": _change_program("LaunchStep", _set(4, lambda grid: {"t": [65536 * n for n in grid["t"]]})),
    "numbers": _change_program("ScalarArg", _set(1, {"n": ["int32", 1 << 30]})),
    "offsets": _change_program("Slot", _set(4, 1 << 40)),
    "sizes": _change_program("Slot", _set(2, 1)),
    "an upload": _change_program("UploadStep", _set(1, 77)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_program_that_was_changed_is_not_used(
    what: str, forge: Callable[[Change], Path], want: list[Any], no_cache: None
) -> None:
    got = InferenceSession(forge(HOSTILE[what])).run(None, FEEDS)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5)


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))


def _change_graph(name: str, change: Callable[[list[Any]], None], which: int = 0) -> Change:
    def changed(forged: Forged) -> None:
        graph = forged.graph()
        change(records(graph, name)[which])
        forged.set_graph(graph)

    return changed


def _convolution(change: Callable[[list[Any]], None]) -> Change:
    """Change the first convolution's record, whose fields are op, inputs, outputs, epilogue and so on, from 1 on."""

    def changed(forged: Forged) -> None:
        graph = forged.graph()
        change(next(n for n in records(graph, "NodeRecord") if n[1]["o"][0] == "Conv"))
        forged.set_graph(graph)

    return changed


def _attribute(name: str, value: Any) -> Callable[[list[Any]], None]:
    def change(fields: list[Any]) -> None:
        pairs = fields[1]["o"][1]["d"]
        next(p for p in pairs if p[0] == name)[1] = value

    return change


REFUSED: dict[str, tuple[Change, str]] = {
    "strides of nothing": (_convolution(_attribute("strides", {"t": [0, 0]})), "strides must be positive"),
    "another padding": (_convolution(_attribute("pads", {"t": [9, 9, 9, 9]})), "the operator infers"),
    "a kernel of nobody": (_convolution(_set(9, "ConvNowhere")), "this version lacks"),
    "a kernel of another operator": (_convolution(_set(9, "SoftmaxRows")), "this version lacks"),
    "strange parameters": (_convolution(_set(10, {"d": [["TILE", 1 << 20]]})), "parameters"),
    "a large work-group": (_convolution(_set(11, {"t": [1 << 20]})), "work-group"),
    "an input that is none": (_convolution(_set(2, {"t": [10**6, 1, 2]})), "no value number"),
    "the host": (_convolution(_set(8, "I say so")), "takes no epilogue"),
    "a weight of another shape": (_change_graph("FormRecord", _set(3, {"a": 0}), -1), "is expected"),
    "a weight that is missing": (_change_graph("FormRecord", _set(2, "strange"), 0), "is missing in the form"),
    "an expression of code": (_change_graph("ValueRecord", _set(1, {"s": "().__class__"})), "depends on no symbol"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_graph_that_this_version_does_not_make_is_refused(
    what: str, forge: Callable[[Change], Path], no_cache: None
) -> None:
    change, words = REFUSED[what]
    session = InferenceSession(forge(change))
    with pytest.raises(BundleError, match=words) as e:
        session.run(None, FEEDS)
    assert "trust=True" in str(e.value)


def test_a_bundle_without_graphs_runs_for_who_trusts_it(
    forge: Callable[[Change], Path], want: list[Any], no_cache: None
) -> None:
    def strip(forged: Forged) -> None:
        forged.about["variants"][0]["graph"] = None

    path = forge(strip)
    with pytest.raises(BundleError, match="does not hold the graphs"):
        InferenceSession(path).run(None, FEEDS)
    np.testing.assert_array_equal(InferenceSession(path, trust=True).run(None, FEEDS)[0], want[0])


def test_another_kind_of_device_is_refused(forge: Callable[[Change], Path], no_cache: None) -> None:
    def change(forged: Forged) -> None:
        raw = forged.about["variants"][0]
        raw["device"] = json.dumps(json.loads(raw["device"]) | {"full_wave": 4096})

    with pytest.raises(BundleError, match=r"differs from .* in full_wave"):
        InferenceSession(forge(change)).run(None, FEEDS)


def test_shapes_of_inputs_that_the_program_was_not_made_for_are_refused(
    forge: Callable[[Change], Path], no_cache: None
) -> None:
    def change(forged: Forged) -> None:
        forged.about["variants"][0]["shapes"]["x"] = [1, 3, 64, 64]
        for port in forged.about["meta"]["inputs"]:
            port["shape"] = [1, 3, 64, 64]

    with pytest.raises(BundleError, match="but must be"):
        InferenceSession(forge(change)).run(None, {"x": np.zeros((1, 3, 64, 64), np.float32)})


def test_its_weights_are_no_other_models(
    bundle: Path, forge: Callable[[Change], Path], want: list[Any], no_cache: None
) -> None:
    """A tensor under a name that says it holds what another model's weights are."""

    def change(forged: Forged) -> None:
        for kind, shape, key in forged.about["variants"][0]["graph"]["arrays"]:
            if kind == "float32" and len(shape) > 1:
                forged.tensors[key] = bytes(len(forged.tensors[key]))

    hostile = InferenceSession(forge(change))
    assert not np.allclose(hostile.run(None, FEEDS)[0], want[0])
    np.testing.assert_array_equal(InferenceSession(bundle, trust=True).run(None, FEEDS)[0], want[0])


def test_a_second_start_makes_nothing_again(bundle: Path, no_cache: None, tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np, opalite\n"
        f"opalite.InferenceSession({str(bundle)!r}).run(None, {{'x': np.zeros((1, 3, 8, 8), np.float32)}})\n"
        "print('opalite.plan.bundle.reemit_program' in sys.modules, 'onnx' in sys.modules)\n"
    )
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(2)]
    assert [p.stdout.split() for p in found] == [["True", "False"], ["False", "False"]], found[0].stderr
    kept = list((tmp_path / "cache").glob("bundles/*/*.safetensors"))
    assert len(kept) == 1
    kept[0].write_bytes(kept[0].read_bytes()[:-100])  # a damaged one is made again
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert again.stdout.split() == ["True", "False"], again.stderr


@pytest.mark.parametrize("size", [8, 12])
def test_open_sizes_are_served(size: int, tmp_path: Path, no_cache: None) -> None:
    model = small.classifier(("N", 3, 8, "W"))
    path = tmp_path / "open.opal"
    opalite.compile(model.SerializeToString(), path, shapes={"x": (2, 3, 8, 8)})
    x = np.random.default_rng(1).standard_normal((3, 3, 8, size), np.float32)
    want = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    got = InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


def test_trees_that_point_outside_are_refused(tmp_path: Path, no_cache: None) -> None:
    trees = forest("target", [0, 1]) | {"n_targets": 2}
    node = onnx.helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **trees)
    ports = [small.port("x", (5, FEATURES))], [small.port("y", (5, 2))]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "trees", *ports), opset_imports=[onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    ).SerializeToString()
    feeds = {"x": np.random.default_rng(1).standard_normal((5, FEATURES), np.float32)}
    good, bad = tmp_path / "good.opal", tmp_path / "bad.opal"
    opalite.compile(model, good, shapes={name: a.shape for name, a in feeds.items()})
    want = InferenceSession(good, trust=True).run(None, feeds)
    np.testing.assert_array_equal(InferenceSession(good).run(None, feeds)[0], want[0])
    forged = Forged(good)
    nodes = next(k for kind, s, k in forged.about["variants"][0]["arrays"] if kind == "int32" and s[1:] == [4])
    table = np.frombuffer(forged.tensors[nodes], np.int32).copy().reshape(-1, 4)
    table[0, 2] = 1 << 28
    forged.tensors[nodes] = table.tobytes()
    forged.write(bad)
    with pytest.raises(BundleError, match=r"lies outside|not what its name says"):
        InferenceSession(bad).run(None, feeds)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_whatever_is_changed_is_refused_or_harmless(
    first: int, bundle: Path, tmp_path: Path, want: list[Any], no_cache: None
) -> None:
    for seed in range(first, first + 20):
        rng, forged = random.Random(seed), Forged(bundle)
        if rng.random() < 0.7:
            graph = forged.graph()
            what = mutate(graph, rng)
            forged.set_graph(graph)
        elif rng.random() < 0.5:
            what = mutate(forged.about["variants"], rng)
        else:
            told: list[str] = []
            forged.set_program(lambda p, told=told, rng=rng: told.append(mutate(p, rng)))  # type: ignore[misc]
            what = told[0]
        path = tmp_path / f"{seed}.opal"
        forged.write(path)
        try:
            got = InferenceSession(path).run(None, FEEDS)
        except opalite.OpaliteError:
            continue
        assert got[0].dtype == want[0].dtype, what


def test_an_input_without_elements_may_have_open_sizes(tmp_path: Path) -> None:
    w = onnx.numpy_helper.from_array(np.zeros((0, 3), np.float32), "w")
    x, y = (onnx.helper.make_tensor_value_info(n, 1, ["rows", size]) for n, size in (("x", 0), ("y", 3)))
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    opalite.compile(model.SerializeToString(), tmp_path / "m.opal", shapes=[{"x": (2, 0)}])
    (got,) = InferenceSession(tmp_path / "m.opal").run(None, {"x": np.zeros((2, 0), np.float32)})
    np.testing.assert_array_equal(got, np.zeros((2, 3), np.float32))
