"""Sessions recover from the loss of their device's context, which tests/helpers/lost_device.py simulates."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import opalite
from opalite.cl.runtime import Runtime
from opalite.errors import DeviceError, DeviceLostError, InputError
from opalite.run.execute.strategies.queue_strategy import Queue

from .....helpers.decoders import KINDS, feeds_of
from .....helpers.linked_double import Double, double
from .....helpers.lost_device import DYING, LostDevice, lost_device
from .....helpers.small_models import classifier

__all__ = ["double", "lost_device"]
X = {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}
Y = {"x": X["x"] + 1}


def opened(rt: Runtime, model: bytes | None = None) -> opalite.InferenceSession:
    raw = classifier((1, 3, 8, 8)).SerializeToString() if model is None else model
    return opalite.InferenceSession(raw, device=rt.info.id, precision="fp32")


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "is dead" in r.getMessage() and r.levelno == logging.WARNING]


@pytest.mark.parametrize("renews", [True, False])
def test_every_session_recovers(
    rt: Runtime, lost_device: LostDevice, caplog: pytest.LogCaptureFixture, renews: bool
) -> None:
    lost_device.replace_lost(renews)
    with opened(rt) as first, opened(rt) as second:
        want = [first.run(None, x)[0] for x in (X, Y)]
        second.run(None, X)
        lost_device.kill(first.runtime)
        for session in (first, second, first, second):
            for x, y in zip((X, Y), want, strict=True):
                np.testing.assert_array_equal(session.run(None, x)[0], y)
        with opened(rt) as later:
            np.testing.assert_array_equal(later.run(None, Y)[0], want[1])
        assert len(warnings_of(caplog)) == 1
        assert ("models are loaded again" in warnings_of(caplog)[0]) is renews


@pytest.mark.parametrize("renews", [True, False])
def test_a_linked_kernel_that_dies_is_not_launched_again(
    rt: Runtime, lost_device: LostDevice, double: type[Double], monkeypatch: pytest.MonkeyPatch, renews: bool
) -> None:
    lost_device.replace_lost(renews)
    with opened(rt) as session:
        want = session.run(None, X)[0]
        for _ in range(3):
            for _ in range(30):
                session.run(None, X)
            session.settle()
        assert session.last_trace.strategy == "persistent"
        kernels = double.made[-1]
        monkeypatch.setattr(kernels, "read_table", lambda: lost_device.kill(session.runtime))
        monkeypatch.setattr(kernels, "enqueue_flag_read", lambda: lost_device.fail(session.runtime))
        np.testing.assert_array_equal(session.run(None, X)[0], want)
        assert session.last_trace.strategy == ("queue" if renews else "process")
        assert "ended the context" in kernels.condemned


def test_a_linked_kernel_that_dies_in_its_first_run(
    rt: Runtime, lost_device: LostDevice, double: type[Double], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(double, "read_table", lambda self: lost_device.kill(self._rt))
    monkeypatch.setattr(double, "enqueue_flag_read", lambda self: lost_device.fail(self._rt))
    with opened(rt) as session:
        want = session.run(None, X)[0]
        for _ in range(10):
            np.testing.assert_array_equal(session.run(None, X)[0], want)
            session.settle()
            if double.made and double.made[0].condemned:
                break
        assert double.made[0].condemned
        np.testing.assert_array_equal(session.run(None, X)[0], want)


def test_what_lay_on_the_device_is_lost(rt: Runtime, lost_device: LostDevice) -> None:
    lost_device.replace_lost(True)
    with opened(rt) as session:
        want = session.run(None, X)[0]
        name = session.get_outputs()[0].name
        binding = session.io_binding()
        value = opalite.OrtValue.ortvalue_from_numpy(X["x"], "opencl")
        binding.bind_ortvalue_input("x", value)
        binding.bind_output(name, "opencl")
        session.run_with_iobinding(binding)
        lost_device.kill(session.runtime)
        with pytest.raises(DeviceLostError, match="make it anew"):
            session.run_with_iobinding(binding)
        with pytest.raises(DeviceLostError, match="make it anew"):
            session.run(None, {"x": value})
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", opalite.OrtValue.ortvalue_from_numpy(X["x"], "opencl"))
        binding.bind_output(name, "opencl")
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)


def test_a_state_is_lost(rt: Runtime, lost_device: LostDevice) -> None:
    lost_device.replace_lost(True)
    with opened(rt, KINDS["llama"]()) as session:
        state = session.state(reserve=64)
        tokens = np.array([[5]])
        want = [state.run(feeds_of("llama", tokens, len(state)))[0] for _ in range(3)]
        lost_device.kill(session.runtime)
        for _ in range(2):
            with pytest.raises(DeviceLostError, match="make it anew"):
                state.run(feeds_of("llama", tokens, 3))
        state = session.state(reserve=64)
        for y in want:
            np.testing.assert_array_equal(state.run(feeds_of("llama", tokens, len(state)))[0], y)


def test_what_needs_the_device_where_no_context_is_made(rt: Runtime, lost_device: LostDevice) -> None:
    lost_device.replace_lost(False)
    with opened(rt, KINDS["llama"]()) as session:
        state = session.state(reserve=64)
        state.run(feeds_of("llama", np.array([[5]]), 0))
        lost_device.kill(session.runtime)
        with pytest.raises(DeviceLostError, match="start the process again"):
            state.run(feeds_of("llama", np.array([[5]]), 1))
        with pytest.raises(DeviceLostError, match="start the process again"):
            session.state(reserve=64).run(feeds_of("llama", np.array([[5]]), 0))


def test_errors_of_a_run_elsewhere_are_those_of_a_run_here(rt: Runtime, lost_device: LostDevice) -> None:
    lost_device.replace_lost(False)
    with opened(rt) as session:
        want = session.run(None, X)[0]
        lost_device.kill(session.runtime)
        with pytest.raises(InputError, match="x"):
            session.run(None, {"x": X["x"][0]})
        np.testing.assert_array_equal(session.run(None, X)[0], want)
        assert session._fallback_process is not None
        assert session._fallback_process._process is not None
        session._fallback_process._process.kill()
        session._fallback_process._process.wait()
        np.testing.assert_array_equal(session.run(None, X)[0], want)


def test_an_error_of_a_living_device_is_raised(
    rt: Runtime, lost_device: LostDevice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(rt) as session:
        session.run(None, X)

        def fail(self: Any, *given: Any) -> None:
            raise DeviceError("out of resources")

        with monkeypatch.context() as patch:
            patch.setattr(Queue, "run", fail)
            with pytest.raises(DeviceError, match="out of resources"):
                session.run(None, X)
        session.run(None, X)
        assert not warnings_of(caplog)


@pytest.mark.parametrize("renews", [True, False])
def test_threads_recover(rt: Runtime, lost_device: LostDevice, caplog: pytest.LogCaptureFixture, renews: bool) -> None:
    lost_device.replace_lost(renews)
    with opened(rt) as session:
        want = session.run(None, X)[0]
        wrong: list[Any] = []
        half = threading.Barrier(3)

        def work() -> None:
            try:
                for i in range(20):
                    if i == 10:
                        half.wait()
                        half.wait()
                    np.testing.assert_array_equal(session.run(None, X)[0], want)
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads:
            t.start()
        half.wait()
        lost_device.kill(session.runtime)
        half.wait()
        for t in threads:
            t.join()
        assert not wrong
        assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("name", [n for n in list(globals()) if n.startswith("test_")])
def test_each_in_a_process_whose_device_dies(rt: Runtime, name: str) -> None:
    if rt.info.family != "nvidia" or DYING in os.environ:
        pytest.skip("elsewhere a double dies, in this process")
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", f"{__file__}::{name}"]
    done = subprocess.run(command, env=os.environ | {DYING: "1", "OPALITE_DEVICE": rt.info.id}, capture_output=True)
    assert done.returncode == 0, done.stdout.decode()[-4000:]
