"""Precision 'auto': half only if it agrees with float32, a mixed policy otherwise, stored for later processes.

Longer than 400 lines: independent cases.
"""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import opalite
from onnx import helper
from opalite.cl.runtime import Runtime
from opalite.cli import main
from opalite.errors import InputError
from opalite.ir.precision import Precision
from opalite.ir.tolerances import relative_difference
from opalite.run.precision import auto_model
from opalite.run.precision.precision_choice import PrecisionChoiceCache

from ....helpers.small_models import classifier, make_model, noise, port, save
from ..model.test_segments import chosen_rows
from .test_precision import towering

ONES = np.ones((1, 4, 5, 5), np.float32)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Half is tried on every device, and every test has a cache folder of its own."""
    monkeypatch.setenv("OPALITE_TRY_HALF", "1")
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def lifted(constant: float | None = None) -> Any:
    """1x1 convolutions between which k is added and subtracted: y = x, but halves near k have few digits."""
    names = ["x", "a", "b", "c", "d", "y"]
    nodes = []
    for i, o in itertools.pairwise(names):
        made = {"b": "raised", "d": "fallen"}.get(o, o)
        nodes.append(helper.make_node("Conv", [i, "w"], [made], name=o))
        if made != o:
            nodes.append(helper.make_node("Add" if o == "b" else "Sub", [made, "k"], [o], name=f"{o}_k"))
    constants: dict[str, Any] = {"w": np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)}
    inputs = [port("x", ["N", 4, 5, 5])]
    if constant is None:
        inputs.append(port("k", [1, 4, 1, 1]))
    else:
        constants["k"] = np.full((1, 4, 1, 1), constant, np.float32)
    return make_model(nodes, inputs, [port("y", ["N", 4, 5, 5])], constants)


def feeds_of(k: float, *, batch: int = 1) -> dict[str, Any]:
    return {"x": noise(batch, 4, 5, 5), "k": np.full((1, 4, 1, 1), k, np.float32)}


def open_auto(rt: Runtime, model: Any, **options: Any) -> opalite.InferenceSession:
    data = model if isinstance(model, str) else model.SerializeToString()
    return opalite.InferenceSession(data, device=rt.info.id, precision="auto", memory="buffer", **options)


def run_in_fp32(rt: Runtime, model: Any, feeds: dict[str, Any]) -> Any:
    with opalite.InferenceSession(
        model.SerializeToString(), device=rt.info.id, precision="fp32", memory="buffer"
    ) as session:
        return session.run(None, feeds)


def forbid_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("this run was checked")

    monkeypatch.setattr(auto_model.AutoModel, "_run_checked", refuse)


def test_half_is_used_where_it_agrees(rt: Runtime) -> None:
    feeds = {"x": noise(2, 3, 17, 13)}
    (want,) = run_in_fp32(rt, classifier(), feeds)
    with open_auto(rt, classifier(), tolerance=0.05) as session:
        assert session.precision_policy.precision is Precision.FP32  # nothing is known yet
        (first,) = session.run(None, feeds)
        np.testing.assert_array_equal(first, want)
        assert session.precision_policy.precision is Precision.FP16
        got = [session.run(None, feeds)[0] for _ in range(20)]
        differences = [relative_difference(g, want) for g in got]
        assert 0 < max(differences) <= 0.05
        assert [i + 2 for i, d in enumerate(differences) if d == 0] == [2, 4, 8, 16]  # checked: computed in fp32 too
        explained = session.explain()
        assert "f16" in {n.name: n.places[0] for n in explained.nodes}["conv1"]
        text = str(explained)
        assert "precision: auto, tolerance 0.05" in text
        assert "half storage wherever no rule keeps fp32; outputs differ from fp32 by at most" in text
        assert "at output 'y'" in text


def test_a_policy_is_found_where_it_does_not(rt: Runtime) -> None:
    feeds = {"x": noise(1, 4, 5, 5)}
    with open_auto(rt, lifted(3000.0)) as session:
        (first,) = session.run(None, feeds)
        np.testing.assert_allclose(first, feeds["x"], atol=1e-3)
        assert session.settle()
        for _ in range(6):
            (got,) = session.run(None, feeds)
            assert relative_difference(got, first) <= 1e-3
        policy = session.precision_policy
        assert policy.precision is Precision.FP16
        assert {"b", "c"} & set(policy.fp32)
        text = str(session.explain())
        assert "nodes that keep fp32:" in text
        assert "with every node in half they differ by" in text
        assert not session.overflowed


def test_overflow_is_found_by_the_check(rt: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    with open_auto(rt, towering()) as session, caplog.at_level(logging.WARNING):
        for _ in range(2):
            np.testing.assert_allclose(session.run(None, {"x": ONES})[0], ONES, rtol=1e-4)
        assert session.settle()
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x": ONES})[0], ONES, rtol=1e-3)
        assert set(session.precision_policy.fp32) == {"b", "c", "d"}
        assert "half overflows" in str(session.explain())
    assert not caplog.records  # a trial that fails is no news


def test_no_policy_leaves_float32(rt: Runtime) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], name="only")
    model = make_model([conv], [port("x", [1, 4, 5, 5])], [port("y", None)], {"w": noise(4, 4, 1, 1)})
    with open_auto(rt, model, tolerance=1e-9) as session:
        session.run(None, {"x": noise(1, 4, 5, 5)})
        session.settle()
        assert session.precision_policy.precision is Precision.FP32
        assert "no part of the" in str(session.explain())


@pytest.mark.parametrize(
    ("model", "feeds"),
    [(classifier(), {"x": noise(1, 3, 9, 7)}), (lifted(3000.0), {"x": noise(1, 4, 5, 5)})],
    ids=["half", "policy"],
)
def test_a_later_session_starts_with_what_was_kept(
    rt: Runtime, model: Any, feeds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_auto(rt, model, tolerance=0.01) as session:
        session.run(None, feeds)
        session.settle()
        session.run(None, feeds)
        want = session.precision_policy
        assert want.precision is Precision.FP16
    forbid_checks(monkeypatch)
    with open_auto(rt, model, tolerance=0.01) as session:
        assert session.precision_policy == want
        (got,) = session.run(None, feeds)
        assert 0 < relative_difference(got, run_in_fp32(rt, model, feeds)[0]) <= 0.01
        assert "kept in the cache folder since an earlier session" in str(session.explain())
    with open_auto(rt, model, tolerance=0.02) as session, pytest.raises(AssertionError, match="was checked"):
        session.run(None, feeds)  # another tolerance is another question


def kept_file(folder: Path) -> Path:
    (path,) = (folder / "precision").glob("*/*.json")
    return path


@pytest.mark.parametrize("damage", ["truncated", "bits", "garbage", "version", "foreign", "binary", "policy", "list"])
def test_a_damaged_choice_is_dropped(
    rt: Runtime, own_cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    feeds = {"x": noise(1, 3, 9, 7)}
    with open_auto(rt, classifier(), tolerance=0.01) as session:
        session.run(None, feeds)
    path = kept_file(own_cache)
    text = path.read_text()
    raw = json.loads(text)
    raw["choice"]["policy"] = raw["choice"]["policy"].replace("fp16", "fp17")
    path.write_bytes(
        {
            "truncated": text[: len(text) // 2].encode(),
            "bits": text.replace('\\"fp16\\"', '\\"fp32\\"').encode(),
            "garbage": b"{}",
            "version": text.replace('"version": 1', '"version": 0').encode(),
            "foreign": text.replace(path.stem, "0" * 64).encode(),
            "binary": b"\xff\xfe\x00",
            "policy": json.dumps(raw).encode(),
            "list": b"[1, 2]",
        }[damage]
    )
    assert path.read_bytes() != text.encode()
    with open_auto(rt, classifier(), tolerance=0.01) as session, caplog.at_level(logging.WARNING):
        (got,) = session.run(None, feeds)
    np.testing.assert_array_equal(got, run_in_fp32(rt, classifier(), feeds)[0])  # it was checked anew
    assert path.read_text() == text


def test_a_choice_that_cannot_be_read_is_told(rt: Runtime, own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = PrecisionChoiceCache(own_cache, "ab" * 32)
    cache.path.parent.mkdir(parents=True)
    cache.path.write_text("nonsense")
    with caplog.at_level(logging.WARNING):
        assert cache.load() is None
    assert "removed choice abababababab" in caplog.text
    assert not cache.path.exists()


def test_later_inputs_are_checked_and_answered_right(
    rt: Runtime, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_auto(rt, lifted()) as session:
        session.run(None, feeds_of(0.0))
        assert session.precision_policy.precision is Precision.FP16
        assert not session.precision_policy.fp32
        with caplog.at_level(logging.WARNING):
            (got,) = session.run(None, feeds_of(3000.0))  # the second run is checked
        np.testing.assert_allclose(got, feeds_of(0.0)["x"], atol=1e-3)
        assert "the session switches to fp32" in caplog.text
        assert '\\"precision\\": \\"fp16\\"' not in kept_file(own_cache).read_text() or session.settle(0)
        for _ in range(2):
            (got,) = session.run(None, feeds_of(3000.0))
            np.testing.assert_allclose(got, feeds_of(0.0)["x"], atol=3e-3)
        session.settle()
        (got,) = session.run(None, feeds_of(3000.0))
        np.testing.assert_allclose(got, feeds_of(0.0)["x"], atol=3e-3)
        assert session.precision_policy.fp32
        assert "nodes that keep fp32" in str(session.explain())


def test_overflow_between_checks_gives_the_choice_up(rt: Runtime) -> None:
    with open_auto(rt, towering(16.0), tolerance=0.01) as session:
        for scale in (1.0, 1.0, 300.0):  # the third run is not checked
            (got,) = session.run(None, {"x": ONES * scale})
            np.testing.assert_allclose(got, ONES * scale, rtol=1e-2)
        session.settle()
        assert session.precision_policy.fp32
        (got,) = session.run(None, {"x": ONES * 300})
        np.testing.assert_allclose(got, ONES * 300, rtol=1e-2)


def test_every_size_of_inputs_is_checked_once(rt: Runtime) -> None:
    with open_auto(rt, lifted(), tolerance=0.01) as session:
        for batch in (1, 3, 3, 3, 1):
            feeds = feeds_of(1.0, batch=batch)
            (got,) = session.run(None, feeds)
            assert relative_difference(got, feeds["x"]) <= 0.01
        assert "in checks on inputs of 2 sizes" in str(session.explain())
    with open_auto(rt, lifted(), tolerance=0.01) as session:
        feeds = feeds_of(2000.0, batch=2)  # kept for other sizes, and not believed for this one
        (got,) = session.run(None, feeds)
        np.testing.assert_allclose(got, feeds["x"], atol=1e-3)
        assert session.precision_policy.precision is Precision.FP32
        session.settle()


def test_made_up_inputs_decide_nothing(rt: Runtime, own_cache: Path) -> None:
    with open_auto(rt, lifted(0.0)) as session:
        assert "fp32 until half was compared" in str(session.explain())
        session.keeps_precision = False
        session.run(None, {"x": noise(1, 4, 5, 5)})
        assert session.precision_policy.precision is Precision.FP16
    assert not list((own_cache / "precision").glob("*/*.json"))


def test_half_must_be_faster(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = {"x": noise(1, 3, 9, 7)}
    monkeypatch.delenv("OPALITE_TRY_HALF")
    monkeypatch.setattr(auto_model, "why_not_half", lambda device: "")
    for times, precision, said in (((2e-3, 1e-3), "fp32", "not faster"), ((1e-3, 2e-3), "fp16", "in fp32 2")):
        monkeypatch.setattr(auto_model, "least_interleaved_seconds", lambda half, wide, times=times, **_: times)
        with open_auto(rt, classifier(), tolerance=times[0] * 10) as session:
            session.run(None, feeds)
            assert session.precision_policy.precision.value == precision
            assert said in str(session.explain())


def test_a_policy_must_be_faster(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPALITE_TRY_HALF")
    monkeypatch.setattr(auto_model, "why_not_half", lambda device: "")
    monkeypatch.setattr(
        "opalite.run.precision.background_policy_search.least_interleaved_seconds",
        lambda half, wide, **_: (half() and 2.0, wide() and 1.0),
    )
    with open_auto(rt, towering()) as session:
        session.run(None, {"x": ONES})
        session.settle()
        assert session.precision_policy.precision is Precision.FP32
        assert "a run takes 2e+03 ms then, in fp32 1e+03" in str(session.explain())


def test_a_device_without_fast_halves_keeps_float32(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPALITE_TRY_HALF")
    if rt.info.fast_half:
        pytest.skip("the device has fast halves")
    with open_auto(rt, classifier()) as session:
        session.run(None, {"x": noise(1, 3, 9, 7)})
        assert not session.chooses_precision
        assert "fp32 in all nodes: half storage brings nothing on a CPU" in str(session.explain())


def test_models_that_draw_are_not_compared(rt: Runtime) -> None:
    node = helper.make_node("RandomUniformLike", ["x"], ["r"])
    add = helper.make_node("Add", ["x", "r"], ["y"])
    with open_auto(rt, make_model([node, add], [port("x", [4])], [port("y", [4])])) as session:
        session.run(None, {"x": np.zeros(4, np.float32)})
        assert session.precision_policy.precision is Precision.FP32
        assert "draws random numbers" in str(session.explain())


def test_segments_and_lists_are_compared(rt: Runtime) -> None:
    feeds = {"x": noise(300, 24)}
    (want,) = run_in_fp32(rt, chosen_rows(), feeds)
    with open_auto(rt, chosen_rows(), tolerance=0.02) as session:
        for _ in range(3):
            (got,) = session.run(None, feeds)
            session.settle()
            assert got.shape == want.shape
            assert relative_difference(got, want) <= 0.02
        assert "fp32 until" not in str(session.explain())
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("SequenceConstruct", ["a", "x"], ["y"]),
    ]
    y = helper.make_tensor_sequence_value_info("y", 1, None)
    model = make_model(nodes, [port("x", [1, 4, 5, 5])], [y], {"w": noise(4, 4, 1, 1)})
    with open_auto(rt, model, tolerance=0.02) as session:
        for _ in range(3):
            (found,) = session.run(None, {"x": ONES})
            assert len(found) == 2
        assert session.precision_policy.precision is Precision.FP16


def test_bound_memory(rt: Runtime) -> None:
    feeds = {"x": noise(1, 3, 9, 7)}
    (want,) = run_in_fp32(rt, classifier(), feeds)
    with open_auto(rt, classifier(), tolerance=0.01) as session:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(feeds["x"], "opencl"))
        binding.bind_output("y", "opencl")
        for _ in range(6):
            session.run_with_iobinding(binding)
            (got,) = binding.copy_outputs_to_cpu()
            assert relative_difference(got, want) <= 0.01
        assert session.precision_policy.precision is Precision.FP16
    with open_auto(rt, lifted(3000.0)) as session:
        binding = session.io_binding()
        x = noise(1, 4, 5, 5)
        binding.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(x, "opencl"))
        binding.bind_output("y", "opencl")
        for _ in range(4):
            session.run_with_iobinding(binding)
            np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], x, atol=4e-3)
            session.settle()
        assert session.precision_policy.fp32


def test_closing_stops_the_search_and_running_begins_anew(rt: Runtime) -> None:
    session = open_auto(rt, towering())
    session.run(None, {"x": ONES})
    session.close()
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": ONES})[0], ONES, rtol=1e-3)
        session.settle()
    assert session.precision_policy.fp32
    session.close()
    np.testing.assert_allclose(session.run(None, {"x": ONES})[0], ONES, rtol=1e-3)
    assert session.precision_policy.fp32


def test_many_threads_run_one_session(rt: Runtime) -> None:
    wrong: list[Any] = []
    with open_auto(rt, towering()) as session:

        def work() -> None:
            for _ in range(10):
                (got,) = session.run(None, {"x": ONES})
                wrong.extend([got] if relative_difference(got, ONES) > 1e-3 else [])

        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong
        session.settle()


def test_a_pickled_session_keeps_its_tolerance(rt: Runtime) -> None:
    with open_auto(rt, classifier(), tolerance=0.03) as session:
        again = pickle.loads(pickle.dumps(session))
        assert "tolerance 0.03" in "\n".join(again.explain_precision())


@pytest.mark.parametrize("bad", [0, -1, "x", float("nan"), float("inf"), True])
def test_a_tolerance_that_is_none(rt: Runtime, bad: Any) -> None:
    with pytest.raises(InputError, match="is not a number above 0"):
        open_auto(rt, classifier(), tolerance=bad)


def test_a_process_may_end_while_it_searches(rt: Runtime, tmp_path: Path) -> None:
    model = save(towering(), tmp_path / "tower.onnx")
    script = f"""
    import numpy as np, opalite
    session = opalite.InferenceSession({model!r}, device={rt.info.id!r}, precision="auto")
    y, = session.run(None, {{"x": np.ones((1, 4, 5, 5), np.float32)}})
    assert abs(y - 1).max() < 1e-3
    print("searching" in str(session.explain_precision()) or session.precision_policy)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr  # a driver may have words of its own there


def test_a_later_process_needs_neither_onnx_nor_passes(
    rt: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    model = save(lifted(3000.0), tmp_path / "m.onnx")
    with opalite.InferenceSession(model, device=rt.info.id, precision="auto") as session:
        for _ in range(2):
            session.run(None, {"x": ONES})
            session.settle()
    script = f"""
    import sys
    sys.modules["onnx"] = None
    import numpy as np, opalite
    session = opalite.InferenceSession({model!r}, device={rt.info.id!r}, precision="auto")
    y, = session.run(None, {{"x": np.ones((1, 4, 5, 5), np.float32)}})
    assert 0 <= abs(y - 1).max() < 1e-3
    assert session.precision_policy.fp32
    print(*(p for p in ("passes", "kernels", "ops", "importer") if f"opalite.{{p}}" in sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_a_model_that_is_replaced_is_not_mixed_with_the_old(rt: Runtime, tmp_path: Path) -> None:
    path = save(lifted(0.0), tmp_path / "m.onnx")
    with open_auto(rt, path) as session:
        save(towering(3.0), path)  # before half was opened
        (got,) = session.run(None, {"x": ONES})
        np.testing.assert_allclose(got, ONES, rtol=1e-5)
        assert "was replaced since the session was opened" in str(session.explain())


def test_a_bundle_is_compiled_by_what_its_inputs_show(rt: Runtime, tmp_path: Path) -> None:
    steps: list[str] = []
    for inputs, expected in (({"x": ONES}, "auto"), (None, "random numbers for x")):
        opalite.compile(
            towering().SerializeToString(),
            tmp_path / "t.opal",
            device=rt.info.id,
            precision="auto",
            inputs=inputs,
            report=steps.append,
        )
        with opalite.InferenceSession(tmp_path / "t.opal", device=rt.info.id) as session:
            np.testing.assert_allclose(session.run(None, {"x": ONES})[0], ONES, rtol=1e-3)
            text = str(session.explain())
        assert "b, c, d: its values reach" in text
        assert expected in text
        assert expected in steps[-1]
    with pytest.raises(InputError, match="an input is given for 'z', but the model's inputs are x"):
        opalite.compile(classifier().SerializeToString(), tmp_path / "t.opal", inputs={"z": ONES})


def test_commands(rt: Runtime, tmp_path: Path) -> None:
    model, x = save(towering(), tmp_path / "tower.onnx"), tmp_path / "x.npy"
    np.save(x, ONES)

    def call(command: str, *more: str) -> str:
        result = CliRunner().invoke(main, [command, model, "--precision", "auto", "--device", rt.info.id, *more])
        assert result.exit_code == 0, result.output
        return result.output

    text = call("run", "--iterations", "1")
    assert "chosen on random numbers for x, so it is not kept" in text
    text = call("run", "--iterations", "1", "-i", str(x))
    assert "half storage but for 3 of 5 nodes" in text
    assert "b, c, d: its values reach 9e+04" in text
    assert "kept in the cache" not in text
    assert "kept in the cache folder since an earlier session" in call("inspect")
    assert "half storage but for 3 of 5" in call("verify", "-i", str(x))
    assert "half storage but for 3 of 5" in call("compile", str(tmp_path / "t.opal"), "-i", str(x))
    text = call("run", "--iterations", "1", "-i", str(x), "--tolerance", "0.1")
    assert "tolerance 0.1" in text


def test_onnxruntimes_options_of_a_provider(rt: Runtime) -> None:
    options = {"device": rt.info.id, "precision": "auto", "tolerance": "0.04"}
    session = opalite.InferenceSession(
        classifier().SerializeToString(), providers=[("OpenCLExecutionProvider", options)]
    )
    assert "tolerance 0.04" in session.explain_precision()[0]
    with pytest.raises(InputError, match="tolerance '-1' is not a number above 0"):
        opalite.InferenceSession(
            classifier().SerializeToString(),
            providers=["OpenCLExecutionProvider"],
            provider_options=[{"tolerance": -1}],
        )
