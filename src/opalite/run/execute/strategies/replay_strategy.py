"""ReplayStrategy: launches recorded once and replayed, on devices with a driver extension for that."""

from __future__ import annotations

from ..launch_batches import LoadedProgram, make_phases
from .queue_strategy import Queue


class ReplayStrategy(Queue):
    """A queue whose launches are replayed from the second run with the same arguments on.

    Its trace says 'queue' if nothing is replayed: a driver may refuse to record, and a single launch is not recorded.
    """

    def __init__(self, prepared: LoadedProgram) -> None:
        super().__init__(prepared, make_phases(prepared, replay=True))
