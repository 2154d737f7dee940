"""Chains of movements that keep rows whole, as steps on row numbers."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...ir.graph import Node, Value
from ...ir.symbols import always_equal, is_symbolic
from ...ops.data_movement import Concat, Pad, Reshape, Slice, Transpose
from ...ops.elementwise import Elementwise
from ...ops.gather import Gather
from ...ops.permute_rows import PermuteRows, Step, Steps, scaled
from ..rewrite_driver import Sweep

_MOST = 64  # most movements of one chain, and most steps
_INDICES = 4096  # most indices of a Gather in a chain


@dataclass(frozen=True)
class Chain:
    """Movements without other readers, from `source` to the last output, in rows of `row` elements.

    nodes: in execution order.
    """

    source: Value
    nodes: tuple[Node, ...]
    row: int
    steps: Steps

    @property
    def root(self) -> Node:
        """The last movement."""
        return self.nodes[-1]


def find_chain(root: Node, sweep: Sweep) -> Chain | str | None:
    """The longest chain that ends with `root`; a reason if there is none; None if `root` is no movement."""
    if not is_movement(root):
        return None
    if math.gcd(*_whole(root)) == 1:
        return "it splits rows"
    ends: set[Node] = set()  # nodes that join several tensors or split rows; chains may begin at their outputs
    while True:
        members = _members(root, sweep, ends)
        if _joins(root, members):
            return "it joins several tensors"
        joints = [n for n in members if _joins(n, members)]
        if not joints:
            break
        ends.update(joints)
    nodes = tuple(sorted(members, key=sweep.position.__getitem__))
    if not all(v.type.count for n in nodes for v in (n.x, n.y)):
        return "it moves nothing"
    row = math.gcd(*(size for n in nodes for size in _whole(n)))
    reader = _Reader(members, row)
    source = reader.line(root.y)[-1]
    if source.is_const:
        return "it moves a constant"
    steps = reader.between(root.y, source)
    if _length(steps) > _MOST:
        return f"it would take more than {_MOST} steps"
    return Chain(source, nodes, row, steps)


def is_movement(node: Node) -> bool:
    """Whether the node can be part of a chain."""
    if len(node.outputs) != 1 or node.epilogue is not None:
        return False
    match node.op:
        case Reshape() | Transpose() | Slice() | Concat() | PermuteRows():
            return all(v is not None and v.shape for v in (*node.inputs, node.y))
        case Pad(mode=mode, value=value):
            return mode == "constant" and bool(node.x.shape) and value == 0 and math.copysign(1, value) > 0
        case Elementwise(expr=expr):  # ONNX's Expand
            return len(expr) == 0 and len(node.inputs) == 1 and bool(node.x.shape) and node.x.dtype is node.y.dtype
        case Gather():
            return _indices(node) is not None and len(node.x.shape) > 1
    return False


def _indices(node: Node) -> tuple[int, ...] | None:
    """The constant indices of a Gather, counted from the front."""
    data, size = node.input(1).data, node.x.shape[node.as_(Gather).axis]
    if data is None or data.ndim > 1 or not 0 < data.size <= _INDICES or is_symbolic(size):
        return None
    return tuple(min(max(int(i) + (size if i < 0 else 0), 0), size - 1) for i in data.reshape(-1))


def _inputs(node: Node) -> list[Value]:
    """The inputs that a movement moves."""
    return [v for v in node.inputs if v is not None] if isinstance(node.op, Concat) else [node.x]


def _members(root: Node, sweep: Sweep, ends: set[Node]) -> set[Node]:
    members: set[Node] = set()
    waiting = [-sweep.position[root]]
    met = {root}
    while waiting and len(members) < _MOST:
        node = sweep.graph.nodes[-heapq.heappop(waiting)]  # readers come before what they read
        if node is not root:
            if node in ends or not all(user in members for user in sweep.uses.get(node.outputs[0], ())):
                continue
            if not is_movement(node) or node.y in sweep.exposed or math.gcd(*_whole(node)) == 1:
                continue
        members.add(node)
        for v in _inputs(node):
            if v.producer is not None and v.producer not in met:
                met.add(v.producer)
                heapq.heappush(waiting, -sweep.position[v.producer])
    return members


def _joins(node: Node, members: set[Node]) -> bool:
    """Whether a Concat joins several values from outside `members`."""
    if not isinstance(node.op, Concat):
        return False
    source: Value | None = None
    stack, seen = [node], {node}
    while stack:
        for v in _inputs(stack.pop()):
            if v.producer is None or v.producer not in members:
                if source not in (None, v):
                    return True
                source = v
            elif v.producer not in seen:
                seen.add(v.producer)
                stack.append(v.producer)
    return False


def _whole(node: Node) -> Iterator[int]:
    """Numbers that the length of a row must divide, so that rows stay whole; 1 if a size is open."""
    for v in (*_inputs(node), node.y):
        yield 1 if is_symbolic(v.shape[-1]) else v.shape[-1]
    match node.op:
        case Transpose(perm=perm):
            yield from () if perm[-1] == len(perm) - 1 else (1,)
        case Slice(starts=starts, steps=steps):
            last = starts[-1], steps[-1]
            if not always_equal(node.x.shape[-1], node.y.shape[-1]):
                yield last[0] if last[1] == 1 and not is_symbolic(last[0]) else 1
            elif last != (0, 1):
                yield 1
        case Pad(pads=pads):
            for border in (pads[len(pads) // 2 - 1], pads[-1]):
                yield 1 if is_symbolic(border) else border
        case Gather(axis=axis):
            yield from (1,) if axis == len(node.x.shape) - 1 else ()
        case Elementwise():
            yield from () if always_equal(node.x.shape[-1], node.y.shape[-1]) else (1,)
        case PermuteRows(row=row):
            yield row


class _Reader:
    """Converter from a chain's movements to steps."""

    def __init__(self, members: set[Node], row: int) -> None:
        self._members = members
        self._row = row
        self._before: dict[Value, Value | None] = {}

    def line(self, v: Value) -> list[Value]:
        """`v` and its sources while each has a single one, back to the chain's source."""
        found = [v]
        while (before := self._made_of(found[-1])) is not None:
            found.append(before)
        return found

    def _made_of(self, v: Value) -> Value | None:
        if v not in self._before:
            node = v.producer
            if node is None or node not in self._members:
                self._before[v] = None
            elif isinstance(node.op, Concat):
                first, *others = [self.line(part) for part in _inputs(node)]
                self._before[v] = next(a for a in first if all(a in line for line in others))
            else:
                self._before[v] = node.x
        return self._before[v]

    def between(self, last: Value, first: Value) -> Steps:
        """The steps from `first` to `last`."""
        found: list[Step] = []
        v = last
        while v is not first:
            assert v.producer is not None
            before = self._made_of(v)
            assert before is not None
            found[:0] = self._steps(v.producer, before)
            v = before
        return tuple(found)

    def _steps(self, node: Node, before: Value) -> Sequence[Step]:
        match node.op:
            case Reshape(shape=shape):
                return [("reshape", self._rows(shape))]
            case Transpose(perm=perm):
                return [("transpose", perm)]
            case Slice(starts=starts, steps=steps, sizes=sizes):
                return [("slice", self._rows(starts), steps, self._rows(sizes))]
            case Pad(pads=pads):
                rank = len(pads) // 2
                return [("pad", (*self._rows(pads[:rank]), *self._rows(pads[rank:])))]
            case Gather(axis=axis):
                indices = _indices(node)
                assert indices is not None
                taken: Step = ("take", axis, indices)
                return [taken] if node.input(1).shape else [taken, ("reshape", self._rows(node.y.shape))]
            case PermuteRows(row=row, steps=steps):
                return [*scaled(steps, row, self._row), ("reshape", self._rows(node.y.shape))]
            case Concat(axis=axis):
                return [("concat", axis, tuple(self.between(part, before) for part in _inputs(node)))]
        return [("expand", self._rows(node.y.shape))]

    def _rows(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Sizes or positions along all axes, counted in rows."""
        return (*sizes[:-1], sizes[-1] // self._row)


def _length(steps: Steps) -> int:
    return sum(1 + sum(map(_length, s[2])) if s[0] == "concat" else 1 for s in steps)
