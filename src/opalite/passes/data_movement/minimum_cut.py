"""Minimum cut of a graph with two terminals (Edmonds and Karp, 1972)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

Edge = tuple[Hashable, Hashable, float]
"""(from, to, cost of having `from` on the source's side and `to` on the sink's)."""


def minimum_cut(edges: Iterable[Edge], source: Hashable, sink: Hashable) -> set[Hashable]:
    """The source's side of a cut of least cost; of several, the one with the fewest vertices."""
    room: dict[Hashable, dict[Hashable, float]] = {source: {}, sink: {}}
    for a, b, cost in edges:
        room.setdefault(a, {})
        room.setdefault(b, {}).setdefault(a, 0.0)
        room[a][b] = room[a].get(b, 0.0) + cost
    while True:
        before = _reached(room, source, sink)
        if sink not in before:
            return set(before)
        path = [sink]
        while path[-1] != source:
            path.append(before[path[-1]])
        steps = list(zip(path[1:], path[:-1], strict=True))
        flow = min(room[a][b] for a, b in steps)
        for a, b in steps:
            room[a][b] -= flow
            room[b][a] += flow


def _reached(room: dict[Hashable, dict[Hashable, float]], source: Hashable, sink: Hashable) -> dict[Hashable, Hashable]:
    """Each vertex that a path with room leads to, with the vertex before it; the search ends at the sink."""
    before: dict[Hashable, Hashable] = {source: source}
    waiting = deque([source])
    while waiting and sink not in before:
        a = waiting.popleft()
        for b, left in room[a].items():
            if left > 0 and b not in before:
                before[b] = a
                waiting.append(b)
    return before
