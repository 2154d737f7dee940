"""Sessions with onnxruntime's options, where a comparison with onnxruntime (tests/dropin) does not reach."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime
from opalite.errors import InputTypeError, OptionError, PlacementError, TerminatedError

from .....helpers.small_models import adder, classifier, make_model, noise, port


def options(**settings: Any) -> opalite.SessionOptions:
    made = opalite.SessionOptions()
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def by_data() -> Any:
    """z = the rows of x that are not zero, doubled: two segments."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "two"], ["z"]),
    ]
    return make_model(nodes, [port("x", ["n"])], [port("z", [1, "m"])], {"two": np.float32(2)})


def doubler() -> Any:
    """y = 2 x of [n, 3]."""
    node = helper.make_node("Mul", ["x", "two"], ["y"])
    return make_model([node], [port("x", ["n", 3])], [port("y", ["n", 3])], {"two": np.float32(2)})


def test_kept_plans_belong_to_their_initializers(tmp_path: Path, rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    model, x = doubler().SerializeToString(), noise(2, 3)
    for _ in range(2):  # the second time by kept plans
        for factor in (None, 5, 7):
            told = opalite.SessionOptions()
            if factor is not None:
                told.add_initializer("two", opalite.OrtValue.ortvalue_from_numpy(np.array(factor, np.float32)))
            found = opalite.InferenceSession(model, told, device=rt.info.id).run(None, {"x": x})[0]
            np.testing.assert_allclose(found, x * (factor or 2), rtol=1e-6)
    assert len(list(tmp_path.rglob("*.opal"))) == 3


def test_a_bundle_is_written(tmp_path: Path, rt: Runtime) -> None:
    told = options(optimized_model_filepath=str(tmp_path / "m.opal"))
    for symbol, size in (("N", 2), ("H", 8), ("W", 8)):
        told.add_free_dimension_override_by_name(symbol, size)
    session = opalite.InferenceSession(classifier().SerializeToString(), told, device=rt.info.id)
    assert session.get_inputs()[0].shape == [2, 3, 8, 8]
    x = noise(2, 3, 8, 8)
    bundle = opalite.InferenceSession(tmp_path / "m.opal", device=rt.info.id)
    np.testing.assert_allclose(bundle.run(None, {"x": x})[0], session.run(None, {"x": x})[0], rtol=1e-5)
    with pytest.raises(OptionError, match="is compiled: sizes and initializers are given where"):
        opalite.InferenceSession(tmp_path / "m.opal", told)


def test_a_run_is_called_off_between_segments(rt: Runtime) -> None:
    session = opalite.InferenceSession(by_data().SerializeToString(), device=rt.info.id)
    x = np.array([0, 5, 0, 7], np.float32)
    run_options = opalite.RunOptions()
    np.testing.assert_array_equal(session.run(None, {"x": x}, run_options)[0], [[2, 6]])
    checks = iter([False, False, True])

    class Late(opalite.RunOptions):
        terminate = property(lambda self: next(checks))  # type: ignore[assignment]

    with pytest.raises(TerminatedError, match="Exiting due to terminate flag"):
        session.run(None, {"x": x}, Late())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [[2, 6]])


def test_a_profile_names_nodes_and_kernels(tmp_path: Path, rt: Runtime) -> None:
    told = options(enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
    session = opalite.InferenceSession(classifier().SerializeToString(), told, device=rt.info.id)
    x = noise(1, 3, 8, 8)
    want = session.run(None, {"x": x})[0]
    session.run(None, {"x": x})
    profile = session.profile({"x": x}, iterations=2)  # its own recorder, for a while
    assert profile.runs == 2
    session.run(None, {"x": x})
    events = json.loads(Path(session.end_profiling()).read_text())
    nodes = [e for e in events if e["cat"] == "Node"]
    assert any("conv1" in e["name"] for e in nodes)
    assert len([e for e in events if e["name"] == "model_run"]) >= 3
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-5)
    assert session.end_profiling() == ""


def test_two_profiles_of_one_second_have_two_files(tmp_path: Path, rt: Runtime) -> None:
    told = options(enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
    names = {opalite.InferenceSession(adder().SerializeToString(), told).end_profiling() for _ in range(3)}
    assert len(names) == len(list(tmp_path.iterdir())) == 3


def test_a_profile_that_cannot_be_written(tmp_path: Path, rt: Runtime) -> None:
    told = options(enable_profiling=True, profile_file_prefix=str(tmp_path / "not there" / "p"))
    with pytest.raises(OptionError, match=r"the profile cannot be written to .*set profile_file_prefix"):
        opalite.InferenceSession(doubler().SerializeToString(), told).end_profiling()


def test_an_entry_makes_it_strict(rt: Runtime) -> None:
    told = opalite.SessionOptions()
    told.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = opalite.InferenceSession(by_data().SerializeToString(), told, device=rt.info.id)
    with pytest.raises(PlacementError, match="strict mode rejects nodes"):
        session.run(None, {"x": noise(3)})


def test_options_of_the_provider(rt: Runtime) -> None:
    own = {"device": rt.info.id, "precision": "fp16", "memory": "buffer"}
    session = opalite.InferenceSession(adder().SerializeToString(), providers=[("OpenCLExecutionProvider", own)])
    assert session.get_provider_options()["OpenCLExecutionProvider"] == own
    assert session.device.id == rt.info.id
    again = pickle.loads(pickle.dumps(session))
    assert again.get_provider_options() == session.get_provider_options()


@pytest.mark.filterwarnings("ignore:Specified provider")
@pytest.mark.parametrize("providers", [["Nope"], [("OpenCLExecutionProvider", {"device": "no such device"})]], ids=str)
def test_a_failed_set_providers_leaves_the_session(rt: Runtime, providers: Any) -> None:
    session, x = opalite.InferenceSession(doubler().SerializeToString(), device=rt.info.id), noise(2, 3)
    with pytest.raises(opalite.OpaliteError):
        session.set_providers(providers)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 2 * x)
    assert session.device.id == rt.info.id


def test_keywords_that_are_not_there(rt: Runtime) -> None:
    with pytest.raises(TypeError, match="devise"):
        opalite.InferenceSession(adder().SerializeToString(), devise="gpu")  # type: ignore[call-arg]
    with pytest.raises(InputTypeError, match=r"got ModelProto; pass model.SerializeToString\(\)"):
        opalite.InferenceSession(adder())


def test_seeded_runs_repeat_across_sessions(rt: Runtime) -> None:
    node = helper.make_node("RandomUniform", [], ["y"], shape=[64], seed=3.0)
    model = make_model([node], [], [port("y", [64])]).SerializeToString()
    sessions = [opalite.InferenceSession(model, device=rt.info.id) for _ in range(2)]
    first, second = ([s.run(None, {})[0] for _ in range(3)] for s in sessions)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[1], first[2])


def test_memory_of_other_libraries_is_not_taken_for_opencls(rt: Runtime) -> None:
    if rt.info.on_host:
        pytest.skip("'cuda' means a GPU")
    session = opalite.InferenceSession(adder().SerializeToString(), device=rt.info.id)
    with pytest.raises(opalite.BindingError, match=r"is not from OrtValue.data_ptr\(\)"):
        session.io_binding().bind_input(session.get_inputs()[0].name, "cuda", 0, np.float32, (2, 3), 0x7F0000000000)
