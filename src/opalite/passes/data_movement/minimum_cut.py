"""Minimum cut of a graph with two terminals (Edmonds and Karp, 1972)."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import pairwise

Edge = tuple[Hashable, Hashable, float]
"""(from, to, cost of having `from` on the source's side and `to` on the sink's)."""


def minimum_cut(edges: Iterable[Edge], source: Hashable, sink: Hashable) -> set[Hashable]:
    """The source's side of a cut of least cost; of several, the one with the fewest vertices.

    Paths are searched from the terminal with fewer neighbours: where most vertices are tied to the other one, the
    search soon meets it.
    """
    room: dict[Hashable, dict[Hashable, float]] = {source: {}, sink: {}}
    for a, b, cost in edges:
        room.setdefault(a, {})
        room.setdefault(b, {}).setdefault(a, 0.0)
        room[a][b] = room[a].get(b, 0.0) + cost
    backward = len(room[sink]) < len(room[source])
    first, last = (sink, source) if backward else (source, sink)
    while True:
        before = _reached(room, first, last, backward)
        if last not in before:
            return set(_reached(room, source, sink, False) if backward else before)
        path = [last]
        while path[-1] != first:
            path.append(before[path[-1]])
        steps = list(pairwise(path if backward else path[::-1]))
        flow = min(room[a][b] for a, b in steps)
        for a, b in steps:
            room[a][b] -= flow
            room[b][a] += flow


def _reached(
    room: dict[Hashable, dict[Hashable, float]], first: Hashable, last: Hashable, backward: bool
) -> dict[Hashable, Hashable]:
    """Each vertex that a path with room leads to, with the vertex before it; the search ends at `last`.

    backward: paths lead to `first`, not from it.
    """
    before: dict[Hashable, Hashable] = {first: first}
    waiting = deque([first])
    while waiting and last not in before:
        a = waiting.popleft()
        for b, left in room[a].items():
            if b not in before and (room[b][a] if backward else left) > 0:
                before[b] = a
                waiting.append(b)
    return before
