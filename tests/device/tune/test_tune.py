"""Tuning on a real device: results stay, entries serve later sessions, and what computes something else is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import opalite
from onnx import TensorProto, helper, numpy_helper
from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.cl.runtime import Runtime
from opalite.cli import main
from opalite.errors import InputError
from opalite.expr.trace_function import call
from opalite.ir import DeviceInfo, DType, Node
from opalite.ir.device.device_family import FEW_EVENTS, TIMER_OUTLIERS
from opalite.kernel.testing.single_node import make_node
from opalite.kernels.kernel import Kernel, Params, Problem, flat_binding, kernels_for
from opalite.kernels.launch import Launch
from opalite.run.api.session.compile_bundle import compile_model
from opalite.run.execute import single_node_executable
from opalite.run.execute.executable import Executable
from opalite.tune import measure_candidates, tuned_planning, tuning_levels
from opalite.tune.measure_candidates import NodeBench
from opalite.tune.tuner import Progress
from opalite.tune.tuning_database import open_database
from opalite.tune.tuning_levels import BUDGETS, Budget, KernelCandidate, Level, Trial
from opalite.tune.tuning_report import State

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)
X = RNG.standard_normal((1, 3, 29, 31)).astype(np.float32)


def conv_model() -> bytes:
    """Two convolutions, a pooling and a product, with prime sizes."""

    def noise(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32) / float(np.prod(shape[1:])), name)

    weights = [noise("w1", 17, 3, 3, 3), noise("w2", 19, 17, 3, 3), noise("w3", 19, 11)]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], name="second"),
        helper.make_node("GlobalAveragePool", ["c"], ["d"], name="pool"),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("MatMul", ["e", "w3"], ["y"], name="product"),
    ]
    info = helper.make_tensor_value_info
    ends = [info("x", TensorProto.FLOAT, X.shape)], [info("y", TensorProto.FLOAT, [1, 11])]
    graph = helper.make_graph(nodes, "small", *ends, weights)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


MODEL = conv_model()


@pytest.fixture(autouse=True)
def short_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(BUDGETS, Level.FAST, Budget(0.6, 6.0))
    monkeypatch.delenv("OPALITE_TUNE", raising=False)


@pytest.fixture
def untuned() -> Array:
    with opalite.InferenceSession(MODEL, precision="fp32") as session:
        return np.asarray(session.run(None, {"x": X})[0])


@pytest.fixture
def no_measuring(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as m:
        m.setattr(tuned_planning, "NodeBench", lambda *a: pytest.fail("measured again"))
        m.setattr(tuned_planning, "compare_programs", lambda *a: pytest.fail("compared again"))
        yield


def test_a_tuned_session_gives_the_same_results_and_leaves_entries(untuned: Array) -> None:
    session = opalite.InferenceSession(MODEL, precision="fp32", tune="fast")
    (got,) = session.run(None, {"x": X})
    np.testing.assert_allclose(got, untuned, rtol=1e-4, atol=1e-4 * np.abs(untuned).max())
    assert session.last_timing.tune_s > 0
    (report,) = session.tunings
    assert {name for x in report.layers for name in x.names} >= {"first", "second"}
    assert {x.state for x in report.layers} <= {State.MEASURED, State.NOT_REACHED}
    assert not any(x.wrong for x in report.layers), "every kernel computes the same"
    assert not any(x.refused for x in report.layers), "nothing is tried that this device does not run"
    assert report.verdict is not None
    assert len(list(open_database().entries())) >= len([x for x in report.layers if x.state is State.MEASURED])


def kernels_of(session: opalite.InferenceSession) -> list[tuple[str, str | None, Any]]:
    """Name, kernel and parameters of each node; the numbers in the names of casts tell how many were tried."""
    return [(re.sub(r"~\d+", "~", n.name), n.kernel, n.params) for n in session.explain().nodes]


@pytest.mark.parametrize("level", ["fast", None])
def test_later_sessions_use_entries_without_measuring(
    level: str | None, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_planning, "compare_programs", lambda *a: (2.0, 1.0, 0.5))  # tuned counts as faster
    first = opalite.InferenceSession(MODEL, precision="fp32", tune="fast")
    (want,) = first.run(None, {"x": X})
    request.getfixturevalue("no_measuring")
    session = opalite.InferenceSession(MODEL, precision="fp32", tune=level)
    (got,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(got, want)
    assert session.last_timing.tune_s == 0
    measured = [n for n in session.explain().nodes if n.measured]
    assert measured
    assert all("measured" in n.why for n in measured)
    assert kernels_of(session) == kernels_of(first)


def test_tune_reports_progress_and_goes_on_after_an_interruption(
    untuned: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUDGETS, Level.FAST, Budget(0.6, math.inf))  # a simulator, too, gets to the second layer
    session = opalite.InferenceSession(MODEL, precision="fp32")
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if progress.done == 1 and progress.trials == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.tune({"x": X}, "fast", stop)
    assert len(session.tunings[0].layers) == 1
    assert list(open_database().entries())
    np.testing.assert_allclose(session.run(None, {"x": X})[0], untuned, rtol=1e-4, atol=1e-5)
    (report,) = session.tune({"x": X}, "fast", seen.append)
    assert report.layers[0].state in (State.KNOWN, State.MEASURED)
    assert seen[-1].done == seen[-1].total


def test_a_bundle_cannot_be_tuned_but_is_compiled_tuned(tmp_path: Path, untuned: Array) -> None:
    path = tmp_path / "small.opal"
    compile_model(MODEL, path, precision="fp32", tune="fast")
    with opalite.InferenceSession(path) as session:
        np.testing.assert_allclose(session.run(None, {"x": X})[0], untuned, rtol=1e-4, atol=1e-5)
        with pytest.raises(InputError, match="tune while compiling"):
            session.tune({"x": X})


def test_the_command_reports_each_layer_and_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(MODEL)
    result = CliRunner().invoke(main, ["tune", str(path), "--precision", "fp32"])
    assert result.exit_code == 0, result.output
    for word in ("first", "second", "gain", "kernels by themselves"):
        assert word in result.output
    result = CliRunner().invoke(main, ["tune", str(path), "--precision", "fp32", "--json"])
    assert json.loads(result.stdout)["graphs"][0]["level"] == "fast"


# What must not be believed


class Doubling(Kernel):
    """The flat elementwise kernel, made wrong in the way that `params["HOW"]` says."""

    op, source = "Elementwise", "elementwise/broadcast_row_major.cl"
    own = next(k for k in kernels_for("Elementwise") if k.name == "ElementwiseFlat")

    def launch(self, p: Problem, params: Params) -> list[Launch]:
        node = p.node
        settings = self.own.defaults(p)
        match params["HOW"]:
            case "right":
                return self.own.launch(p, settings)
            case "nothing":
                return []
            case "half":
                half = make_node(
                    "Elementwise", node.op.attributes(), [np.zeros(s // 2, np.float32) for s in node.y.shape]
                )
                return self._with(self.own.launch(self.own.problem(half, p.device), settings), node)
            case _:
                more = make_node(
                    "Elementwise", node.op.attributes(), [np.zeros(s + 8, np.float32) for s in node.y.shape]
                )
                return self._with(self.own.launch(self.own.problem(more, p.device), settings), node)

    @staticmethod
    def _with(launches: Sequence[Launch], node: Node) -> list[Launch]:
        """Launches for another size, on the tensors of `node`."""
        (launch,) = launches
        own = next(iter(launch.args))  # of the one input, and y
        return [dataclasses.replace(launch, args={**launch.args, own: node.x, "y": node.y})]


def double(how: str, node: Node) -> Trial:
    return Trial(Doubling(), flat_binding(node), (("HOW", how),))


def doubling_node(count: int) -> Node:
    return make_node("Elementwise", {"expr": call("neg", DType.FLOAT32)}, [np.zeros(count, np.float32)])


@pytest.mark.parametrize(
    "how, why", [("nothing", "gives another output"), ("half", "gives another output"), ("more", "past the end")]
)
def test_wrong_candidates_get_no_time(rt: Runtime, monkeypatch: pytest.MonkeyPatch, how: str, why: str) -> None:
    monkeypatch.setattr(single_node_executable, "GUARD", 64)  # a simulator's tests have none
    node = doubling_node(1009)
    bench = NodeBench(rt, node)
    right = bench(double("right", node))
    assert right is not None
    assert right > 0
    wrong = double(how, node)
    assert bench(wrong) == math.inf
    assert why in bench.reasons[wrong]
    assert bench(double("right", node)) is not None


def test_a_work_group_that_the_device_cannot_run_gets_no_time(rt: Runtime) -> None:
    node = doubling_node(1009)
    bench = NodeBench(rt, node)
    kernel, binding = Doubling.own, flat_binding(node)
    params = tuple(sorted(kernel.defaults(kernel.problem(node, rt.info)).items()))
    assert bench(Trial(kernel, binding, params)) is not None
    (launch,) = kernel.launch(kernel.problem(node, rt.info), dict(params))
    group = (2 * rt.info.max_work_group_size, *[1] * (len(launch.grid) - 1))
    too_large = Trial(kernel, binding, params, group)
    assert bench(too_large) is None
    assert bench.reasons[too_large]


def test_no_work_group_is_tried_that_the_kernel_does_not_run_with(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NVIDIA, where registers leave some kernels a quarter of the device's limit."""
    monkeypatch.setattr(PreparedLaunch, "work_group_limit", lambda launch, device: 100)
    node = doubling_node(101 * 1009)
    candidate = KernelCandidate(Doubling.own, flat_binding(node), node)
    bench = NodeBench(rt, node)
    trials = list(tuning_levels.make_trials([candidate], rt.info, Level.FAST, bench.group_limit))
    assert max(math.prod(t.group) for t in trials if t.group) == 100
    assert all(bench(t) is not None for t in trials), bench.reasons
    above = [t for t in tuning_levels.make_trials([candidate], rt.info, Level.FAST) if t not in trials]
    assert above, "without it larger ones are proposed"
    assert all(bench(t) is None for t in above), "and refused"


def test_what_tells_the_largest_group_is_measured_too(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Executable] = []

    def make(*args: Any, **options: Any) -> Executable:
        made.append(Executable(*args, **options))
        return made[-1]

    monkeypatch.setattr(single_node_executable, "Executable", make)
    node = doubling_node(101)
    kernel = Doubling.own
    trial = Trial(kernel, flat_binding(node), tuple(kernel.defaults(kernel.problem(node, rt.info)).items()))
    bench = NodeBench(rt, node)
    assert bench.group_limit(trial)
    assert bench(trial) is not None
    assert len(made) == 1


def test_every_trial_of_a_level_computes_the_same(rt: Runtime) -> None:
    x = RNG.standard_normal((1, 19, 11, 13)).astype(np.float32)
    node = make_node("Softmax", {"axis": 1, "log": False}, [x])
    kernel = next(k for k in kernels_for("Softmax") if k.name == "SoftmaxAnyAxis")
    candidate = KernelCandidate(kernel, flat_binding(node), node)
    bench = NodeBench(rt, node)
    for trial in list(tuning_levels.make_trials([candidate], rt.info, Level.NORMAL, bench.group_limit))[:12]:
        seconds = bench(trial)
        assert seconds is not None, bench.reasons
        assert seconds < math.inf, bench.reasons


@pytest.mark.parametrize("quirks, prepared", [((), 1), ((FEW_EVENTS,), 3)])
def test_kernels_are_made_anew_where_they_keep_their_events(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch, quirks: tuple[str, ...], prepared: int
) -> None:
    """Mali's driver frees the memory of a kernel's events with the kernel."""
    made: list[Executable] = []

    def make(*args: Any, **options: Any) -> Executable:
        made.append(Executable(*args, **options))
        return made[-1]

    monkeypatch.setattr(single_node_executable, "Executable", make)
    other = copy.copy(rt)
    other.info = dataclasses.replace(rt.info, quirks=(*rt.info.quirks, *quirks))
    node = doubling_node(103)
    kernel = Doubling.own
    trial = Trial(kernel, flat_binding(node), tuple(kernel.defaults(kernel.problem(node, rt.info)).items()))
    bench = NodeBench(other, node)
    assert all(bench(trial) is not None for _ in range(3))
    assert len(made) == prepared


@pytest.mark.parametrize(
    "quirks, waited", [((), []), ((FEW_EVENTS,), [0, 8, 16]), ((TIMER_OUTLIERS,), list(range(25)))]
)
def test_events_are_awaited_as_the_driver_needs_it(
    monkeypatch: pytest.MonkeyPatch, quirks: tuple[str, ...], waited: list[int]
) -> None:
    """Mali's slows down with many outstanding events, an Adreno 3xx times launches one by one."""
    seen: list[int] = []
    monkeypatch.setattr(measure_candidates, "wait_for", lambda event, device: seen.append(event))
    launches: Any = [SimpleNamespace(enqueue=lambda queue, i=i: i) for i in range(25)]
    events = measure_candidates._enqueue(launches, None, DeviceInfo(quirks=quirks))
    assert events == list(range(25))
    assert seen == waited
