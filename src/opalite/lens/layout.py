"""layered_layout: positions of a graph's nodes in layers, bends of its long edges, frames around bodies of loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

_WIDTH = 8.0  # columns of a row of separate components
_BEND = 0.2  # columns that an edge takes beside a node
_GAP = 0.6  # columns and layers between frames

Point = tuple[float, float]
Edge = tuple[int, int]


@dataclass
class _Places:
    """Positions of some nodes and of the bends of their edges, from (0, 0) on."""

    nodes: dict[int, Point] = field(default_factory=dict)
    bends: dict[Edge, list[Point]] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0

    def add(self, other: _Places, x: float, y: float) -> None:
        """Add other places, moved by (x, y)."""

        def moved(p: Point) -> Point:
            return round(p[0] + x, 2), round(p[1] + y, 2)

        self.nodes.update((n, moved(p)) for n, p in other.nodes.items())
        self.bends.update((e, [moved(p) for p in points]) for e, points in other.bends.items())
        self.width, self.height = max(self.width, x + other.width), max(self.height, y + other.height)


def layered_layout(
    ids: Sequence[int], edges: Iterable[Edge], owners: Mapping[int, tuple[int, str]] | None = None
) -> dict[str, list[Any]]:
    """Columns `x` and layers `y` of the nodes `ids`, and edges as [from, to, bends]; edges to other nodes are left out.

    Separate components are placed from left to right, then in rows, by their first node. owners: of a node in a body,
    the node of control flow that has it, and the body's name. Each body is placed by itself in a frame, right of its
    owner: [name, owner, x, y, width, height].
    """
    owners = owners or {}
    known = set(ids)
    distinct = list(dict.fromkeys((a, b) for a, b in edges if a != b and a in known and b in known))
    groups: dict[tuple[int, str] | None, list[int]] = {None: []}
    for n in ids:
        groups.setdefault(owners.get(n), []).append(n)
    inner: dict[tuple[int, str] | None, list[Edge]] = {key: [] for key in groups}
    for a, b in distinct:
        if owners.get(a) == owners.get(b):
            inner[owners.get(a)].append((a, b))
    found = _Places()
    found.add(_place(groups.pop(None), inner[None]), 0.0, 0.0)
    frames = []
    depths: dict[int, int] = {}
    lefts, bottoms = {0: found.width}, dict[int, float]()
    for key, nodes in sorted(groups.items(), key=lambda item: _depth(item[1][0], owners, depths)):
        assert key is not None
        depth = _depth(nodes[0], owners, depths)
        body = _place(nodes, inner[key])
        x = max((end for d, end in lefts.items() if d < depth), default=0.0) + _GAP
        y = max(found.nodes.get(key[0], (0.0, 0.0))[1], bottoms.get(depth, 0.0))
        found.add(body, x, y)
        lefts[depth] = max(lefts.get(depth, 0.0), x + body.width)
        bottoms[depth] = y + body.height + _GAP
        frames.append([key[1], key[0], round(x, 2), round(y, 2), round(body.width, 2), round(body.height, 2)])
    return {
        "ids": list(ids),
        "x": [found.nodes[n][0] for n in ids],
        "y": [found.nodes[n][1] for n in ids],
        "edges": [[a, b, found.bends[a, b]] if found.bends.get((a, b)) else [a, b] for a, b in distinct],
        "frames": frames,
    }


def _depth(node: int, owners: Mapping[int, tuple[int, str]], depths: dict[int, int]) -> int:
    """The number of bodies around a node."""
    if node not in depths:
        depths[node] = 1 + _depth(owners[node][0], owners, depths) if node in owners else 0
    return depths[node]


def _place(ids: Sequence[int], edges: Sequence[Edge]) -> _Places:
    """Components from left to right, then in rows, by their first node."""
    known, found = set(ids), _Places()
    components = _components(edges)
    joined = {n for positions, _ in components for n in positions if n in known}
    components += [({n: (0.0, 0.0)}, {}) for n in ids if n not in joined]
    left = top = height = 0.0
    for positions, paths in sorted(components, key=lambda c: min(n for n in c[0] if n in known)):
        wide = max(x for x, _ in positions.values()) + 1
        tall = max(y for _, y in positions.values()) + 1
        if left and left + wide > _WIDTH:
            left, top, height = 0.0, top + height + 0.5, 0.0
        nodes = {n: p for n, p in positions.items() if n in known}
        bends = {edge: [positions[n] for n in path] for edge, path in paths.items()}
        found.add(_Places(nodes, bends, wide, tall), left, top)
        left, height = left + wide, max(height, tall)
    return found


_Component = tuple[dict[int, Point], dict[Edge, list[int]]]


def _components(edges: Sequence[Edge]) -> list[_Component]:
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


def _paths(pieces: Sequence[Edge], nodes: set[int]) -> dict[Edge, list[int]]:
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
