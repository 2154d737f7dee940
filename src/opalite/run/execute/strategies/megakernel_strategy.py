"""MegakernelStrategy: launches joined into megakernels, on the device's threads and perhaps the calling thread."""

from __future__ import annotations

from ....cl.queue.launch_sequence import LaunchSequence
from ....pocl.megakernel.host_thread_loop import HostThreadLoop
from ..launch_batches import LoadedProgram, make_phases
from .megakernel_builder import BuiltMegakernel
from .queue_strategy import Queue


class MegakernelStrategy(Queue):
    """A queue with the megakernels of a MegakernelBuilder in place of launches.

    A megakernel contains addresses: it serves runs whose inputs and outputs have the buffers that it was made with.
    """

    name = "megakernel"

    def __init__(self, prepared: LoadedProgram, megakernel: BuiltMegakernel) -> None:
        """megakernel: whose tables are those of the prepared program."""
        host_loop = megakernel.host_thread_loop
        super().__init__(
            prepared, make_phases(prepared, None if host_loop else megakernel.launches, host_loop, replay=True)
        )
        self.on_host_thread = host_loop is not None

    @property
    def host_thread_loop(self) -> HostThreadLoop | None:
        """The megakernel of all launches, if the calling thread executes it."""
        inner = [p for p in self.phases if isinstance(p, LaunchSequence | HostThreadLoop)]
        return inner[0] if len(inner) == 1 and isinstance(inner[0], HostThreadLoop) else None

    @property
    def description(self) -> str:
        """A phrase on the megakernels."""
        staying = [p.description for p in self.phases if isinstance(p, HostThreadLoop)]
        enqueued = sum(len(p.launches) for p in self.phases if isinstance(p, LaunchSequence))
        return f"joined by a megakernel; {staying[0]}" if staying else f"joined by megakernels into {enqueued}"
