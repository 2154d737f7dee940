"""Buffer aliasing: values inside other values' memory, so that Concat, Slice and Reshape copy nothing.

A Reshape, and a cast that changes no byte, shares its input's memory. A contiguous Slice is part of its input's memory.
A contiguous input of a Concat is written into the output directly; Concats of Concats nest. The memory lives from its
first write to its last read. Aliasing that would need more memory at the peak than copies do is not applied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...ir.graph import Graph, Node, Value
from ...ir.place import Target
from ...ir.symbols import always_equal, hint_of, is_multiple
from ...kernels.launch import Launch, Scratch
from ...layout.assign_layouts import is_free_cast
from ...ops.data_movement import Concat, Reshape, Slice
from ...ops.elementwise import PlaceCast
from .arena_planner import align_up

GROWTH = 1.02
"""Aliasing may raise the most bytes alive at once by this factor, or by SMALL bytes."""
SMALL = 64 << 10
ONE_BY_ONE = 64
"""Inputs of a Concat that are dropped one by one; then twice as many each time."""


@dataclass(frozen=True)
class AliasedSlice:
    """The memory of a value: `offset` bytes from the start of the memory of `root`."""

    root: Value
    offset: int = 0


@dataclass
class BufferAliasing:
    """Aliases of values. `copied`: for each Concat and Slice, the inputs that a launch copies, with the reason."""

    within: dict[Value, AliasedSlice] = field(default_factory=dict)
    copied: dict[Node, dict[int, str]] = field(default_factory=dict)

    def find(self, v: Value) -> AliasedSlice:
        """The memory of `v`: its own, or a part of its root's."""
        passed: list[tuple[Value, int]] = []
        offset = 0
        while (spot := self.within.get(v)) is not None:
            passed.append((v, offset))
            v, offset = spot.root, offset + spot.offset
        for value, before in passed:  # path compression: Concats nest deep
            self.within[value] = AliasedSlice(v, offset - before)
        return AliasedSlice(v, offset)


def is_alias(node: Node) -> bool:
    """Whether the output is the input's whole memory: a Reshape, or a device cast that changes no byte."""
    if isinstance(node.op, Reshape):
        return not node.chosen.host_reason
    if not isinstance(node.op, PlaceCast):
        return False
    x, y = node.x.type, node.y.type
    near = x.place.target is Target.OPENCL and y.place.target is Target.OPENCL
    return near and x.storage is y.storage and is_free_cast(x.shape, x.layout, y.layout)


def pieces(node: Node) -> dict[int, int]:
    """Non-empty inputs of a Concat, with the byte offset of each in the output's memory.

    Each is contiguous there if `joins_stretches`.
    """
    found, offset = {}, 0
    for i, v in enumerate(node.inputs):
        if v is not None and v.type.count:
            found[i] = offset
            offset += v.type.nbytes
    return found


def copied_inputs(node: Node) -> tuple[int, ...]:
    """The inputs that a Concat or a Slice copies without aliasing, one launch each."""
    return tuple(pieces(node)) if isinstance(node.op, Concat) else (0,)


def joins_stretches(node: Node) -> bool:
    """Whether each input of a Concat is contiguous in the output's memory: all outer axes have size 1."""
    axis, layout = node.as_(Concat).axis, node.y.type.layout
    inputs = [node.input(i) for i in pieces(node)]
    whole = axis != 1 or all(is_multiple(v.shape[1], layout.pack) for v in inputs[:-1])
    return whole and math.prod(layout.storage_shape(node.y.shape)[:axis]) == 1


def stretch_start(node: Node) -> int | None:
    """Byte offset of a Slice in its input's memory; None if it is not contiguous."""
    x, y, layout = node.x.type, node.y.type, node.y.type.layout
    op = node.as_(Slice)
    starts, steps = list(op.starts), op.steps
    if any(step != 1 and size > 1 for step, size in zip(steps, y.shape, strict=True)):
        return None
    if not layout.is_row_major:
        end = starts[1] + y.shape[1]
        is_whole = always_equal(end, x.shape[1]) or is_multiple(end, layout.pack)
        if not is_multiple(starts[1], layout.pack) or not is_whole:
            return None
        starts = [starts[0], starts[1] // layout.pack, *starts[2:], 0]
    extents, sizes = layout.storage_shape(x.shape), layout.storage_shape(y.shape)
    # An axis that is cut now may be whole at other sizes; the Slice copies nevertheless.
    pairs = enumerate(zip(extents, sizes, strict=True))
    cut = max((k for k, (n, size) in pairs if hint_of(n) != hint_of(size) or n != size), default=0)
    if math.prod(sizes[:cut]) != 1:
        return None
    first: int = sum(start * math.prod(extents[k + 1 :]) for k, start in enumerate(starts))
    return first * y.storage.size


def find_buffer_aliasing(
    graph: Graph,
    launches: Mapping[Node, Sequence[Launch]],
    align: int,
    refusal: str | None = None,
    *,
    part_align: int | None = None,
) -> BufferAliasing:
    """The aliasing of a placed graph.

    launches: of the nodes, without aliasing. align: alignment of values' memory, in bytes. refusal: reason why every
    Concat and Slice copies. part_align: alignment of tensors inside others, if less.
    """
    finder = _Finder(graph, launches, align, part_align or align)
    for node in graph.nodes:
        if not launches.get(node) or not isinstance(node.op, Concat | Slice):
            continue
        if any(v is not None and v.type.layout.is_image for v in (*node.inputs, node.y)):
            continue
        copied = refusal or (finder.join(node) if isinstance(node.op, Concat) else finder.cut(node))
        finder.nesting.copied[node] = dict.fromkeys(copied_inputs(node), copied) if isinstance(copied, str) else copied
    return finder.nesting


class _Finder:
    """Aliases one value after another and tracks the bytes alive at each step."""

    def __init__(self, graph: Graph, launches: Mapping[Node, Sequence[Launch]], align: int, part_align: int) -> None:
        self.nesting = BufferAliasing()
        self._align = align
        self._part_align = part_align
        self._apart: dict[Value, str] = {}  # roots outside the arena, with the reason
        self._lives: dict[Value, tuple[int, int]] = {}  # steps of first and last use, by root
        self._alive = np.zeros(len(graph.nodes) + 1, np.int64)  # bytes of the arena by step, at the sizes at hand
        reserved = {graph.inputs[i] for i, _ in graph.input_output_aliases}
        for i, node in enumerate(graph.nodes):
            if is_alias(node) or node.op.in_place:
                self.nesting.within[node.y] = AliasedSlice(node.x)
            for v in (*node.inputs, *node.outputs):
                if v is not None and v.type.place.target is Target.OPENCL:
                    self._use(node, v, i)
                    if v in reserved:
                        self._apart[v] = "it is persistent"
            args = [a for x in launches.get(node, ()) for a in x.args.values()]
            scratch = {a.name: hint_of(a.nbytes) for a in args if isinstance(a, Scratch)}
            self._alive[i] += sum(align_up(n, align) for n in scratch.values())
        change = np.zeros(len(graph.nodes) + 2, np.int64)
        for root, (first, last) in self._lives.items():
            if root not in self._apart:
                change[first] += self._size(root)
                change[last + 1] -= self._size(root)
        self._alive += np.cumsum(change)[:-1]
        most = int(self._alive.max())
        self._limit = max(GROWTH * most, most + SMALL)

    def _use(self, node: Node, v: Value, step: int) -> None:
        root = self.nesting.find(v).root
        self._lives[root] = (self._lives.get(root, (step, step))[0], step)
        if v.is_const:
            self._apart[root] = "it is a constant"
        elif v.type.layout.is_image:
            self._apart[root] = "it is an image"
        elif isinstance(node.op, PlaceCast) and node.x.type.place.target is Target.HOST:
            self._apart[root] = "it comes from the host"
        elif isinstance(node.op, PlaceCast) and node.y.type.place.target is Target.HOST:
            self._apart[root] = "it goes to the host"

    def _size(self, root: Value) -> int:
        return align_up(hint_of(root.type.nbytes), self._align)

    def join(self, node: Node) -> dict[int, str] | str:
        """Alias a Concat's inputs with its output where possible; {input: reason} or one reason for those copied."""
        starts = pieces(node)
        if node.y in self._apart:
            return f"of the output, {self._apart[node.y]}"
        if not joins_stretches(node):
            return "it is not one contiguous part of the output's memory"
        copied: dict[int, str] = {}
        found: dict[Value, list[int]] = {}  # roots to nest, and the inputs that each is
        order = list(starts)
        at = 0
        while at < len(order):
            run = self._run(node, order, at)
            first = order[at]
            root = self.nesting.find(node.input(first)).root
            reason = self._refusal(node, root, starts[first], run)
            if reason is None and root in found:
                reason = "it is joined twice"
            if reason is None:
                found[root] = run
            else:
                run = [first]
                copied[first] = reason
            at += len(run)
        # The input computed first holds the memory longest: drop it first, one by one and then many at a time.
        oldest = sorted(found, key=lambda r: self._lives[r][0])[::-1]
        tries = 0
        while oldest and not self._nest({r: AliasedSlice(node.y, starts[found[r][0]]) for r in found}, node.y):
            tries += 1
            for _ in range(min(len(oldest), max(1, 2 ** (tries - ONE_BY_ONE)))):
                copied.update(dict.fromkeys(found.pop(oldest.pop()), "all would need more memory at once"))
        return dict(sorted(copied.items()))

    def _run(self, node: Node, order: Sequence[int], at: int) -> list[int]:
        """The inputs in `order`, from `at` on, that together fill one root's memory; empty if no such inputs exist."""
        root, end = self.nesting.find(node.input(order[at])).root, 0
        for k in range(at, len(order)):
            v = node.input(order[k])
            if self.nesting.find(v) != AliasedSlice(root, end):
                break
            end += v.type.nbytes
            if end == root.type.nbytes:
                return list(order[at : k + 1])
        return []

    def _refusal(self, node: Node, root: Value, offset: int, run: Sequence[int]) -> str | None:
        if root in self._apart:
            return self._apart[root]
        if not run:
            return f"it is in the memory of %{root.name}"
        if any(node.input(i).type.place != node.y.type.place for i in run):
            return "it is stored otherwise"
        if is_multiple(offset, self._part_align):
            return None
        return f"byte {offset!r} of the output is not a multiple of {self._part_align}"

    def cut(self, node: Node) -> dict[int, str] | str:
        """Alias a Slice's output with its input; {input: reason} or one reason if it is copied."""
        container, start = self.nesting.find(node.x), stretch_start(node)
        for v, what in ((container.root, "input"), (node.y, "output")):
            if v in self._apart:
                return f"of the {what}, {self._apart[v]}"
        if start is None or node.x.type.place != node.y.type.place:
            return "it is not one contiguous part of the input's memory"
        if not is_multiple(start, self._part_align):
            return f"byte {start!r} of the input is not a multiple of {self._part_align}"
        if not self._nest({node.y: AliasedSlice(container.root, container.offset + start)}, container.root):
            return "the input's memory would live longer"
        return {}

    def _nest(self, spots: Mapping[Value, AliasedSlice], holder: Value) -> bool:
        """Alias roots to the memory of `holder`; False, without a change, if peak memory would grow too much."""
        lives = [self._lives[v] for v in (*spots, holder)]
        joint = min(first for first, _ in lives), max(last for _, last in lives)
        change = np.zeros(joint[1] - joint[0] + 2, np.int64)
        change[0] = self._size(holder)
        for v, (first, last) in zip((*spots, holder), lives, strict=True):
            change[first - joint[0]] -= self._size(v)
            change[last + 1 - joint[0]] += self._size(v)
        # No other step changes, and none exceeds the limit so far.
        alive = self._alive[joint[0] : joint[1] + 1] + np.cumsum(change)[:-1]
        if alive.max() > self._limit:
            return False
        self._alive[joint[0] : joint[1] + 1] = alive
        self._lives[holder] = joint
        self.nesting.within.update(spots)
        return True
