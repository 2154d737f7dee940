"""ReplayStrategy: launches recorded once and replayed as command buffers, on devices that have them."""

from __future__ import annotations

from ...cl.launch import Recording
from .phases import Prepared, make_phases
from .queue import Queue


class ReplayStrategy(Queue):
    """As a queue, but for recordings, which are replayed from the second run on the same arguments on."""

    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared, make_phases(prepared, replay=True))
        self._recordings = [p for p in self.phases if isinstance(p, Recording)]

    @property
    def name(self) -> str:  # type: ignore[override]
        """'queue' where nothing is replayed: a driver may refuse to record, and one launch is none to record."""
        return "replay" if any(r.replays for r in self._recordings) else "queue"
