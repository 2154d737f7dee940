"""A device whose context dies: on NVIDIA's GPUs by a kernel that writes where there is no memory, elsewhere by a double
that raises what NVIDIA's driver does from then on."""

from __future__ import annotations

import os
from typing import Any

import pyopencl as cl
import pytest

from opalite.cl import runtime
from opalite.cl.device.driver_errors import describe_code
from opalite.cl.runtime import Runtime
from opalite.errors import DeviceError
from opalite.run.execute.strategies.queue_strategy import Queue

DYING = "OPALITE_TEST_DYING"
"""Set in a process whose context may die: nothing else runs in it."""
FATAL = "kernel void fatal() { *(volatile global int *)16 = 1; }"


class LostDevice:
    """renews: whether the driver makes another context in the same process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rt: Runtime) -> None:
        self.renews = rt.info.family != "nvidia"
        self._dead: list[Runtime] = []
        self._monkeypatch = monkeypatch
        self._is_real = rt.info.family == "nvidia"
        is_responsive, run, init = Runtime.is_responsive, Queue.run, Runtime.__init__

        def answer(this: Runtime) -> bool:
            return this not in self._dead and is_responsive(this)

        def run_alive(this: Any, *given: Any) -> Any:
            if this.instance.rt in self._dead:
                raise self.error(this.instance.rt)
            return run(this, *given)

        def begin(this: Runtime, *given: Any) -> None:
            if self._dead and not self.renews:
                raise describe_code(-9999, "clCreateContext", "Opening a context", "it")
            init(this, *given)

        if not self._is_real:
            monkeypatch.setattr(Runtime, "is_responsive", answer)
            monkeypatch.setattr(Queue, "run", run_alive)
            monkeypatch.setattr(Runtime, "__init__", begin)
        monkeypatch.setattr(runtime, "_runtimes", {})  # other tests go on with what they have

    def error(self, rt: Runtime) -> DeviceError:
        """What a run gives from then on."""
        return describe_code(cl.status_code.INVALID_COMMAND_QUEUE, "clFinish", "Waiting for the device", rt.info.name)

    def replace_lost(self, renews: bool) -> None:
        """Have the driver make another context, or none, if this one can be had to."""
        if renews and self._is_real:
            pytest.skip("this driver makes no other context")
        self.renews = renews

    def fail(self, rt: Runtime) -> None:
        """What a command behind the fault gives."""
        if not self._is_real:
            raise self.error(rt)

    def kill(self, rt: Runtime) -> None:
        """The context dies, of which the next command is told."""
        if not self._is_real:
            self._dead.append(rt)
            return
        cl.enqueue_nd_range_kernel(rt.queue, cl.Kernel(rt.build(FATAL, ""), "fatal"), (1,), None)


@pytest.fixture
def lost_device(monkeypatch: pytest.MonkeyPatch, rt: Runtime) -> LostDevice:
    """Sessions of the test have Runtimes of their own, which may die.

    A real context that died takes the whole process's device with it, so that such a test is skipped but in a process
    of its own, where the environment holds DYING.
    """
    if rt.info.family == "nvidia" and DYING not in os.environ:
        pytest.skip("needs a process of its own: test_each_in_a_process_whose_device_dies")
    return LostDevice(monkeypatch, rt)
