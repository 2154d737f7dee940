"""Strategy: a way to run an Executable. Executable._choose says which one a run takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ....cl.memory.device_tensor import DeviceTensor
from ..run_trace import RunTrace


class Strategy(Protocol):
    """One of

    queue   launches handed to the device one by one (queue_strategy.py); also what profiles time
    replay  the launches between two transfers recorded and enqueued by one call, from the second run on (replay.py)
    loop    launches joined, which is built in the background for programs that run often (megakernel_strategy.py)
    persistent  launches linked into kernels that hold the whole device (persistent_kernel_strategy.py)
    repeat  that loop between two copies of memory that host and device share (host_fast_path.py)
    trips   for the body of a loop: the same again and again, what a trip gives being what the next takes
    (loop_iterations.py)
    """

    @property
    def name(self) -> str:
        """How a RunTrace calls it."""

    def run(self, hosts: list[Any], kept: Mapping[int, DeviceTensor]) -> RunTrace:
        """Run the program and wait.

        hosts: values by slot, inputs and constants filled in, where results go too. kept: outputs by slot that stay on
        the device.
        """

    def replay(self) -> None:
        """Repeat the launches on the inputs that are on the device, without transfers, and wait.

        OpaliteError where a host step stands between launches.
        """
