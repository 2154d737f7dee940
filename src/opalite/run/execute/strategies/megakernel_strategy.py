"""MegakernelStrategy: launches joined by step loops, which the device's threads walk, or the calling thread with
them."""

from __future__ import annotations

from ....cl.queue.prepared_launch import LaunchSequence
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..launch_batches import Prepared, make_phases
from .megakernel_builder import BuiltMegakernel
from .queue_strategy import Queue


class MegakernelStrategy(Queue):
    """As a queue, with what the LoopBuilder made in the launches' place.

    Memory that is bound after that the loops do not see: they serve runs whose inputs and outputs lie where they lay.
    """

    name = "loop"

    def __init__(self, prepared: Prepared, megakernel: BuiltMegakernel) -> None:
        """megakernel: in use by the prepared program."""
        walked = megakernel.host_thread_loop
        super().__init__(prepared, make_phases(prepared, None if walked else megakernel.launches, walked, replay=True))
        self.on_host_thread = walked is not None

    @property
    def host_thread_loop(self) -> HostThreadLoop | None:
        """The loop of all launches, if the host walks one."""
        inner = [p for p in self.phases if isinstance(p, LaunchSequence | HostThreadLoop)]
        return inner[0] if len(inner) == 1 and isinstance(inner[0], HostThreadLoop) else None

    @property
    def description(self) -> str:
        """How launches are joined, in words."""
        staying = [p.description for p in self.phases if isinstance(p, HostThreadLoop)]
        enqueued = sum(len(p.launches) for p in self.phases if isinstance(p, LaunchSequence))
        return f"joined by a step loop; {staying[0]}" if staying else f"joined by step loops into {enqueued}"
