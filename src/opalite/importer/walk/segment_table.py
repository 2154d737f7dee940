"""SegmentTable: the segments that a stage keeps, found by what arrives."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .segments import Segment
    from .symbolic_dims import Arrival

SEGMENTS_KEPT = 32
"""Segments that one stage keeps; the least recently used goes first."""

_EXACT_KEPT = 256
"""Shapes for which the segment is remembered."""


class SegmentTable:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._by_key: dict[Any, list[Segment]] = {}
        self._order: OrderedDict[Segment, Any] = OrderedDict()  # with its key, the latest used last
        self._exact: OrderedDict[Any, tuple[Arrival, Segment, int]] = OrderedDict()  # and its guards then

    def known(self, exact: Any) -> tuple[Arrival, Segment] | None:
        """The segment that served these very shapes before, if it still does, with what arrived then."""
        found = self._exact.get(exact)
        if found is None:
            return None
        arrival, segment, guards = found
        if guards != segment.guards_recorded:  # more than when it was last asked
            if not segment.holds(arrival.sizes):
                return None
            self._exact[exact] = arrival, segment, segment.guards_recorded
        self._exact.move_to_end(exact)
        self._order.move_to_end(segment)
        return arrival, segment

    def find(self, arrival: Arrival) -> Segment | None:
        """The segment used last among those that serve what arrived."""
        for segment in self._by_key.get(arrival.key, ()):
            if segment.holds(arrival.sizes):
                self._order.move_to_end(segment)
                return segment
        return None

    def keep(self, arrival: Arrival, segment: Segment) -> None:
        """Add a segment; the one not used for longest goes if there are too many."""
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
        """Find `segment` at once for these shapes from now on."""
        self._exact[exact] = arrival, segment, -1
        if len(self._exact) > _EXACT_KEPT:
            self._exact.popitem(last=False)
