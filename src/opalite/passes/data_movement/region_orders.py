"""Choose the order of axes in which each node of a region computes, so that the fewest bytes are transposed."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

from ...ir.graph import Node, Value
from ...ir.symbols import always_equal, hint_of
from ...ops.conv import Conv
from ...ops.data_movement import Concat, Slice, Transpose
from ...ops.elementwise import Elementwise
from .axis_orders import Order, composed, is_same_order, picked, unchanged
from .channels_last import transposes_patches
from .minimum_cut import Edge, minimum_cut
from .transposed_regions import Region

_CONV = 0.5  # cost of a convolution channels last, which has no blocks of channels, in transposes of its output
_COPY = 0.5  # time of copying bytes in sequence, in that of transposing them
_SCALE = 1 << 20  # costs of the cut are multiples of it, and preferences between equal costs smaller
_UNFUSED = 16  # preference for an Elementwise in the order of its input, with which it may be fused
_NEVER = 1 << 80


@dataclass(eq=False)
class Tensor:
    """A tensor of the graph before and after the Transposes within a region.

    root: the first of its values. names: all of them, with their orders relative to the root.
    """

    root: Value
    names: dict[Value, Order] = field(default_factory=dict)


def find_tensors(region: Region) -> dict[Value, Tensor]:
    """The tensor of each value of the region."""
    found: dict[Value, Tensor] = {}
    position = region.sweep.position
    for v in sorted(region.orders, key=lambda v: -1 if v.producer is None else position[v.producer]):
        maker = v.producer
        if maker is not None and maker in region.links:
            tensor = found[v] = found[maker.x]
            tensor.names[v] = composed(tensor.names[maker.x], maker.as_(Transpose).perm)
        else:
            found[v] = Tensor(v, {v: unchanged(len(v.shape))})
    return found


def flipped_nodes(region: Region, tensors: dict[Value, Tensor]) -> set[Node]:
    """The nodes that compute in the other order than they are written in; empty if that saves nothing.

    Vertices of the cut are the nodes that have a choice, and the two sides (True, False).
    """
    edges: list[Edge] = []
    transposed: list[tuple[Hashable, set[Hashable], int]] = []  # (source, readers, cost if they differ)
    for v, tensor in tensors.items():
        if v is not tensor.root:
            continue
        cost, source, readers = _transpose_cost(region, v), _source(region, v), _readers(region, tensor)
        transposed.append((source, readers, cost))
        if len(readers) < 2:
            edges += [edge for r in readers for edge in ((source, r, cost * _SCALE), (r, source, cost * _SCALE))]
        else:  # one Transpose serves all readers of the other order
            gathered, spread = ("to the first", v), ("to the second", v)
            edges += [(source, spread, cost * _SCALE), (gathered, source, cost * _SCALE)]
            edges += [edge for r in readers for edge in ((spread, r, _NEVER), (r, gathered, _NEVER))]
        fused = [r for r in readers if isinstance(r, Node) and (not cost or isinstance(r.op, Elementwise))]
        edges += [edge for r in fused for edge in ((source, r, _UNFUSED), (r, source, _UNFUSED))]
    written = {n: _side(region, n) for n in _choosers(region)}
    flips = {n: _flip_cost(n, region) for n in written}
    for n, side in written.items():
        cost = flips[n] * _SCALE + 1  # below 0 where the node takes less time in the other order
        edges.append((True, n, abs(cost)) if side is (cost > 0) else (n, False, abs(cost)))
    first = minimum_cut(edges, True, False)

    def total(side_of: dict[Hashable, bool]) -> int:
        moved = sum(
            cost for source, readers, cost in transposed if any(side_of[r] is not side_of[source] for r in readers)
        )
        return moved + sum(flips[n] for n, side in written.items() if side_of[n] is not side)

    fixed: dict[Hashable, bool] = {True: True, False: False}
    if total(fixed | {n: n in first for n in written}) >= total(fixed | dict(written)):
        return set()
    return {n for n, side in written.items() if (n in first) is not side}


def is_foreign(node: Node | None, region: Region) -> bool:
    """Whether the node is a Transpose to or from an order that the region does not have."""
    return node is not None and isinstance(node.op, Transpose) and node not in region.links


def _choosers(region: Region) -> list[Node]:
    """Nodes that can write either order."""
    foreign = {v.producer: None for v in region.orders if is_foreign(v.producer, region)}
    return [*region.movable, *(n for n in foreign if n is not None)]


def _side(region: Region, node: Node) -> bool:
    """The side on which the node is written."""
    return region.orders[node.y][1]


def _source(region: Region, v: Value) -> Hashable:
    """The side on which a root is computed, or the node that chooses it."""
    maker = v.producer
    if maker is not None and (maker in region.movable or is_foreign(maker, region)):
        return maker
    return region.orders[v][1]


def _readers(region: Region, tensor: Tensor) -> set[Hashable]:
    """The sides on which a tensor is read, or the nodes that choose them."""
    found: set[Hashable] = set()
    for v in tensor.names:
        users = region.sweep.uses.get(v, ())
        found.update(n for n in users if n in region.movable and not needs_own_order(n, v, region))
        if v in region.sweep.exposed or any(needs_own_order(n, v, region) for n in users):
            found.add(region.orders[v][1])
    return found


def needs_own_order(node: Node, v: Value, region: Region) -> bool:
    """Whether the node can only read `v`, a value of the region, as it is written."""
    moved = region.movable.get(node) or region.indifferent.get(node)
    if moved is not None:
        return any(given is v and order is None for given, order in zip(node.inputs, moved.inputs, strict=True))
    return not isinstance(node.op, Transpose) and node not in region.products


def _transpose_cost(region: Region, v: Value) -> int:
    """Bytes that a Transpose of `v` moves, and its launch; 0 if it is a reshape."""
    order = region.orders[v][0]
    return 0 if is_same_order(order, unchanged(len(order)), v.shape) else _bytes(v) + region.launch


def _flip_cost(node: Node, region: Region) -> int:
    """Bytes that are moved besides if the node computes in the other order."""
    moved = region.movable.get(node)
    if isinstance(node.op, Conv):
        patches = _bytes(node.x) + region.launch if transposes_patches(node) else 0
        return patches + int(_CONV * (_bytes(node.y) + region.launch))
    if moved is None:
        return 0
    if isinstance(node.op, Concat | Slice):
        if not region.convs:
            return 0  # parts of images are copied in any order
        written, other = (_is_contiguous(node, o) for o in (unchanged(len(moved.output)), moved.output))
        parts = len(node.inputs)
        return int(_COPY * _bytes(node.y) + parts * region.launch) * (written - other)
    cost = 0
    for v, order in zip(node.inputs, moved.inputs, strict=True) if isinstance(node.op, Elementwise) else ():
        if v is not None and not v.is_const and order is None:
            whole = (1,) * (len(moved.output) - len(v.shape)) + v.shape
            cost += 0 if is_same_order(moved.output, unchanged(len(whole)), whole) else _bytes(v) + region.launch
    return cost


def _is_contiguous(node: Node, order: Order) -> bool:
    """Whether the parts of a Concat or Slice in `order` are contiguous, so that they need no copy."""
    x, y = picked(node.x.shape, order), picked(node.y.shape, order)
    cut = [a for a, (n, m) in enumerate(zip(x, y, strict=True)) if not always_equal(n, m)]
    return not cut or always_equal(math.prod(y[: cut[-1]]), 1)


def _bytes(v: Value) -> int:
    return int(hint_of(math.prod(v.shape))) * v.dtype.size
