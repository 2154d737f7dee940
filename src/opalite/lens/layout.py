"""layered_layout: positions of a graph's nodes in layers, and bends of its long edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

_WIDTH = 8.0  # columns of a row of separate components
_BEND = 0.2  # columns that an edge takes beside a node


def layered_layout(ids: Sequence[int], edges: Iterable[tuple[int, int]]) -> dict[str, list[Any]]:
    """Columns `x` and layers `y` of the nodes `ids`, and edges as [from, to, bends]; edges to other nodes are left out.

    Separate components are placed from left to right, then in rows, by their first node.
    """
    known = set(ids)
    distinct = list(dict.fromkeys((a, b) for a, b in edges if a != b and a in known and b in known))
    components = _components(distinct)
    joined = {n for positions, _ in components for n in positions if n in known}
    components += [({n: (0.0, 0.0)}, {}) for n in ids if n not in joined]
    places: dict[int, tuple[float, float]] = {}
    bends: dict[tuple[int, int], list[tuple[float, float]]] = {}
    left = top = height = 0.0
    for positions, paths in sorted(components, key=lambda c: min(n for n in c[0] if n in known)):
        wide = max(x for x, _ in positions.values()) + 1
        tall = max(y for _, y in positions.values()) + 1
        if left and left + wide > _WIDTH:
            left, top, height = 0.0, top + height + 0.5, 0.0
        moved = {n: (round(x + left, 2), round(y + top, 2)) for n, (x, y) in positions.items()}
        places.update((n, p) for n, p in moved.items() if n in known)
        bends.update((edge, [moved[n] for n in path]) for edge, path in paths.items())
        left, height = left + wide, max(height, tall)
    return {
        "ids": list(ids),
        "x": [places[n][0] for n in ids],
        "y": [places[n][1] for n in ids],
        "edges": [[a, b, bends[a, b]] if bends.get((a, b)) else [a, b] for a, b in distinct],
    }


_Component = tuple[dict[int, tuple[float, float]], dict[tuple[int, int], list[int]]]


def _components(edges: Sequence[tuple[int, int]]) -> list[_Component]:
    """The connected components: positions of nodes and of bends, which have further numbers, and each edge's bends."""
    if not edges:
        return []
    # The library numbers bends from the number of its nodes on, so that these are numbered densely first.
    numbers = {n: i for i, n in enumerate(dict.fromkeys(n for edge in edges for n in edge))}
    names = list(numbers)
    bend = max(names) + 1 - len(names)
    sugiyama = import_module("fast_sugiyama")
    components = sugiyama.from_edges(
        [(numbers[a], numbers[b]) for a, b in edges], vertex_spacing=1, dummy_vertices=True, dummy_size=_BEND
    )

    def name(number: int) -> int:
        return names[number] if number < len(names) else number + bend

    found: list[_Component] = []
    for positions, _, _, pieces in components:
        low_x = min(x for _, (x, _) in positions)
        high_y = max(y for _, (_, y) in positions)
        found.append(
            (
                {name(n): (x - low_x, high_y - y) for n, (x, y) in positions},
                _paths([(name(a), name(b)) for a, b in pieces or ()], set(names)),
            )
        )
    return found


def _paths(pieces: Sequence[tuple[int, int]], nodes: set[int]) -> dict[tuple[int, int], list[int]]:
    """The bends of each edge, joined from its pieces; a bend has one piece that ends and one that begins at it."""
    after = {a: b for a, b in pieces if a not in nodes}
    paths = {}
    for start, end in pieces:
        if start not in nodes:
            continue
        path = []
        while end not in nodes:
            path.append(end)
            end = after[end]
        paths[start, end] = path
    return paths
