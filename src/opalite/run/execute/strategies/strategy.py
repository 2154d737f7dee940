"""Strategy: a way to run an Executable. StrategySelector selects one for each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ....cl.memory.device_tensor import DeviceTensor
from ....plan.template.dynamic_parameters import Values
from ..run_trace import RunTrace


class Strategy(Protocol):
    """A way to run an Executable. By their names:

    queue            launches enqueued one by one, also in profiles (queue_strategy.py)
    replay           launches between two transfers, recorded, and enqueued by one call (queue_strategy.py)
    megakernel       launches joined into one kernel, for programs that run often (megakernel_strategy.py)
    persistent       launches linked into kernels that occupy the whole device (persistent_kernel_strategy.py)
    host_fast_path   a megakernel between two copies of memory that host and device share (host_fast_path.py)
    loop_iterations  the body of a loop, with loop-carried values on the device (loop_iterations.py)
    """

    @property
    def name(self) -> str:
        """Its name in a RunTrace."""

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """Run the program with the buffers that are bound to its slots, and wait.

        host_values: by slot on the host: inputs and constants; gets the outputs. on_device: tensors of outputs, by slot
        on the host, that stay on the device. values: dynamic parameters. meanwhile: called while the device computes.
        """

    def replay(self) -> None:
        """Repeat the launches on the inputs that are on the device, without transfers, and wait.

        Raises OpaliteError if a host operator is between launches.
        """
