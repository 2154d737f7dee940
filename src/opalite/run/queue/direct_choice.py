"""DirectChoice: decides by measurement whether the callers of an InferQueue compute short requests themselves."""

from __future__ import annotations

from ..execute.ab_timing import PairedTimes

SHORT_S = 2e-3
"""Mean seconds of a run above which threads compute requests: a caller may want to do something else meanwhile."""
STRETCH = 32
"""Requests that are timed one way before the next ones go the other way."""
SETTLING = 8
"""Requests after a change that are not timed: those before it are still under way."""
PAIRS = 5
AGAIN = 50_000
"""Requests after which the decision is measured again."""
GAIN = 0.97
"""Part of the time by threads that direct requests must not exceed."""


class DirectChoice:
    """Whether the next request is direct, that is, computed by the thread that starts it.

    To wake a thread takes about 50 us, more than the run of a small model; but threads overlap one request's transfers
    and the caller's own work with another's launches. Both ways are timed from request to request, in turn. is_direct:
    of the last request. The caller has a lock.
    """

    def __init__(self) -> None:
        self.is_direct = False
        self._restart()

    def _restart(self) -> None:
        self._times = PairedTimes()  # A by threads, B direct
        self._count = 0
        self._since = 0.0
        self._is_decided = False

    def decide(self, now: float, mean_s: float) -> bool:
        """`is_direct` of a request that is accepted at `now`. mean_s: seconds of a run."""
        if mean_s > SHORT_S:
            if self._count or self.is_direct:
                self._restart()
            self.is_direct = False
            return False
        self._count += 1
        if self._is_decided:
            if self._count == AGAIN:
                self._restart()
                self.is_direct = False
            return self.is_direct
        if self._count == SETTLING:
            self._since = now
        elif self._count == SETTLING + STRETCH:
            (self._times.b if self.is_direct else self._times.a).append(now - self._since)
            self._count = 0
            self._is_decided = self._times.pairs == PAIRS
            if self._is_decided:  # by the least: other load only adds to a stretch
                self.is_direct = min(self._times.b) <= GAIN * min(self._times.a)
            else:
                self.is_direct = self._times.is_b_next
        return self.is_direct
