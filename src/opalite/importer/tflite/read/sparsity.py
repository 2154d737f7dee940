"""Sparsity: the places of a sparse tensor's stored elements, level by level (the format of TACO)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import ModelFormatError
from ....ir import Array
from .tables import Tables, schema

_LARGEST = 1 << 31  # elements of a dense tensor


@dataclass(frozen=True, eq=False)
class Sparsity:
    """Levels of a sparse tensor in the order in which they are stored.

    order: the dimension of each level; those after the tensor's rank are dimensions of a block. blocks: the tensor's
    dimension that each block dimension divides. levels: for each a dense size, or (segments, indices).
    """

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[int | tuple[Array, Array], ...]

    def indices(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return the flat position of each stored element in the dense tensor. ModelFormatError if one is outside."""
        rank = len(shape)
        sizes = [n if isinstance(n, int) else 0 for n in self.levels]
        if sorted(self.order) != list(range(rank + len(self.blocks))) or len(self.levels) != len(self.order):
            raise _damaged(name, "its levels are not those of its shape")
        if any(not 0 <= b < rank for b in self.blocks) or math.prod(shape) > _LARGEST:
            raise _damaged(name, "its blocks divide dimensions that it lacks")
        block = {rank + i: sizes[self.order.index(rank + i)] for i in range(len(self.blocks))}
        if not all(block.values()):
            raise _damaged(name, "a block has no size")
        places = {d: np.zeros(1, np.int64) for d in self.order}
        nodes = np.zeros(1, np.int64)  # number of each entry in the level above
        for dim, level in zip(self.order, self.levels, strict=True):
            if isinstance(level, int):
                if nodes.size * level > _LARGEST:
                    raise _damaged(name, f"level {dim} has {nodes.size * level} entries")
                parents, own = np.repeat(np.arange(nodes.size), level), np.tile(np.arange(level), nodes.size)
                nodes = nodes[parents] * level + own
            else:
                parents, entries = _entries(name, nodes, *level)
                own, nodes = level[1][entries].astype(np.int64), entries
            places = {d: own if d == dim else v[parents] for d, v in places.items()}
        found = np.zeros(nodes.size, np.int64)
        for d, size in enumerate(shape):
            at = places[d]
            for i, of in enumerate(self.blocks):
                if of == d:
                    at = at * block[rank + i] + places[rank + i]
            if at.size and not (at.min() >= 0 and at.max() < size):
                raise _damaged(name, f"an element is outside dimension {d} of size {size}")
            found = found * size + at
        return found


def _entries(name: str, nodes: Array, segments: Array, indices: Array) -> tuple[Array, Array]:
    """Return (position of the entry above, entry) of each entry of a compressed level."""
    if nodes.size and not (nodes.max() + 1 < segments.size):
        raise _damaged(name, "a level has fewer segments than entries above")
    first, last = segments[nodes].astype(np.int64), segments[nodes + 1].astype(np.int64)
    counts = last - first
    if counts.size and (counts.min() < 0 or first.min() < 0 or last.max() > indices.size):
        raise _damaged(name, "a segment is outside its level")
    parents = np.repeat(np.arange(nodes.size), counts)
    starts = np.repeat(first - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return parents, np.arange(parents.size) + starts


def read_sparsity(tables: Tables, table: Any) -> Sparsity | None:
    """Return the Sparsity of a SparsityParameters table; None without one."""
    if table is None:
        return None
    levels = [_level(tables, level) for level in tables.tables(table, "DimMetadata")]
    return Sparsity(tables.ints(table, "TraversalOrder"), tables.ints(table, "BlockMap"), tuple(levels))


def _level(tables: Tables, level: Any) -> int | tuple[Array, Array]:
    if int(level.Format()) == schema().DimensionType.DENSE:
        return int(level.DenseSize())
    return _index_vector(tables, level, "ArraySegments"), _index_vector(tables, level, "ArrayIndices")


def _index_vector(tables: Tables, level: Any, field: str) -> Array:
    kinds = schema().SparseIndexVector
    names = {kinds.Int32Vector: "Int32Vector", kinds.Uint16Vector: "Uint16Vector", kinds.Uint8Vector: "Uint8Vector"}
    held, kind = getattr(level, field)(), names.get(int(getattr(level, f"{field}Type")()))
    if held is None or kind is None:
        raise ModelFormatError(f"a sparse level lacks its {field}")
    vector = getattr(schema(), kind)()
    vector.Init(held.Bytes, held.Pos)
    return tables.numbers(vector, "Values")


def _damaged(name: str, why: str) -> ModelFormatError:
    return ModelFormatError(f"sparse tensor '{name}' cannot be read: {why}")
