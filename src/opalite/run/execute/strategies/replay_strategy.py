"""ReplayStrategy: launches recorded once and replayed, on devices that have an extension for that."""

from __future__ import annotations

from ..launch_batches import Prepared, make_phases
from .queue_strategy import Queue


class ReplayStrategy(Queue):
    """As a queue, but for recordings, which are replayed from the second run on the same arguments on.

    Its runs say 'queue' where nothing is replayed: a driver may refuse to record, and one launch is none to record.
    """

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared, make_phases(prepared, replay=True))
