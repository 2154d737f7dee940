"""Hints to the driver reach it as properties of contexts and queues: with a double of the extensions over each device.

Never run on a device that has them.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime, find_runtime
from opalite.errors import BindingError, InputError

from ....helpers.hint_driver import use_hint_driver
from ....helpers.small_models import classifier, noise

QUALCOMM = ("cl_qcom_perf_hint", "cl_qcom_priority_hint")
KHRONOS = ("cl_khr_throttle_hints", "cl_khr_priority_hints")
FEEDS = {"x": noise(1, 3, 8, 8)}


def open_session(rt: Runtime, **options: str) -> opalite.InferenceSession:
    return opalite.InferenceSession(classifier().SerializeToString(), device=rt.info.id, precision="fp32", **options)


def test_qualcomm_s_go_with_the_context(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    want = open_session(rt).run(None, FEEDS)
    driver = use_hint_driver(monkeypatch, rt.info.id, QUALCOMM)
    session = open_session(rt, performance="high", priority="low")
    got = session.run(None, FEEDS)
    assert driver.contexts == [[(0x40C2, 0x40C3), (0x40C9, 0x40CC)]]
    assert driver.queues == []
    np.testing.assert_array_equal(got[0], want[0])
    notes = session.explain(FEEDS).notes
    assert "performance 'high' is given to the driver by cl_qcom_perf_hint" in notes
    assert "priority 'low' is given to the driver by cl_qcom_priority_hint" in notes


def test_khronos_s_go_with_every_queue(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    want = open_session(rt).run(None, FEEDS)
    driver = use_hint_driver(monkeypatch, rt.info.id, KHRONOS)
    session = open_session(rt, performance="low", priority="high")
    np.testing.assert_array_equal(session.run(None, FEEDS)[0], want[0])
    hints = [(0x1097, 4), (0x1096, 1)]
    assert driver.queues == [hints]
    assert driver.contexts == []
    session.profile(FEEDS, iterations=1)
    assert driver.queues == [hints, hints]
    assert driver.flags == [2]  # CL_QUEUE_PROFILING_ENABLE


def test_sessions_with_equal_hints_share_a_runtime(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use_hint_driver(monkeypatch, rt.info.id, QUALCOMM)
    first, second = open_session(rt, performance="high"), open_session(rt, performance="high")
    other, plain = open_session(rt, performance="low"), open_session(rt)
    assert first.runtime is second.runtime
    assert len({id(s.runtime) for s in (first, other, plain)}) == 3
    assert driver.contexts == [[(0x40C2, 0x40C3)], [(0x40C2, 0x40C5)]]
    value = opalite.OrtValue.ortvalue_from_numpy(FEEDS["x"], "opencl")
    with pytest.raises(BindingError, match="other hints than the session's"):
        other.run(None, {"x": value})
    monkeypatch.setenv("OPALITE_PERFORMANCE", "low")
    assert find_runtime(rt.info.id) is other.runtime
    other.run(None, {"x": opalite.OrtValue.ortvalue_from_numpy(FEEDS["x"], "opencl")})


def test_what_the_device_does_not_list_is_said_and_nothing_else(rt: Runtime) -> None:
    session = open_session(rt, performance="high", priority="low")
    if any(rt.info.has(e) for e in (*QUALCOMM, *KHRONOS)):
        pytest.skip(f"{rt.info.name} takes hints")
    assert session.runtime is rt
    notes = session.explain(FEEDS).notes
    assert any(n.startswith(f"performance 'high' has no effect: {rt.info.title} lists neither") for n in notes)
    assert any(n.startswith("priority 'low' has no effect") for n in notes)


@pytest.mark.parametrize(
    "extensions, refuses", [(QUALCOMM, "clCreateContext"), (KHRONOS, "clCreateCommandQueueWithProperties")]
)
def test_a_driver_that_lists_hints_and_refuses_them(
    rt: Runtime,
    extensions: tuple[str, ...],
    refuses: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    use_hint_driver(monkeypatch, rt.info.id, extensions, refuses)
    with caplog.at_level(logging.WARNING):
        session = open_session(rt, performance="high", priority="high")
    assert caplog.text.count("hints have no effect") == 1
    session.run(None, FEEDS)
    (note,) = (n for n in session.explain(FEEDS).notes if "hint" in n)
    assert f"{refuses} failed with" in note


def test_providers_options_say_them_too(rt: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = use_hint_driver(monkeypatch, rt.info.id, QUALCOMM)
    options = {"device": rt.info.id, "performance": "normal"}
    opalite.InferenceSession(
        classifier().SerializeToString(), providers=[("OpenCLExecutionProvider", options)], precision="fp32"
    )
    assert driver.contexts == [[(0x40C2, 0x40C4)]]
    with pytest.raises(InputError, match="priority 'first' is unknown"):
        open_session(rt, priority="first")
