"""Loop: launches joined by step loops, which the device's threads walk, or the calling thread with them."""

from __future__ import annotations

from ....cl.queue.prepared_launch import Recording
from ....pocl.megakernel.host_thread_loop import HostLoop
from ..launch_batches import Prepared, make_phases
from .megakernel_builder import Joined
from .queue_strategy import Queue


class Loop(Queue):
    """As a queue, with what the LoopBuilder made in the launches' place.

    Memory that is bound after that the loops do not see: they serve runs whose inputs and outputs lie where they lay.
    """

    name = "loop"

    def __init__(self, prepared: Prepared, joined: Joined) -> None:
        """joined: in use by the prepared program."""
        walked = joined.host_loop
        super().__init__(prepared, make_phases(prepared, None if walked else joined.launches, walked, replay=True))
        self.stays = walked is not None

    @property
    def host_loop(self) -> HostLoop | None:
        """The loop of all launches, if the host walks one."""
        inner = [p for p in self.phases if isinstance(p, Recording | HostLoop)]
        return inner[0] if len(inner) == 1 and isinstance(inner[0], HostLoop) else None

    @property
    def description(self) -> str:
        """How launches are joined, in words."""
        staying = [p.description for p in self.phases if isinstance(p, HostLoop)]
        enqueued = sum(len(p.launches) for p in self.phases if isinstance(p, Recording))
        return f"joined by a step loop; {staying[0]}" if staying else f"joined by step loops into {enqueued}"
