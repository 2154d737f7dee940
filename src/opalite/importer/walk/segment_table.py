"""SegmentTable: the cached segments of a stage, by input signature."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .segments import Segment
    from .symbolic_dims import Arrival

SEGMENTS_KEPT = 32
"""Number of segments cached by one stage; the least recently used is dropped."""

_EXACT_KEPT = 256
"""Number of exact shapes for which the segment is cached."""


class SegmentTable:
    """LRU cache of segments. Not thread-safe."""

    def __init__(self) -> None:
        self._by_key: dict[Any, list[Segment]] = {}
        self._order: OrderedDict[Segment, Any] = OrderedDict()  # with its key, the last used at the end
        self._exact: OrderedDict[Any, tuple[Arrival, Segment, int]] = OrderedDict()  # with the guard count then

    def known(self, exact: Any) -> tuple[Arrival, Segment] | None:
        """Return the segment that served these exact shapes before, if its guards still hold, and the signature."""
        found = self._exact.get(exact)
        if found is None:
            return None
        arrival, segment, guards = found
        if guards != segment.guards_recorded:  # guards were added since
            if not segment.holds(arrival.sizes):
                return None
            self._exact[exact] = arrival, segment, segment.guards_recorded
        self._exact.move_to_end(exact)
        self._order.move_to_end(segment)
        return arrival, segment

    def find(self, arrival: Arrival) -> Segment | None:
        """Return the last used segment that serves the signature."""
        for segment in self._by_key.get(arrival.key, ()):
            if segment.holds(arrival.sizes):
                self._order.move_to_end(segment)
                return segment
        return None

    def keep(self, arrival: Arrival, segment: Segment) -> None:
        """Add a segment; drop the least recently used one if there are too many."""
        self._by_key.setdefault(arrival.key, []).insert(0, segment)
        self._order[segment] = arrival.key
        if len(self._order) > SEGMENTS_KEPT:
            oldest, key = self._order.popitem(last=False)
            self._by_key[key].remove(oldest)
            if not self._by_key[key]:
                del self._by_key[key]
            for exact in [e for e, (_, s, _) in self._exact.items() if s is oldest]:
                del self._exact[exact]

    def remember(self, exact: Any, segment: Segment, arrival: Arrival) -> None:
        """Map the exact shapes to `segment`."""
        self._exact[exact] = arrival, segment, -1
        if len(self._exact) > _EXACT_KEPT:
            self._exact.popitem(last=False)
