"""Launches recorded and replayed by cl_qcom_recordable_queues: with a double of the extension over each device.

Never run on a device that has it.
"""

from __future__ import annotations

import gc
import logging
from typing import Any

import numpy as np
import pytest

import opalite
import opalite.cl.runtime as runtime_module
from opalite.cl.device.enumerate_devices import find_device
from opalite.cl.queue import recordable_queues
from opalite.cl.queue.launch_sequence import LaunchSequence
from opalite.cl.queue.prepared_launch import LocalBytes, PreparedLaunch
from opalite.cl.queue.recordable_queues import RecordableQueues, find_recordable_queues
from opalite.cl.runtime import Runtime
from opalite.cl.runtime_counters import Counters
from opalite.errors import DeviceError

from ....helpers.counters import spent
from ....helpers.recording_driver import RecordingDriver
from ....helpers.small_models import classifier, noise

SOURCE = """
kernel void add(global float *x, float v, int n) { int i = get_global_id(0); if (i < n) x[i] += v; }
kernel void times(global float *x, float v, int n) { int i = get_global_id(0); if (i < n) x[i] *= v; }
kernel void swap(global float *x, local float *part, int n) {
    int i = get_global_id(0), l = get_local_id(0);
    part[l] = i < n ? x[i] : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < n) x[i] = part[l];
}
"""
N = 101


class Listing:
    """A device that lists the extension."""

    extensions = recordable_queues.EXTENSION

    def __init__(self, device: Any) -> None:
        self.platform = device.platform


def use(monkeypatch: pytest.MonkeyPatch, driver: RecordingDriver) -> RecordingDriver:
    for name in ("find_call", "find_extension", "query_device"):
        monkeypatch.setattr(recordable_queues, name, getattr(driver, name))
    return driver


def found(rt: Runtime) -> RecordableQueues:
    queues = find_recordable_queues(Listing(rt.device))
    assert isinstance(queues, RecordableQueues)
    return queues


class Chain:
    """x = (x + 1) * 2 + 3, three times over: nine launches."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.program = rt.build(SOURCE, "", "test")
        self.x = self.memory()
        self.launches: list[PreparedLaunch] = []
        for i in range(3):
            for entry, value in (("add", 1), ("times", 2), ("add", 3)):
                args = [self.x, np.float32(value), np.int32(N)]
                sizes = ((104,), (8,)) if value == 1 else ((N,), None)
                self.launches.append(rt.prepare(self.program, entry, args, *sizes, f"{entry} {i}"))

    def memory(self) -> Any:
        made = self.rt.allocate(4 * N)
        self.rt.write(made, np.ones(N, np.float32))
        return made

    def record(self, replay: RecordableQueues) -> LaunchSequence:
        rt = self.rt
        options: dict[str, Any] = {"device": rt.info.name, "counters": rt.counters}
        return LaunchSequence(rt.queue, self.launches, flush_every=2, holds_gil=False, replay=replay, **options)

    def value(self, of: Any = None) -> float:
        """The elements' value, which is one and the same."""
        out = np.empty(N, np.float32)
        self.rt.read(self.x if of is None else of, out)
        assert np.all(out == out[0])
        return float(out[0])


def expected(runs: int, x: float = 1.0, last: float = 3.0) -> float:
    found = np.float32(x)
    for _ in range(runs):
        for add in (3.0, 3.0, last):
            found = (found + np.float32(1)) * np.float32(2) + np.float32(add)
    return float(found)


@pytest.mark.parametrize("most, lengths", [(1000, [9]), (9, [9]), (4, [4, 4, 1])])
def test_the_second_run_records_and_all_from_it_on_replay(
    rt: Runtime, most: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = use(monkeypatch, RecordingDriver(most))
    chain = Chain(rt)
    recording = chain.record(found(rt))
    assert spent(rt, recording.run) == Counters(enqueues=9)
    assert driver.log == []
    assert spent(rt, recording.run) == Counters(enqueues=9, recordings=1, replays=1)
    assert driver.lengths == lengths
    driver.log.clear()
    assert spent(rt, recording.run) == Counters(enqueues=9, replays=1)
    assert driver.log == ["clEnqueueRecordingQCOM"] * len(lengths)
    assert not any(driver.updates)
    assert chain.value() == expected(3)


def test_few_launches_are_not_recorded(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RecordingDriver())
    chain = Chain(rt)
    chain.launches = chain.launches[:7]
    assert not chain.record(found(rt)).replays


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("most", [1000, 4])
def test_changed_arguments_go_with_the_replay(
    rt: Runtime, keeps: bool, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a driver keeps what an earlier replay changed, or goes back to what was recorded."""
    driver = use(monkeypatch, RecordingDriver(most, keeps))
    chain = Chain(rt)
    recording = chain.record(found(rt))
    recording.run()
    recording.run()
    want = expected(2)
    for last in (5.0, 5.0, 7.0, 3.0, 3.0):
        chain.launches[8].set_arg(1, np.float32(last))
        recording.invalidate()
        done = spent(rt, recording.run)
        assert (done.recordings, done.replays) == (0, 1)
        want = expected(1, want, last)
        assert chain.value() == want
    recording.run()
    assert chain.value() == expected(1, want)
    changed = [u for u in driver.updates if u]
    assert changed == [[(8 % most, 1)]] * 6


@pytest.mark.parametrize("keeps", [True, False])
def test_other_memory_goes_with_the_replay(rt: Runtime, keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, RecordingDriver(4, keeps))
    chain = Chain(rt)
    recording = chain.record(found(rt))
    recording.run()
    recording.run()
    other = chain.memory()
    for launch in chain.launches:
        launch.set_arg(0, other)
    recording.invalidate()
    recording.run()
    assert chain.value(other) == expected(1)
    for launch in chain.launches:
        launch.set_arg(0, chain.x)
    recording.invalidate()
    recording.run()
    assert chain.value(other) == expected(1)
    assert chain.value() == expected(3)
    assert driver.log.count("clNewRecordingQCOM") == 3


def test_local_memory_of_another_size_is_recorded_anew(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, RecordingDriver())
    chain = Chain(rt)
    swap = rt.prepare(chain.program, "swap", [chain.x, LocalBytes(32), np.int32(N)], (104,), (8,), "swap")
    chain.launches.append(swap)
    recording = chain.record(found(rt))
    for _ in range(2):
        recording.run()
    swap.set_arg(1, LocalBytes(64))
    recording.invalidate()
    before = rt.counters.snapshot()
    for _ in range(3):
        recording.run()
    done = rt.counters - before
    assert (done.recordings, done.replays) == (1, 2)
    assert chain.value() == expected(5)
    assert driver.alive == 2  # the earlier recording and its queue were released
    del recording
    gc.collect()
    assert driver.alive == 0


@pytest.mark.parametrize(
    "name", ["clCreateCommandQueue", "clNewRecordingQCOM", "clEnqueueNDRangeKernel", "clEndRecordingQCOM"]
)
def test_a_driver_that_refuses_to_record_is_left_alone(
    rt: Runtime, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    driver = use(monkeypatch, RecordingDriver(codes={name: -59}))
    chain = Chain(rt)
    recording = chain.record(found(rt))
    with caplog.at_level(logging.WARNING):
        done = spent(rt, lambda: [recording.run() for _ in range(4)])
    assert (done.enqueues, done.recordings, done.replays) == (36, 0, 0)
    assert chain.value() == expected(4)
    assert f"{name} failed with INVALID_OPERATION" in recording.refusal
    assert caplog.text.count("one by one") == 1
    gc.collect()
    assert driver.alive == 0


def test_a_launch_that_cannot_run_is_never_recorded(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, RecordingDriver())
    chain = Chain(rt)
    args = [chain.x, np.float32(1), np.int32(N)]
    chain.launches.append(rt.prepare(chain.program, "add", args, (N,), (2,), "wrong"))
    recording = chain.record(found(rt))
    for _ in range(3):
        with pytest.raises(DeviceError, match=r"Launching wrong with global size \(101,\)"):
            recording.run()
    assert driver.log == []


def test_recording_can_be_switched_off(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    chain = Chain(rt)
    recording = rt.record(chain.launches, replay=True)
    done = spent(rt, lambda: [recording.run() for _ in range(3)])
    assert done == Counters(enqueues=27)
    assert chain.value() == expected(3)
    session = opalite.InferenceSession(classifier().SerializeToString(), device=rt.info.id, precision="fp32")
    (sentence,) = session.explain({"x": noise(1, 3, 8, 8)}).queueing
    assert sentence.endswith("enqueued one by one: OPALITE_STRATEGY=queue")


def test_a_replay_that_fails_is_an_error_that_names_the_launches(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, RecordingDriver(codes={"clEnqueueRecordingQCOM": -5}))
    recording = Chain(rt).record(found(rt))
    recording.run()
    with pytest.raises(DeviceError, match=r"Replaying 9 launches from add 0 on.*clEnqueueRecordingQCOM"):
        recording.run()


def test_what_is_missing_is_said(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    listing: Any = Listing(rt.device)
    use(monkeypatch, RecordingDriver(most=0))
    assert "records no launch" in str(find_recordable_queues(listing))
    use(monkeypatch, RecordingDriver(codes={"clEndRecordingQCOM": 404}))
    assert "lists cl_qcom_recordable_queues but has no clEndRecordingQCOM" in str(find_recordable_queues(listing))
    use(monkeypatch, RecordingDriver())
    assert str(find_recordable_queues(listing)) == "cl_qcom_recordable_queues"
    listing.extensions = ""
    assert find_recordable_queues(listing) == "the device has no cl_qcom_recordable_queues"


def open_session(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> opalite.InferenceSession:
    """A session on a runtime of its own, whose device lists the extension and no other way to replay."""
    own = Runtime(find_device(rt.info.id))
    monkeypatch.setattr(own, "_replay", found(rt))
    monkeypatch.setattr(runtime_module, "_runtimes", {})
    monkeypatch.setattr("opalite.run.api.session.session_core.find_runtime", lambda *given: own)
    return opalite.InferenceSession(classifier().SerializeToString(), precision="fp32")


@pytest.mark.parametrize("most", [1000, 4])
def test_sessions_replay_with_equal_results(rt: Runtime, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, RecordingDriver(most))
    monkeypatch.setattr(RecordableQueues, "min_launches", 2)
    monkeypatch.setenv("OPALITE_STRATEGY", "queue")
    shapes = [(1, 3, 16, 16), (2, 3, 9, 7), (1, 3, 16, 16)]
    feeds = [noise(*shapes[i // 4], seed=i) for i in range(12)]
    plain = opalite.InferenceSession(classifier().SerializeToString(), device=rt.info.id, precision="fp32")
    want = [plain.run(None, {"x": x})[0] for x in feeds]
    monkeypatch.setenv("OPALITE_STRATEGY", "replay")
    session = open_session(rt, monkeypatch)
    traces = []
    for x, w in zip(feeds, want, strict=True):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], w)
        traces.append(session.last_trace.strategy)
    assert traces == ["queue", *["replay"] * 3, "queue", *["replay"] * 7]
    (sentence,) = session.explain({"x": feeds[0]}).queueing
    assert "replayed as one recording from the second run on (cl_qcom_recordable_queues)" in sentence
    assert driver.log.count("clCreateCommandQueue") == 2


def test_bound_outputs_are_replayed_into_other_memory(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use(monkeypatch, RecordingDriver())
    monkeypatch.setattr(RecordableQueues, "min_launches", 2)
    monkeypatch.setenv("OPALITE_STRATEGY", "replay")
    session = open_session(rt, monkeypatch)
    feeds = [noise(1, 3, 8, 8, seed=i) for i in range(6)]
    want = [session.run(None, {"x": x})[0] for x in feeds]
    recorded = driver.log.count("clNewRecordingQCOM")
    assert recorded == 1
    bindings = [session.io_binding() for _ in range(2)]
    name = session.get_outputs()[0].name
    for b in bindings:
        b.bind_output(name, "opencl")
    for i, x in enumerate(feeds):
        b = bindings[i % 2]
        b.bind_cpu_input("x", x)
        session.run_with_iobinding(b)
        np.testing.assert_array_equal(b.copy_outputs_to_cpu()[0], want[i])
    np.testing.assert_array_equal(session.run(None, {"x": feeds[0]})[0], want[0])
    assert driver.log.count("clNewRecordingQCOM") == recorded
    assert any(driver.updates)
