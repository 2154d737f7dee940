"""Launches recorded and replayed by cl_khr_command_buffer give the results of launches enqueued one by one.

Tests that replay need a device with the extension, in a supported version; PoCL's CPU has it from version 5 on.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.device.enumerate_devices import list_all
from opalite.cl.queue.command_buffers import CommandBuffers, find_command_buffers
from opalite.cl.queue.launch_sequence import LaunchSequence
from opalite.cl.queue.prepared_launch import PreparedLaunch
from opalite.cl.runtime import Runtime, find_runtime
from opalite.cl.runtime_counters import Counters
from opalite.errors import DeviceError

from .....helpers.counters import settled
from .....helpers.small_models import adder, classifier, determinant, noise

SOURCE = """
kernel void add(global float *x, float v, int n) { int i = get_global_id(0); if (i < n) x[i] += v; }
kernel void times(global float *x, float v, int n) { int i = get_global_id(0); if (i < n) x[i] *= v; }
"""
N = 101
NAMES = (
    *("clCreateCommandBufferKHR", "clFinalizeCommandBufferKHR", "clReleaseCommandBufferKHR"),
    *("clCommandNDRangeKernelKHR", "clEnqueueCommandBufferKHR"),
)


@pytest.fixture(scope="module")
def recorder() -> Runtime:
    """The runtime of a device that can replay."""
    reasons = []
    for found in list_all().devices:
        replay = find_command_buffers(found.device)
        if isinstance(replay, CommandBuffers) and found.usable:
            return find_runtime(found.info.id)
        reasons.append(f"{found.info.name}: {replay}")
    pytest.skip("; ".join(reasons))


@pytest.fixture(autouse=True)
def record_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_REPLAY", "1")


class Chain:
    """x = (x + 1) * 2 + 3 as three launches."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.program = rt.build(SOURCE, "", "test")
        self.x = rt.allocate(4 * N)
        rt.write(self.x, np.ones(N, np.float32))
        args = [self.x, np.float32(1), np.int32(N)], [self.x, np.float32(2), np.int32(N)]
        self.add = rt.prepare(self.program, "add", args[0], (104,), (8,), "first")
        self.times = rt.prepare(self.program, "times", args[1], (N,), None, "second")
        self.three = rt.prepare(self.program, "add", [self.x, np.float32(3), np.int32(N)], (N,), None, "third")
        self.launches: list[PreparedLaunch] = [self.add, self.times, self.three]

    def record(self, replay: CommandBuffers | None) -> LaunchSequence:
        rt = self.rt
        options: dict[str, Any] = {"device": rt.info.name, "counters": rt.counters}
        return LaunchSequence(rt.queue, self.launches, flush_every=2, holds_gil=False, replay=replay, **options)

    def value(self) -> float:
        """The value that all elements have."""
        out = np.empty(N, np.float32)
        self.rt.read(self.x, out)
        assert np.all(out == out[0])
        return float(out[0])


def expected(runs: int) -> float:
    x = 1.0
    for _ in range(runs):
        x = (x + 1) * 2 + 3
    return x


def fake(rt: Runtime, **codes: int) -> CommandBuffers:
    """A driver's extension that records nothing; each call returns the code given for it, else success."""

    def answer(name: str) -> Callable[..., Any]:
        def call(*args: Any) -> int:
            if name == "clCreateCommandBufferKHR":
                args[-1]._obj.value = codes.get(name, 0)
                return 1
            return codes.get(name, 0)

        return call

    return CommandBuffers((0, 9, 4), True, {name: answer(name) for name in NAMES})


def done_by(rt: Runtime, work: Callable[[], Any]) -> Counters:
    before = settled(rt)
    work()
    return rt.counters - before


# With the extension


def test_the_first_run_enqueues_the_second_records_and_all_further_ones_replay(recorder: Runtime) -> None:
    chain = Chain(recorder)
    recording = recorder.record(chain.launches, replay=True)
    assert recording.replays
    assert done_by(recorder, recording.run) == Counters(enqueues=3)
    assert done_by(recorder, recording.run) == Counters(enqueues=3, recordings=1, replays=1)
    assert done_by(recorder, recording.run) == Counters(enqueues=3, replays=1)
    recorder.finish()
    assert chain.value() == expected(3)


@pytest.mark.parametrize("overlaps", [True, False])
def test_replays_that_are_not_waited_for_run_in_order(recorder: Runtime, overlaps: bool) -> None:
    found = recorder.replay
    assert isinstance(found, CommandBuffers)
    calls = dict(
        zip(NAMES, (found.create, found.finalize, found.release, found.add_kernel, found.enqueue), strict=True)
    )
    chain = Chain(recorder)
    recording = chain.record(CommandBuffers(found.version, overlaps, calls))
    for _ in range(12):
        recording.run()
    assert chain.value() == expected(12)


def test_an_argument_set_later_is_recorded_anew(recorder: Runtime) -> None:
    chain = Chain(recorder)
    recording = recorder.record(chain.launches, replay=True)
    for _ in range(3):
        recording.run()
    chain.three.set_arg(1, np.float32(0))
    recording.invalidate()
    done = done_by(recorder, lambda: [recording.run() for _ in range(3)])
    assert (done.recordings, done.replays) == (1, 2)
    want = expected(3)
    for _ in range(3):
        want = (want + 1) * 2
    assert chain.value() == want


def test_a_single_launch_is_not_recorded(recorder: Runtime) -> None:
    chain = Chain(recorder)
    recording = recorder.record([chain.add], replay=True)
    assert not recording.replays
    assert not any(done_by(recorder, recording.run).replays for _ in range(3))


def test_a_launch_that_cannot_run_is_never_recorded(recorder: Runtime) -> None:
    chain = Chain(recorder)
    wrong = recorder.prepare(chain.program, "add", [chain.x, np.float32(1), np.int32(N)], (N,), (2,), "wrong")
    recording = recorder.record([chain.add, wrong], replay=True)
    before = recorder.counters.snapshot()
    for _ in range(3):
        with pytest.raises(DeviceError, match=r"Launching wrong with global size \(101,\)"):
            recording.run()
    assert (recorder.counters - before).recordings == 0


def test_closing_releases_command_buffers(recorder: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recorder.replay
    assert isinstance(found, CommandBuffers)
    released: list[int] = []
    release = found.release
    monkeypatch.setattr(found, "release", lambda handle: released.append(release(handle)))
    session = opalite.InferenceSession(classifier().SerializeToString(), device=recorder.info.id, precision="fp32")
    for _ in range(2):
        session.run(None, {"x": noise(1, 3, 8, 8)})
    session.close()
    gc.collect()
    assert released
    assert not any(released)


@pytest.mark.parametrize("make", [classifier, determinant, adder])
def test_sessions_replay_with_equal_results(recorder: Runtime, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make().SerializeToString()
    shapes = (
        {"x": [(1, 3, 16, 16), (2, 3, 9, 7)]}
        if make is classifier
        else {n: [(2, 3) if make is adder else (3, 3)] * 2 for n in "xz"}
    )

    def results(record: str) -> Iterator[Any]:
        monkeypatch.setenv("OPALITE_REPLAY", record)
        session = opalite.InferenceSession(model, device=recorder.info.id, precision="fp32")
        names = [a.name for a in session.get_inputs()]
        for i in range(8):
            yield session.run(None, {n: noise(*shapes[n][i // 4], seed=i) for n in names})[0]

    want = list(results("0"))
    before = recorder.counters.snapshot()
    got = list(results("1"))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
    if make is classifier:
        assert (recorder.counters - before).replays == 6


def test_explain_and_profile_say_that_launches_are_replayed(recorder: Runtime) -> None:
    session = opalite.InferenceSession(classifier().SerializeToString(), device=recorder.info.id, precision="fp32")
    feeds = {"x": noise(1, 3, 8, 8)}
    (sentence,) = session.explain(feeds).queueing
    assert "replayed as one command buffer from the second run on (cl_khr_command_buffer 0.9.4)" in sentence
    assert sentence in str(session.explain())
    assert session.profile(feeds, iterations=2).queueing == [sentence]


# On every device


def test_a_driver_that_refuses_to_record_is_left_alone(rt: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    chain = Chain(rt)
    recording = chain.record(fake(rt, clCommandNDRangeKernelKHR=-59))
    with caplog.at_level(logging.WARNING):
        done = done_by(rt, lambda: [recording.run() for _ in range(4)])
    assert (done.enqueues, done.recordings, done.replays) == (12, 0, 0)
    assert chain.value() == expected(4)
    assert not recording.replays
    assert "clCommandNDRangeKernelKHR failed with INVALID_OPERATION" in recording.refusal
    assert caplog.text.count("one by one") == 1


@pytest.mark.parametrize("name", ["clCreateCommandBufferKHR", "clFinalizeCommandBufferKHR"])
def test_every_refusal_is_told(rt: Runtime, name: str) -> None:
    recording = Chain(rt).record(fake(rt, **{name: -6}))
    recording.run()
    recording.run()
    assert f"{name} failed with OUT_OF_HOST_MEMORY" in recording.refusal


def test_a_replay_that_fails_is_an_error_that_names_the_launches(rt: Runtime) -> None:
    recording = Chain(rt).record(fake(rt, clEnqueueCommandBufferKHR=-5))
    recording.run()
    with pytest.raises(DeviceError, match=r"Replaying 3 launches from first on.*clEnqueueCommandBufferKHR"):
        recording.run()


def test_recording_can_be_switched_off(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPALITE_REPLAY", "0")
    chain = Chain(rt)
    recording = rt.record(chain.launches, replay=True)
    done = done_by(rt, lambda: [recording.run() for _ in range(3)])
    assert done == Counters(enqueues=9)
    assert chain.value() == expected(3)
    session = opalite.InferenceSession(classifier().SerializeToString(), device=rt.info.id, precision="fp32")
    (sentence,) = session.explain({"x": noise(1, 3, 8, 8)}).queueing
    assert sentence.endswith("enqueued one by one: OPALITE_REPLAY=0")


def test_a_cpu_replays_only_when_asked(recorder: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    if not recorder.info.on_host:
        pytest.skip(f"{recorder.info.name} is no CPU")
    monkeypatch.delenv("OPALITE_REPLAY")
    assert "OPALITE_REPLAY=1 turns it on" in str(recorder.replay)
    assert not recorder.record(Chain(recorder).launches, replay=True).replays
