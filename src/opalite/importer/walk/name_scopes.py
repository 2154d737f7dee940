"""Scopes: map the names of inlined graphs to global names. Item: a node with the global names of its values.

Names of inner graphs are unique only within them, and a body may be inlined many times. A Scope maps the names of one
inlined graph to global names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..proto.graphdef import NodeDef


@dataclass(eq=False)
class Scope:
    """Name mapping of one inlined graph; names in the root scope are global."""

    names: Mapping[str, str] = field(default_factory=dict)
    parent: Scope | None = None

    def resolve(self, name: str) -> str:
        """Return the global name of `name`; '' stays ''."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return name


ROOT = Scope()


@dataclass(eq=False)
class Item:
    """One node to import. `inputs`, `outputs` and `reads` (inputs and captured names) are global."""

    node: NodeDef
    scope: Scope
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reads: tuple[str, ...]


def make_item(node: NodeDef, scope: Scope = ROOT) -> Item:
    """Make the Item of a node whose names belong to `scope`."""
    if scope is ROOT:
        return Item(node, scope, node.inputs, node.outputs, node.reads)
    reads = tuple(n for n in map(scope.resolve, node.reads) if n)
    return Item(node, scope, tuple(map(scope.resolve, node.inputs)), tuple(map(scope.resolve, node.outputs)), reads)
