"""map_record changes parts of nested records, and keeps everything else by identity."""

from __future__ import annotations

from dataclasses import dataclass, field

from opalite.ir.map_record import map_record


@dataclass(frozen=True)
class Leaf:
    number: int


@dataclass(frozen=True)
class Tree:
    name: str
    parts: tuple[object, ...]
    count: int = field(init=False, default=3)


def test_only_what_changes_is_made_anew() -> None:
    kept, leaf = Tree("kept", (Leaf(1), [2, "x"])), Leaf(7)
    found = map_record(Tree("t", (kept, leaf, {"a": leaf})), lambda x: 8 if x is leaf else x)
    assert found == Tree("t", (kept, 8, {"a": 8}))
    assert found.parts[0] is kept


def test_a_record_without_such_parts_is_returned() -> None:
    tree = Tree("t", (Leaf(1), [Leaf(2)], (None, 1.0, b"")))
    assert map_record(tree, lambda x: x) is tree
