"""Step loops: all launches of a run as one give what the launches give, whatever stands between them.

Longer than 400 lines: cases that do not know each other.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import opalite
from onnx import helper
from opalite.cl.programs import background_throttle
from opalite.cl.queue.launch_sequence import LaunchSequence
from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.cl.runtime import Runtime
from opalite.errors import DeviceError
from opalite.plan.megakernel_source import CALL
from opalite.pocl.megakernel import host_thread_loop
from opalite.pocl.megakernel.call_from_host import current_core, find_host_function
from opalite.pocl.megakernel.host_thread_loop import HostThreadLoop, supports_host_loop
from opalite.run.execute.executable import Executable
from opalite.run.execute.step_schedule import Phase
from opalite.run.execute.strategies import megakernel_builder
from opalite.run.model.onnx_model import OnnxModel

from ....helpers.counters import settled
from ....helpers.small_models import dense, make_model, noise, port

PATIENCE_S = 120.0  # for a worker process that starts and links on a busy machine


@pytest.fixture
def linking(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setattr(megakernel_builder, "WORTH_RUNS", 2)
    monkeypatch.setenv("OPALITE_STRATEGY", "megakernel")
    if not megakernel_builder.supports_megakernel(rt) or rt.programs._pool is None:
        pytest.skip(f"{rt.info.name} keeps its launches")
    if "basic-" in rt.info.version:
        pytest.skip("this device of PoCL's has no threads of its own")
    return rt


def layers(seed: int = 0) -> Any:
    """A convolution, a pooling, a reduction, a softmax and a recurrent layer."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ReduceMean", ["c"], ["d"], keepdims=1),
        helper.make_node("Sub", ["c", "d"], ["e"]),
        helper.make_node("Reshape", ["e", "shape"], ["f"]),
        helper.make_node("Softmax", ["f"], ["s"], axis=-1),
        helper.make_node("LSTM", ["s", "lw", "lr"], ["y", "", ""], hidden_size=7),
    ]
    constants = {
        "w": noise(20, 3, 3, 3, seed=seed),
        "shape": np.array([20, 1, 30], np.int64),
        "lw": noise(1, 28, 30, seed=seed),
        "lr": noise(1, 28, 7, seed=seed),
    }
    return make_model(nodes, [port("x", (1, 3, 12, 10))], [port("y", None), port("d", None)], constants)


def run_until_linked(session: opalite.InferenceSession, feeds: dict[str, Any]) -> tuple[list[Any], Executable]:
    end = time.monotonic() + PATIENCE_S
    while True:
        session.run(None, feeds)
        (executable,) = session._dispatcher.run_record.executables
        if executable.current.selector.builder.is_over:
            time.sleep(
                background_throttle.CONTENTION_S
            )  # runs make room for whoever planned it, who may go on with that
            return session.run(None, feeds), executable  # it may have ended after the last run had looked
        assert time.monotonic() < end, "nothing was linked"
        time.sleep(0.01)


def launches_of(phases: list[Any]) -> int:
    return sum(len(p.launches) for p in phases if isinstance(p, LaunchSequence | HostThreadLoop))


def phases_of(executable: Executable) -> Sequence[Phase]:
    return (
        executable.plain.phases
        if executable.current.selector.megakernel is None
        else executable.current.selector.megakernel.phases
    )


def loop_of(executable: Executable) -> HostThreadLoop:
    (found,) = [p for p in phases_of(executable) if isinstance(p, HostThreadLoop)]
    return found


def decide(loop: HostThreadLoop, joins: bool | None) -> None:
    """Have workers join all runs or none, however late they are, and whatever else wants the cores."""
    loop._uses_workers, loop._runs_alone, loop._avoids_contention, loop._is_alone = joins, 0, False, False
    loop._back_off = lambda table, seconds: None  # type: ignore[method-assign]


@pytest.fixture
def staying(linking: Runtime) -> Runtime:
    if not supports_host_loop(linking):
        pytest.skip(f"{linking.info.name} cannot be spoken to through memory")
    return linking


def test_loop_gives_what_launches_give(linking: Runtime) -> None:
    session = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id)
    feeds = {"x": noise(1, 3, 12, 10, seed=3)}
    first = session.run(None, feeds)
    got, executable = run_until_linked(session, feeds)
    assert launches_of(phases_of(executable)) < launches_of(executable.plain.phases)
    for a, b in zip(got, first, strict=True):
        np.testing.assert_array_equal(a, b)
    other = {"x": noise(1, 3, 12, 10, seed=4)}
    for _ in range(50):  # counters are set back each time
        again = session.run(None, other)
    plain = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id).run(None, other)
    for a, b in zip(again, plain, strict=True):
        np.testing.assert_array_equal(a, b)


def test_loop_over_tensors_inside_others(linking: Runtime) -> None:
    session = opalite.InferenceSession(dense().SerializeToString(), device=linking.info.id)
    feeds = {"x": noise(1, 16, 12, 12)}
    first = session.run(None, feeds)
    got, executable = run_until_linked(session, feeds)
    assert launches_of(phases_of(executable)) < launches_of(executable.plain.phases)
    assert executable.program.memory.nested
    np.testing.assert_array_equal(got[0], first[0])


def test_profile_still_sees_every_launch(linking: Runtime) -> None:
    session = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    _, executable = run_until_linked(session, feeds)
    profile = session.profile(feeds, iterations=2)
    assert len(profile.by_node()) == launches_of(executable.plain.phases)


def test_second_session_takes_the_stored_program(linking: Runtime) -> None:
    feeds = {"x": noise(1, 3, 12, 10)}
    model = layers(seed=1).SerializeToString()
    run_until_linked(opalite.InferenceSession(model, device=linking.info.id), feeds)
    built = linking.counters.programs_built
    _, executable = run_until_linked(opalite.InferenceSession(model, device=linking.info.id), feeds)
    assert launches_of(phases_of(executable)) < launches_of(executable.plain.phases)
    assert linking.counters.programs_built == built


@pytest.mark.parametrize("keeps", [True, False])
def test_what_was_linked_early_is_not_linked_again(
    linking: Runtime, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """Also where nothing is stored."""
    if not keeps:
        monkeypatch.setattr(linking.programs, "_store", None)
    parts = [
        ("void step(global float *x); kernel void whole(global float *x) { step(x); }", ""),
        (f"void step(global float *x) {{ x[0] = {20 + keeps}.0f; }}", ""),
    ]
    linking.programs.link_in_background(parts, lambda: False)
    before = linking.counters.snapshot()
    program = linking.programs.link(parts)
    assert program is not None
    assert [k.function_name for k in program.all_kernels()] == ["whole"]
    assert (linking.counters.snapshot() - before).programs_built == 0


def test_a_later_session_begins_with_the_megakernel(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    model = layers(seed=4).SerializeToString()
    feeds = {"x": noise(1, 3, 12, 10, seed=3)}
    want, executable = run_until_linked(opalite.InferenceSession(model, device=staying.info.id), feeds)
    first = loop_of(executable)
    assert first._on_decision is not None
    for workers in (True, False):
        first._on_decision(workers)
        later = opalite.InferenceSession(model, device=staying.info.id)
        for a, b in zip(later.run(None, feeds), want, strict=True):
            np.testing.assert_array_equal(a, b)
        assert later.last_trace.strategy == "host_fast_path"
        loop = loop_of(later._dispatcher.run_record.executables[0])
        assert loop._uses_workers is (workers and loop._count > 0)
    loop._valid_runs = 1
    later.run(None, feeds)
    assert loop._uses_workers is not True
    assert not loop._valid_runs, "measured again"
    monkeypatch.setattr(staying.programs, "load_linked", lambda key: None)
    last = opalite.InferenceSession(model, device=staying.info.id)
    last.run(None, feeds)
    assert last.last_trace.strategy == "queue", "its program is not in the cache"


def test_launches_stay_where_linking_fails(linking: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megakernel_builder, "loop_text", lambda *_: "this is not OpenCL C")
    session = opalite.InferenceSession(layers(seed=2).SerializeToString(), device=linking.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    first = session.run(None, feeds)
    got, executable = run_until_linked(session, feeds)
    assert executable.current.selector.megakernel is None
    np.testing.assert_array_equal(got[0], first[0])


def test_knob_turns_it_off(linking: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    session = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id)
    for _ in range(4):
        session.run(None, {"x": noise(1, 3, 12, 10)})
    (executable,) = session._dispatcher.run_record.executables
    assert executable.current.selector.builder.is_over
    assert executable.current.selector.megakernel is None


@pytest.mark.parametrize("joins", [None, False, True])
def test_worker_that_stays_computes_every_run(
    staying: Runtime, joins: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether others join or not, and when the worker has left meanwhile."""
    monkeypatch.setenv("OPALITE_SPIN_US", "20000")
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    feeds = [{"x": noise(1, 3, 12, 10, seed=seed)} for seed in range(5)]
    expected = [session.run(None, f) for f in feeds]
    _, executable = run_until_linked(session, feeds[0])
    loop = loop_of(executable)
    decide(loop, joins)
    enqueued = staying.counters.enqueues
    for i in range(300):
        got = session.run(None, feeds[i % 5])
        for a, b in zip(got, expected[i % 5], strict=True):
            np.testing.assert_array_equal(a, b)
        if i % 100 == 50:
            time.sleep(0.2)  # the workers leave
    if joins is not None:
        assert staying.counters.enqueues - enqueued < 100  # most runs launched nothing
    assert loop._uses_workers is not None


def test_joining_is_decided_by_measurement(staying: Runtime) -> None:
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    _, executable = run_until_linked(session, {"x": noise(1, 3, 12, 10)})
    loop = loop_of(executable)
    for joined, alone, expected in (
        ([3e-4] * 10, [], True),
        ([8e-5] * 10, [9e-5] * 10, False),
        ([7e-5] * 10, [9e-5] * 10, True),
        ([4e-5] * 10, [5.5e-5], False),
        ([7e-5] * 10, [9e-5], None),
    ):
        loop._uses_workers, loop._times = None, {True: list(joined[:-1]), False: list(alone)}
        loop._learn(True, joined[-1])
        assert loop._uses_workers is expected
    assert "joined by a megakernel" in executable.queueing(executable.program)


def test_a_stored_decision_is_measured_again_after_a_late_worker(staying: Runtime) -> None:
    """Trials with workers come first, although runs were to go without."""
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    _, executable = run_until_linked(session, feeds)
    loop = loop_of(executable)
    if not loop._count:
        pytest.skip("one core has no workers")
    loop._times, loop._avoids_contention = {True: [], False: []}, False
    loop._uses_workers, loop._valid_runs, loop._runs_alone = True, 1, 4096
    session.run(None, feeds)
    assert len(loop._times[True]) == 1
    for _ in range(2 * host_thread_loop._TRIALS):
        session.run(None, feeds)
    assert loop._uses_workers is not None


def test_runs_go_without_workers_that_keep_them_waiting(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own: a run beside a late worker is followed by runs without, by more each time."""
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    expected, executable = run_until_linked(session, feeds)
    loop = loop_of(executable)
    loop._uses_workers, loop._avoids_contention = True, False
    now, takes = 0.0, 1.0
    walk = loop._function

    def walk_slowly(*args: Any) -> None:
        nonlocal now
        walk(*args)
        now += takes

    monkeypatch.setattr(loop, "_function", walk_slowly)
    monkeypatch.setattr(host_thread_loop, "time", SimpleNamespace(perf_counter=lambda: now, sleep=time.sleep))

    def run(seconds: float) -> bool:
        """Whether others may take part in the run."""
        nonlocal takes
        takes = seconds
        for got, wanted in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
        return loop._call[loop._workers] > 1

    late = 1.0 + loop._launched
    assert [run(1.0), run(late - 1.0), run(late)] == [True] * 3
    for pause in (8, 16, 32):
        assert [run(late) for _ in range(pause)] == [False] * pause
        assert run(late)
    assert [run(1.0) for _ in range(64)] == [False] * 64
    assert [run(1.0) for _ in range(3)] == [True] * 3
    assert run(late)
    assert [run(1.0) for _ in range(16)] == [False] * 16
    assert run(1.0)


def test_a_worker_that_never_comes_is_not_needed(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    expected, executable = run_until_linked(session, feeds)
    loop = loop_of(executable)
    loop._uses_workers, loop._avoids_contention = True, False
    loop.dismiss_workers()
    while loop._words[loop._left] != loop._sent:
        time.sleep(0.001)
    launches: list[Any] = []
    monkeypatch.setattr(loop, "worker_launch", SimpleNamespace(enqueue=launches.append))
    sent = loop._sent
    for _ in range(30):
        for got, wanted in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
    assert len(launches) == 1
    loop._sent = sent  # nobody is there


def test_sessions_take_turns_with_the_worker(staying: Runtime) -> None:
    """One that stays leaves for another session, in the same thread or in another."""
    feeds = {"x": noise(1, 3, 12, 10, seed=9)}
    sessions = [opalite.InferenceSession(layers(seed).SerializeToString(), device=staying.info.id) for seed in (0, 5)]
    expected = [s.run(None, feeds) for s in sessions]
    for s in sessions:
        run_until_linked(s, feeds)
    failures: list[str] = []

    def work(numbers: list[int]) -> None:
        for i in numbers:
            for a, b in zip(sessions[i].run(None, feeds), expected[i], strict=True):
                if not np.array_equal(a, b):
                    failures.append(f"session {i}")

    work([0, 1] * 50)
    threads = [threading.Thread(target=work, args=([i] * 100,)) for i in (0, 1, 0)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_the_host_walks_alone_where_cores_are_wanted(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is built, or by threads that take turns: waiting for a worker without a core takes milliseconds."""
    monkeypatch.setenv("OPALITE_SPIN_US", "2000000")
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    expected, executable = run_until_linked(session, feeds)
    loop = loop_of(executable)
    decide(loop, True)
    loop._avoids_contention = True
    settled(staying)  # jobs of earlier tests want the cores, too
    monkeypatch.setattr(background_throttle, "_contended_until", 0.0)
    session.run(None, feeds)
    assert loop._call[loop._workers] == loop._count + 1
    with background_throttle.background_build():
        found = session.run(None, feeds)
        assert loop._call[loop._workers] == 1
        while loop._words[loop._left] != loop._sent:  # the workers leave
            time.sleep(0.001)
    np.testing.assert_array_equal(found[0], expected[0])
    session.run(None, feeds)
    assert loop._call[loop._workers] == 1, "what was built may be followed by more"
    monkeypatch.setattr(background_throttle, "_contended_until", 0.0)
    session.run(None, feeds)
    assert loop._call[loop._workers] == loop._count + 1
    background_throttle.report_contention()
    session.run(None, feeds)
    assert loop._call[loop._workers] == 1


def test_worker_leaves_with_its_session(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a worker looks at outlives it, however long it was to stay."""
    monkeypatch.setenv("OPALITE_SPIN_US", "2000000")
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    _, executable = run_until_linked(session, {"x": noise(1, 3, 12, 10)})
    loop = loop_of(executable)
    session.run(None, {"x": noise(1, 3, 12, 10)})
    decide(loop, True)
    for _ in range(3):
        loop.run()
    words, left, sent = loop._words, loop._left, loop._sent
    assert words[left] != sent  # it is there
    session.close()
    del session, executable, loop
    gc.collect()
    assert words[left] == sent


def test_a_launch_that_the_driver_refuses_is_told(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next run is whole again, with the workers."""
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    expected, executable = run_until_linked(session, feeds)
    loop = loop_of(executable)
    decide(loop, True)
    session.run(None, feeds)
    while loop._words[loop._left] != loop._sent:
        time.sleep(0.01)  # workers that are there need no launch

    def refuse(launch: PreparedLaunch, queue: Any) -> None:
        raise DeviceError("out of resources")

    with monkeypatch.context() as patch:
        patch.setattr(PreparedLaunch, "enqueue", refuse)
        with pytest.raises(DeviceError, match="out of resources"):
            session.run(None, feeds)
    sent = loop._sent
    for a, b in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert loop._sent == sent + loop._launched


def test_settle_waits_for_the_loop(linking: Runtime) -> None:
    session = opalite.InferenceSession(layers(seed=7).SerializeToString(), device=linking.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    assert session.settle()  # nothing has run
    for _ in range(megakernel_builder.WORTH_RUNS + 1):
        session.run(None, feeds)
    assert session.settle(PATIENCE_S)
    session.run(None, feeds)
    (executable,) = session._dispatcher.run_record.executables
    assert executable.current.selector.builder.is_over
    assert executable.current.selector.megakernel is not None


def test_a_loop_that_is_there_serves_runs_of_some_times_its_length(
    linking: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id)
    session.run(None, {"x": noise(1, 3, 12, 10)})
    (executable,) = session._dispatcher.run_record.executables
    program = executable.program
    other = replace(program)  # the same steps for another size
    short = megakernel_builder.SHORT_S

    def serves(made_for: float, runs: float) -> bool:
        monkeypatch.setattr(megakernel_builder, "least_seconds", lambda steps, rt: made_for)
        builder = megakernel_builder.MegakernelBuilder(linking, program)
        monkeypatch.setattr(megakernel_builder, "least_seconds", lambda steps, rt: runs)
        return builder.serves(other)

    assert serves(0.9 * short, 0.1 * short)
    assert serves(0.9 * short, 3.0 * short)
    assert not serves(0.9 * short, 5.0 * short)
    assert serves(1.1 * short, 5.0 * short)
    assert not serves(1.1 * short, 0.9 * short)


@pytest.mark.parametrize("is_long", [False, True])
def test_nobody_stays_if_told_so_or_runs_are_long(
    linking: Runtime, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    if is_long:
        monkeypatch.setattr(megakernel_builder, "SHORT_S", 0.0)
    else:
        monkeypatch.setenv("OPALITE_SPIN_US", "0")
    session = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    first = session.run(None, feeds)
    got, executable = run_until_linked(session, feeds)
    assert not any(isinstance(p, HostThreadLoop) for p in phases_of(executable))
    assert launches_of(phases_of(executable)) == 2
    for _ in range(20):
        got = session.run(None, feeds)
    for a, b in zip(got, first, strict=True):
        np.testing.assert_array_equal(a, b)


def repeating(rt: Runtime) -> tuple[opalite.InferenceSession, dict[str, Any], Any]:
    """A session that takes the short way, feeds for it, and what the short way was asked: its answers, in order."""
    session = opalite.InferenceSession(layers().SerializeToString(), device=rt.info.id)
    feeds = {"x": noise(1, 3, 12, 10, seed=3)}
    session.run(None, feeds)
    assert session.settle(PATIENCE_S)  # with empty caches general programs come first, whose launches are not joined
    run_until_linked(session, feeds)
    assert session.last_trace.strategy == "host_fast_path"
    asked: list[bool] = []
    session._dispatcher.short = Asked(session._dispatcher.short, asked)  # type: ignore[assignment]
    return session, feeds, asked


class Asked:
    """A ShortRoute, and whether each of its runs was one."""

    def __init__(self, short: Any, answers: list[bool]) -> None:
        self._short, self._answers = short, answers

    def run(self, feeds: Any) -> Any:
        found = self._short.run(feeds)
        self._answers.append(found is not None)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._short, name)


def categories() -> Any:
    """Texts and numbers in, a label and a map of scores by label out: the host has work before and after the loop."""
    ml = "ai.onnx.ml"
    labels = ["left", "middle", "right"]
    nodes = [
        helper.make_node("ArrayFeatureExtractor", ["t", "first"], ["c"], domain=ml),
        helper.make_node("OneHotEncoder", ["c"], ["o"], domain=ml, cats_strings=["a", "b", "c"]),
        helper.make_node("Reshape", ["o", "shape"], ["f"]),
        helper.make_node("Concat", ["f", "x"], ["all"], axis=1),
        helper.make_node(
            *("LinearClassifier", ["all"], ["label", "scores"]),
            domain=ml,
            classlabels_strings=labels,
            coefficients=noise(15).tolist(),
            intercepts=[0.1, 0.2, 0.3],
            post_transform="SOFTMAX",
        ),
        helper.make_node("ZipMap", ["scores"], ["maps"], domain=ml, classlabels_strings=labels),
    ]
    constants = {"first": np.array([0]), "shape": np.array([-1, 3])}
    outputs = [port("label", None, 8), helper.make_empty_tensor_value_info("maps"), port("scores", None)]
    inputs = [port("t", ("N", 2), 8), port("x", ("N", 2))]
    model = make_model(nodes, inputs, outputs, constants)
    model.opset_import.append(helper.make_opsetid(ml, 3))
    return model


def test_short_way_with_work_on_the_host(staying: Runtime) -> None:
    session = opalite.InferenceSession(categories().SerializeToString(), device=staying.info.id)
    rng = np.random.default_rng(0)

    def draw() -> dict[str, Any]:
        return {"t": rng.choice(["a", "b", "c", "d"], (3, 2)).astype(object), "x": rng.standard_normal((3, 2), "f")}

    _, executable = run_until_linked(session, draw())
    assert executable.current.selector.host_fast_path is not None
    assert executable.current.selector.host_fast_path._before
    kept = session.run(None, given := draw())
    before = [kept[0].copy(), [dict(m) for m in kept[1]], kept[2].copy(), given["t"].copy()]
    for _ in range(5):
        feeds = draw()
        label, maps, scores = session.run(None, feeds)
        assert session.last_timing.host_s > 0
        plain = opalite.InferenceSession(categories().SerializeToString(), device=staying.info.id)
        wanted = plain.run(None, feeds)
        np.testing.assert_array_equal(label, wanted[0])
        assert maps == wanted[1]
        np.testing.assert_array_equal(scores, wanted[2])
        assert session.run(["maps"], feeds) == [maps]
    for a, b in zip([*kept, given["t"]], before, strict=True):
        np.testing.assert_array_equal(a, b)
    feeds["t"][0, 0] = 5  # what is no text takes the usual way, which makes text of it
    assert session.run(["label"], feeds)[0][0] in ("left", "middle", "right")
    longer = {n: np.concatenate([a, a]) for n, a in draw().items()}
    np.testing.assert_array_equal(session.run(None, longer)[2], plain.run(None, longer)[2])


def test_like_runs_take_the_short_way(staying: Runtime) -> None:
    session, feeds, asked = repeating(staying)
    plain = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    kept = session.run(None, feeds)
    copies = [a.copy() for a in kept]
    counted = session.stats()
    for seed in range(4, 9):
        x = noise(1, 3, 12, 10, seed=seed)
        got = session.run(None, {"x": x})
        (d,) = session.run(["d"], {"x": np.asfortranarray(x)})
        for a, b in zip(got, plain.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(d, got[1])
    assert asked == [True] * 11
    assert session.stats().runs == counted.runs + 10
    assert session.stats().runs_by_tier["optimized"] == counted.runs_by_tier["optimized"] + 10
    assert session.last_trace.strategy == "host_fast_path"
    assert session.last_trace.tier == "optimized"
    assert session.last_trace is session.last_trace
    for a, b in zip(kept, copies, strict=True):  # outputs are the caller's
        np.testing.assert_array_equal(a, b)
    timing = session.last_timing
    assert timing.compute_s > 0
    assert timing.total_s >= timing.upload_s + timing.compute_s + timing.download_s > 0
    assert timing.first_s > 0
    assert "joined by a megakernel" in str(session.explain().queueing)
    assert len(session.profile(feeds, iterations=1).wall_s) == 1


def test_halves_of_a_kept_plan_are_looked_at_after_every_run(
    staying: Runtime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPALITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("OPALITE_PLAN_CACHE", "1")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    w = np.full((8, 4), 3e4, np.float32)
    model = make_model([node], [port("x", [2, 8])], [port("y", [2, 4])], {"w": w}).SerializeToString()
    small = {"x": np.full((2, 8), 1e-4, np.float32)}
    for _ in range(2):  # the second goes by the plan that the first has kept
        session = opalite.InferenceSession(model, device=staying.info.id, precision="fp16")
        run_until_linked(session, small)
    assert isinstance(session._model, OnnxModel)
    assert not session._model.is_imported
    (y,) = session.run(None, {"x": np.ones((2, 8), np.float32)})
    np.testing.assert_allclose(y, np.full((2, 4), 2.4e5), rtol=1e-3)
    assert session.overflowed


def test_what_is_new_takes_the_usual_way(staying: Runtime) -> None:
    session, feeds, asked = repeating(staying)
    x = feeds["x"]
    expected = session.run(None, feeds)
    for wrong in ({}, {"x": x, "z": x}, {"z": x}, {"x": x.astype(np.float64)}, {"x": x[:, :2]}, {"x": None}):
        with pytest.raises(opalite.InputError, match=r"x|z"):
            session.run(None, wrong)
    with pytest.raises(opalite.InputError, match="dict"):
        session.run(None, [x])  # type: ignore[arg-type]
    with pytest.raises(opalite.InputError, match="'no'"):
        session.run(["no"], feeds)
    assert asked == [True] + [False] * 7
    for like in (opalite.OrtValue.ortvalue_from_numpy(x), x.tolist()):
        for a, b in zip(session.run(None, {"x": like}), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    bound = session.io_binding()
    bound.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(2 * x, "opencl"))
    bound.bind_output("d", "opencl")
    session.run_with_iobinding(bound)
    for a, b in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    session.close()
    assert session._dispatcher.route is None
    for a, b in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_workers_stay_as_long_as_runs_follow_closely(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    _, executable = run_until_linked(session, {"x": noise(1, 3, 12, 10)})
    loop = loop_of(executable)
    decide(loop, True)
    seen = []
    for gap in (1e-5, 2e-2, 1e-5):
        for _ in range(30):
            loop._ended = time.perf_counter() - gap
            loop.run()
        seen.append(loop._words[loop._stay] > 0)
    assert seen == [True, False, True]
    sent = loop._sent
    decide(loop, False)
    time.sleep(0.1)
    loop.run()
    assert loop._sent == sent  # nobody is launched


def test_loop_serves_bound_tensors_and_arrays_in_turn(linking: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever memory is bound when the loop is made."""
    monkeypatch.setattr(megakernel_builder, "WORTH_RUNS", 5)
    session = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id)
    x, other = noise(1, 3, 12, 10, seed=3), noise(1, 3, 12, 10, seed=4)
    expected = [session.run(["d"], {"x": value})[0] for value in (x, other)]
    bindings = []
    for value in (x, other):
        bound = session.io_binding()
        bound.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(value, "opencl"))
        bound.bind_output("d", "opencl")
        bindings.append(bound)
    end = time.monotonic() + PATIENCE_S
    (executable,) = session._dispatcher.run_record.executables
    while executable.last is executable.plain:
        session.run_with_iobinding(bindings[0])
        assert time.monotonic() < end, "nothing was linked"
    for i in (0, 1, 0, 1):
        session.run_with_iobinding(bindings[i])
        np.testing.assert_array_equal(bindings[i].copy_outputs_to_cpu()[0], expected[i])
        assert executable.last is executable.current.selector.megakernel
        np.testing.assert_array_equal(session.run(["d"], {"x": other})[0], expected[1])
        assert executable.last is (executable.current.selector.host_fast_path or executable.current.selector.megakernel)


def test_workers_leave_when_they_are_told(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session waits for their threads; the host needs none of them."""
    monkeypatch.setenv("OPALITE_SPIN_US", "100000000")
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    _, executable = run_until_linked(session, {"x": noise(1, 3, 12, 10)})
    loop = loop_of(executable)
    decide(loop, True)
    for _ in range(30):
        loop.run()
    assert loop._words[loop._left] != loop._sent  # it is there
    loop.dismiss_workers()
    end = time.monotonic() + PATIENCE_S / 4
    while loop._words[loop._left] != loop._sent:
        assert time.monotonic() < end, "the workers stayed"
        time.sleep(0.001)
    decide(loop, False)
    loop.run()
    assert loop._words[loop._leave] == 1
    decide(loop, True)
    loop.run()
    assert loop._words[loop._leave] == 0
    assert loop._words[loop._left] != loop._sent  # others came


def test_the_worker_on_the_core_of_the_host_is_spare(staying: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the host is, as many workers compute as there are other cores."""
    monkeypatch.setenv("OPALITE_SPIN_US", "1")
    session = opalite.InferenceSession(layers().SerializeToString(), device=staying.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    expected, executable = run_until_linked(session, feeds)
    loop = loop_of(executable)
    decide(loop, True)
    allowed = os.sched_getaffinity(0)
    try:
        for core in sorted(allowed) * 3:
            os.sched_setaffinity(0, {core})
            assert current_core() == core
            time.sleep(0.02)  # so that workers do not stay
            sent = loop._sent
            for a, b in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_array_equal(a, b)
            assert loop._sent == sent + staying.info.compute_units
            end = time.monotonic() + PATIENCE_S
            while loop._words[loop._left] != loop._sent:
                assert time.monotonic() < end, "the workers stayed"
                time.sleep(0.001)
            assert loop._words[loop._came] == staying.info.compute_units
            assert loop._words[loop._spare] == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_host_rounds_as_workers_do(staying: Runtime) -> None:
    """What the calling thread does with numbers that are not normal is put by for a run."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["y"]), helper.make_node("Softmax", ["y"], ["z"])]
    constants = {"two": np.array(2, np.float32)}
    model = make_model(nodes, [port("x", (1, 8))], [port("y", None), port("z", None)], constants)
    feeds = {"x": np.full((1, 8), 1e-41, np.float32)}
    session = opalite.InferenceSession(model.SerializeToString(), device=staying.info.id)
    expected = session.run(None, feeds)[0]
    _, executable = run_until_linked(session, feeds)
    loop = loop_of(executable)
    decide(loop, False)
    place = CALL.index("MODE")
    mode = loop._call[place]
    for flushes in (True, False):
        loop._call[place] = mode | 0x8040 if flushes else mode
        got = session.run(None, feeds)[0]
        assert not got.any() if flushes else np.array_equal(got, expected)
        assert np.any(feeds["x"] * np.float32(2) > 0)  # NumPy still sees them


def test_loop_holds_its_tables(linking: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def allocate(nbytes: int) -> Any:
        buffer = linking.allocator.buffer(nbytes)
        made.append(buffer)
        return buffer

    monkeypatch.setenv("OPALITE_SPIN_US", "0")
    session = opalite.InferenceSession(layers().SerializeToString(), device=linking.info.id)
    feeds = {"x": noise(1, 3, 12, 10)}
    session.run(None, feeds)
    monkeypatch.setattr(linking, "allocate", allocate)
    run_until_linked(session, feeds)
    gc.collect()
    held = [sys.getrefcount(buffer) > 3 for buffer in made]  # by more than the list, the loop and the call
    assert sum(held) == (1 if linking.shares_memory else 3)  # counters; others may be the host's


def test_code_is_held_only_where_it_lies_in_a_library() -> None:
    absolute = ctypes.CDLL(None).abs
    address = ctypes.cast(absolute, ctypes.c_void_p).value
    assert address is not None
    if sys.platform == "linux":
        held = find_host_function(address)
        assert held is not None
        assert held.release.alive
        held.release()
    assert find_host_function(0) is None
    assert find_host_function(np.zeros(8).ctypes.data) is None


def test_row_major_convolutions_are_joined(linking: Runtime) -> None:
    """A function knows the batch, by which it finds the end of the input."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], group=3),
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("Softmax", ["t"], ["y"]),
    ]
    w = noise(3, 1, 3, 3, seed=1)
    model = make_model(nodes, [port("x", ["N", 3, 9, 7])], [port("y", None)], {"w": w})
    session = opalite.InferenceSession(model.SerializeToString(), device=linking.info.id, precision="fp32")
    for batch in (2, 1):
        feeds = {"x": noise(batch, 3, 9, 7)}
        want = session.run(None, feeds)[0]
        (got, *_), executable = run_until_linked(session, feeds)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        assert executable.current.selector.megakernel is not None
