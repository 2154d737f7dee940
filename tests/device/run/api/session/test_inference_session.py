"""InferenceSession as a user meets it: feeds, outputs, many sizes, threads, what is shared and what is released.

Longer than 400 lines: cases that do not know each other.
"""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import TensorProto, helper
from opalite.cl.runtime import Runtime
from opalite.errors import InputError, PlacementError
from opalite.importer.walk.segments import SEGMENTS_KEPT
from opalite.run.execute.executable import Executable

from .....helpers.counters import settled, spent
from .....helpers.onnx_text import by_onnxruntime
from .....helpers.small_models import adder, classifier, determinant, inverter, make_model, noise, port, save

Open = Callable[..., opalite.InferenceSession]
PREPARED = ("programs_built", "programs_loaded", "kernels_made", "memory_objects", "args_set")
"""Counters of what a steady state does not do."""


@pytest.fixture
def open_session(rt: Runtime) -> Open:
    """Opens sessions on the device under test, in float32."""

    def open_(model: Any, **options: Any) -> opalite.InferenceSession:
        source = model if isinstance(model, (str, Path, bytes)) else model.SerializeToString()
        return opalite.InferenceSession(source, **{"device": rt.info.id, "precision": "fp32", **options})

    return open_


def close_to(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# Steady state and new sizes


def test_only_a_run_can_be_repeated(open_session: Open) -> None:
    session = open_session(inverter())
    with pytest.raises(InputError, match=r"the model has not run yet; run it once"):
        session.replay()
    session.run(None, {"x": noise(1, 3, 8, 8)})
    assert session.replay() > 0
    session.close()
    with pytest.raises(InputError, match=r"the model has not run yet"):
        session.replay()


def test_a_second_run_prepares_nothing(rt: Runtime, open_session: Open) -> None:
    session = open_session(classifier())
    feeds = {"x": noise(2, 3, 17, 13)}
    session.run(None, feeds)
    settled(rt)
    session.run(None, feeds)  # sets the arguments of what replaced the generic programs
    done = spent(rt, lambda: session.run(None, feeds))
    assert {name: getattr(done, name) for name in PREPARED} == dict.fromkeys(PREPARED, 0)
    assert done.enqueues == session.explain().launches
    assert done.transfers == 2


def test_results_match_onnxruntime_at_every_size(open_session: Open) -> None:
    model = classifier()
    session = open_session(model)
    for shape in ((1, 3, 16, 16), (2, 3, 16, 16), (1, 3, 17, 23), (3, 3, 5, 40), (1, 3, 16, 16)):
        x = noise(*shape)
        close_to(session.run(None, {"x": x})[0], by_onnxruntime(model, {"x": x})[0])


def chain_of_maps() -> Any:
    ops = ("Relu", "Exp", "Tanh", "Neg")
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], name=op) for i, op in enumerate(ops)]
    return make_model(nodes, [port("v0", ["n", "m"])], [port("v4", None)])


def reduction() -> Any:
    node = helper.make_node("ReduceSum", ["v0", "axes"], ["y"], name="sum")
    return make_model([node], [port("v0", ["n", "m"])], [port("y", None)], {"axes": np.array([1])})


def product() -> Any:
    node = helper.make_node("MatMul", ["v0", "w"], ["y"], name="product")
    return make_model([node], [port("v0", ["n", "m"])], [port("y", None)], {"w": noise(24, 40)})


def softmax() -> Any:
    return make_model([helper.make_node("Softmax", ["v0"], ["y"])], [port("v0", ["n", "m"])], [port("y", None)])


@pytest.mark.parametrize("make", [chain_of_maps, reduction, product, softmax])
def test_a_new_batch_builds_no_program(rt: Runtime, open_session: Open, make: Callable[[], Any]) -> None:
    session = open_session(make())
    session.run(None, {"v0": noise(512, 24)})
    done = spent(rt, lambda: session.run(None, {"v0": noise(768, 24)}))
    assert (done.programs_built, done.programs_loaded) == (0, 0)
    assert done.kernels_made == 0  # the same ones take other arguments


def test_a_new_size_builds_only_what_its_tiles_change(rt: Runtime, open_session: Open) -> None:
    """A program depends on the kernel and its parameters, not on the tensor's size; Winograd has three."""
    open_session(inverter((1, 3))).run(None, {"x": noise(1, 3)})  # builds the device's own probes
    session = open_session(classifier())
    known: set[Any] = set()
    for height, width in ((32, 32), (48, 64), (20, 96), (33, 32), (64, 64)):
        done = spent(rt, lambda h=height, w=width: session.run(None, {"x": noise(1, 3, h, w)}))  # type: ignore[misc]
        used = {(n.kernel, n.name, tuple(n.params.items())) for n in session.explain().nodes if n.kernel}
        most = sum(3 if kernel == "ConvWinograd" else 1 for kernel, _, _ in used - known)
        assert done.programs_built + done.programs_loaded <= most
        known |= used


def test_sizes_that_change_every_run_leak_nothing(open_session: Open) -> None:
    session = open_session(inverter(("n", "m")))
    alive: list[weakref.ref[Executable]] = []
    for n in range(1, SEGMENTS_KEPT + 12):
        x = noise(n, 3)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], 1 - x)
        alive.append(weakref.ref(session._dispatcher.run_record.executables[0]))
    gc.collect()
    assert len({id(ref()) for ref in alive if ref() is not None}) <= SEGMENTS_KEPT
    session.close()
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_what_the_host_ran_between_segments_is_released_too(open_session: Open) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"], name="where"),
        helper.make_node("Neg", ["i"], ["y"], name="neg"),
    ]
    session = open_session(make_model(nodes, [port("x", ["n"])], [port("y", None, TensorProto.INT64)]))
    np.testing.assert_array_equal(session.run(None, {"x": [0, 3, 4]})[0], [[-1, -2]])
    source = weakref.ref(session._model)
    assert [n.name for n in session.explain().host_nodes] == ["NonZero node 'where'"]
    del session
    gc.collect()
    assert source() is None


# Feeds


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a[::2, ::-3],
        lambda a: a.T,
        np.asfortranarray,
        lambda a: a[1:1],
        lambda a: a.astype(">f4"),
        lambda a: np.broadcast_to(a[:1], (5, 8)),
    ],
    ids=["strided", "transposed", "column-major", "empty", "big-endian", "broadcast"],
)
def test_any_array_serves(open_session: Open, change: Callable[[Any], Any]) -> None:
    session = open_session(inverter(("n", "m")))
    x = change(noise(6, 8))
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 1 - x.astype(np.float32))
    fixed = x.copy()
    fixed.flags.writeable = False
    np.testing.assert_array_equal(session.run(None, {"x": fixed})[0], 1 - x.astype(np.float32))


def test_lists_and_numbers_serve(open_session: Open) -> None:
    np.testing.assert_array_equal(open_session(inverter(("n", "m"))).run(None, {"x": [[1, -2]]})[0], [[0, 3]])
    np.testing.assert_array_equal(open_session(inverter(())).run(None, {"x": 3})[0], -2)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]),
        helper.make_node("Softmax", ["x"], ["y"], axis=1),
        helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2, 3]),
        helper.make_node("Concat", ["x", "x"], ["y"], axis=0),
        helper.make_node("ReduceSum", ["x"], ["y"]),
        helper.make_node("LayerNormalization", ["x", "scale"], ["y"]),
        helper.make_node("Resize", ["x", "", "scales"], ["y"]),
    ],
    ids=lambda n: n.op_type,
)
def test_an_empty_batch_gives_what_onnxruntime_gives(open_session: Open, node: Any) -> None:
    every = {"w": noise(5, 3, 3, 3), "scale": noise(4), "scales": np.array([1, 1, 2, 2], np.float32)}
    constants = {n: a for n, a in every.items() if n in node.input}
    model = make_model([node], [port("x", ["n", 3, 4, 4])], [port("y", None)], constants)
    x = np.zeros((0, 3, 4, 4), np.float32)
    np.testing.assert_array_equal(open_session(model).run(None, {"x": x})[0], by_onnxruntime(model, {"x": x})[0])


# Outputs


def several_outputs() -> Any:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    outputs = [port("a", ["n"]), port("b", ["n"]), port("x", ["n"]), port("k", [2])]
    return make_model(nodes, [port("x", ["n"])], outputs, {"k": np.array([5, 6], np.float32)})


def test_outputs_in_any_choice_and_order(open_session: Open) -> None:
    session = open_session(several_outputs())
    x = noise(4)
    want = {"a": np.maximum(x, 0), "b": -x, "x": x, "k": np.array([5, 6])}
    for names in (None, ["b", "a", "b"], ["k"], ("x", "k"), []):
        outputs = session.run(names, {"x": x})
        for name, got in zip(names or want, outputs, strict=True):
            np.testing.assert_array_equal(got, want[name])


def test_outputs_belong_to_the_caller(open_session: Open) -> None:
    """Also those that are an input or a constant: changing one changes neither the feed nor a later run."""
    session = open_session(several_outputs())
    x = noise(4)
    first = session.run(None, {"x": x})
    kept = [a.copy() for a in first]
    for array in first:
        array.fill(99)
    assert not np.any(x == 99)
    for got, want in zip(session.run(None, {"x": x}), kept, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("names", [["nope"], "a", 5, {"a": 1}], ids=str)
def test_wrong_output_names(open_session: Open, names: Any) -> None:
    with pytest.raises(InputError, match=r"output.* (are a, b, x, k|a list such as \['a'\])"):
        open_session(several_outputs()).run(names, {"x": noise(4)})


@pytest.mark.parametrize("feeds", [None, [1, 2], "x"], ids=str)
def test_feeds_must_be_a_mapping(open_session: Open, feeds: Any) -> None:
    with pytest.raises(InputError, match=r"a dict \{'x': array\}, got (NoneType|list|str)"):
        open_session(several_outputs()).run(None, feeds)


# Threads, copies, lifetimes


@pytest.mark.parametrize("sessions", [1, 2])
def test_threads_share_sessions(open_session: Open, sessions: int) -> None:
    model = classifier()
    opened = [open_session(model) for _ in range(sessions)]
    arrays = [noise(1 + i % 3, 3, 8, 8, seed=i) for i in range(18)]
    want = [opened[0].run(None, {"x": x})[0] for x in arrays]
    got: list[Any] = [None] * len(arrays)

    def work(k: int) -> None:
        for i in range(k, len(arrays), 6):
            got[i] = opened[k % sessions].run(None, {"x": arrays[i]})[0]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("as_path", [False, True])
def test_a_pickled_session_is_opened_again(open_session: Open, tmp_path: Path, as_path: bool) -> None:
    model = save(classifier(), tmp_path / "m.onnx") if as_path else classifier()
    session = open_session(model)
    copy = pickle.loads(pickle.dumps(session))
    x = noise(1, 3, 8, 8)
    np.testing.assert_array_equal(copy.run(None, {"x": x})[0], session.run(None, {"x": x})[0])
    assert copy.device == session.device


def test_a_closed_session_compiles_again(open_session: Open) -> None:
    x = noise(1, 3, 8, 8)
    with open_session(classifier()) as session:
        want = session.run(None, {"x": x})[0]
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
    session.close()
    session.close()
    assert session.explain({"x": x}).launches > 0


def test_sessions_share_weights(rt: Runtime, open_session: Open) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weight = noise(512, 512, seed=9)
    model = make_model([node], [port("x", ["n", 512])], [port("y", None)], {"w": weight})
    first, second = open_session(model), open_session(model)
    x = noise(2, 512)
    want = first.run(None, {"x": x})[0]
    held = len(rt.weights)
    done = spent(rt, lambda: np.testing.assert_array_equal(second.run(None, {"x": x})[0], want))
    assert done.bytes_allocated < weight.nbytes
    assert len(rt.weights) == held


# What a session tells


def test_names_shapes_and_metadata(open_session: Open, rt: Runtime) -> None:
    session = open_session(classifier())
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["N", 3, "H", "W"])
    assert (y.name, y.shape) == ("y", ["N", 10])
    assert session.get_modelmeta().producer_name == "tests"
    assert session.device is rt.info
    assert session.opset == 18
    assert session.get_providers()[0] == "OpenCLExecutionProvider"
    assert session.get_provider_options()["OpenCLExecutionProvider"]["device"] == rt.info.id


def test_a_device_may_be_one_of_those_listed(rt: Runtime) -> None:
    listed = next(d for d in opalite.devices() if d.id == rt.info.id)
    session = opalite.InferenceSession(adder().SerializeToString(), device=listed)
    assert session.device.id == rt.info.id
    assert pickle.loads(pickle.dumps(session)).device.id == rt.info.id


def test_explain_says_where_and_why(open_session: Open) -> None:
    found = open_session(classifier()).explain({"x": noise(1, 3, 16, 16)})
    conv = found.node("conv1")
    assert conv.origin == "Conv+Relu"
    assert conv.kernel
    assert conv.target == "opencl"
    assert conv.kernel in {name for name, *_ in conv.candidates}
    assert all(seconds > 0 for _, _, seconds, *_ in conv.candidates)
    assert conv.flops >= 2 * 27 * 8 * 16 * 16
    assert conv.refusals["DepthwisePacked"]
    assert found.node("flat").target == "view"
    assert found.node("prob").why
    assert not found.host_nodes
    text = found.details("conv1")
    for word in (conv.kernel, "candidate", "us expected", "refused by DepthwisePacked", "max($0, 0.0"):
        assert word in text
    for word in ("conv1", "Conv+Relu", conv.kernel, "memory: arena", "lower bound"):
        assert word in str(found)
    assert found.node("relu1") is conv
    assert "computes: Conv 'conv1', Relu 'relu1'" in text
    with pytest.raises(KeyError):
        found.node("nowhere")


def test_explain_needs_no_run_before(open_session: Open) -> None:
    session = open_session(inverter())
    assert session.explain().launches == 1
    session.close()
    assert session.explain().launches == 1


def test_strict_names_what_would_run_on_the_host(open_session: Open) -> None:
    with pytest.raises(
        PlacementError, match=r"(?s)strict mode.*Det node 'det': NumPy.*: the operator has no canonical form"
    ):
        open_session(determinant(), strict=True).run(None, {"x": noise(3, 3)})
    found = open_session(determinant()).explain({"x": noise(3, 3)})
    assert [n.name for n in found.host_nodes] == ["det"]
    open_session(classifier(), strict=True).run(None, {"x": noise(1, 3, 8, 8)})


def test_strict_covers_what_runs_between_segments(open_session: Open) -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="where")
    model = make_model([node], [port("x", ["n"])], [port("y", None, TensorProto.INT64)])
    with pytest.raises(PlacementError, match=r"(?s)strict mode.*NonZero node 'where'.*shapes depend on data"):
        open_session(model, strict=True).run(None, {"x": noise(3)})


def test_profile_sums_what_was_launched(open_session: Open) -> None:
    session = open_session(classifier())
    profile = session.profile({"x": noise(1, 3, 16, 16)}, iterations=3)
    launches = session.explain().launches
    assert profile.runs == 3
    assert len(profile.wall_s) == 3
    assert len(profile.records) == 3 * launches
    nodes, kernels = profile.by_node(), profile.by_kernel()
    assert sum(r.launches for r in nodes) == sum(r.launches for r in kernels) == launches
    assert sum(r.share for r in nodes) == pytest.approx(1)
    assert sum(r.share for r in kernels) == pytest.approx(1)
    assert sum(r.flops for r in nodes) == pytest.approx(sum(r.flops for r in kernels))
    assert profile.device_s > 0
    assert all(r.times.queued <= r.times.submitted <= r.times.start <= r.times.end for r in profile.records)
    assert profile.peaks is not None
    assert profile.peaks.flops > 0
    assert profile.peaks.bandwidth > 0


def test_a_model_without_launches_can_be_profiled(open_session: Open) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    session = open_session(make_model([node], [port("x", [2])], [port("y", [2])]))
    profile = session.profile({"x": noise(2)}, iterations=2)
    assert (profile.device_s, profile.by_node(), len(profile.wall_s)) == (0, [], 2)


def test_times_of_a_run_add_up(open_session: Open) -> None:
    session = open_session(classifier())
    session.run(None, {"x": noise(1, 3, 16, 16)})
    first = session.last_timing
    assert first.build_s > 0
    assert first.first_s >= first.total_s > 0
    session.run(None, {"x": noise(1, 3, 16, 16)})
    t = session.last_timing
    assert t.build_s == 0
    assert 0 < t.upload_s + t.compute_s + t.download_s + t.host_s + t.import_s <= t.total_s
    assert t.first_s == first.first_s
