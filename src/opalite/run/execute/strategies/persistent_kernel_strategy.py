"""PersistentKernelStrategy: launches linked into persistent kernels.

The groups of a persistent kernel stay from the first step to the last. A group that waits too long for another one
gives up; the run is then repeated launch by launch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .... import knobs
from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.inline_upload import InlineUpload
from ....cl.queue.launch_sequence import LaunchSequence
from ....cl.runtime import Runtime
from ....errors import DeviceError
from ....plan.template.dynamic_parameters import Values
from ..run_trace import RunTrace
from ..shape_instance import ShapeInstance
from .queue_strategy import Queue

if TYPE_CHECKING:
    from .linked_ptx_kernels import LinkedKernels

_log = logging.getLogger(__name__)


class PersistentKernelStrategy(Queue):
    """A queue with linked kernels in place of most launches. failure: why it must not be used any more."""

    name = "persistent"

    def __init__(self, instance: ShapeInstance, kernels: LinkedKernels) -> None:
        super().__init__(instance, kernels.launches)
        self.kernels = kernels
        self.failure = ""
        self._is_whole = instance.launches.keys() <= kernels.launches.keys()  # no other launch has arguments

    def begin(self, values: Values = (), in_flight: int = 0, uploads: InlineUpload | None = None) -> bool:
        """See Queue.begin."""
        kernels = self.kernels
        if not kernels.bind(self.instance.io.bound):
            return False
        if kernels.table is not None and not kernels.table.write(values, in_flight, uploads):
            return False
        if self._is_whole:
            self._values = values or self._values
            return True
        return super().begin(values)  # of launches that are not linked

    def run(
        self,
        host_values: list[Any],
        on_device: Mapping[int, DeviceTensor],
        values: Values = (),
        meanwhile: Callable[[], None] | None = None,
    ) -> RunTrace:
        """See Strategy.run."""
        rt, plain = self.instance.rt, self.instance.selector.plain
        was_lost = rt.lost
        try:
            trace = super().run(host_values, on_device, values, meanwhile)
        except DeviceError as e:
            if not was_lost and rt.check_lost(e):
                self.kernels.record_failure(f"a run of it ended the context ({rt.lost})")
            raise
        return plain.run(host_values, on_device, values) if self._gives_up() else trace

    def _enqueue(self, recording: LaunchSequence) -> bool:
        super()._enqueue(recording)
        return False

    def _before_downloads(self) -> None:
        # 7 to 10 us on an H200, for bound runs too: what they give is valid only if no wait between groups timed out.
        # A replay returns no results and does not read the flag, which stays set until the next run.
        self.kernels.enqueue_flag_read()

    def finish(self) -> bool:
        """See Queue.finish."""
        self.kernels.enqueue_flag_read()
        return super().finish() and not self._gives_up()

    def _gives_up(self) -> bool:
        if not self.kernels.has_failed():
            return False
        self.failure = "the device did not run all groups of the linked kernel at once"
        _log.warning("launches are enqueued one by one from now on: %s", self.failure)
        return True


def may_link(rt: Runtime) -> bool:
    """Whether launches may be linked on this device: a tested device, and not turned off by a knob."""
    return knobs.allows_strategy("persistent") and rt.info.links_launches
