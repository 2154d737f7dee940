"""Memory verifier: tracks memory contents node by node and checks that each value read is still intact.

It uses neither lifetimes, strategies nor aliasing decisions, only the bytes that each launch reads and writes. It finds
values overwritten before their last use, misplaced aliases, and launches that overwrite their own inputs.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...ir.graph import Graph, Node, Value
from ...ir.place import Target
from ...ir.symbols import hint_of
from ...kernels.launch import Launch, Scratch
from ...ops.data_movement import Concat
from ..program import Slot, Storage
from .buffer_aliasing import pieces, stretch_start

Run = tuple[int, object, int]
"""A range of bytes of one value: (count, value, first byte in the value)."""


class MemoryRange:
    """The contents of one memory: for every written byte its value and its position in the value."""

    def __init__(self) -> None:
        self._starts: list[int] = []  # sorted, with the runs that begin there
        self._runs: list[Run] = []

    def write(self, start: int, what: Run) -> None:
        """Record that the bytes from `start` on hold `what`."""
        end = start + what[0]
        low = bisect.bisect_left(self._starts, start)
        high = bisect.bisect_left(self._starts, end)
        starts, runs = [start], [what]
        if high and (last := self._starts[high - 1] + self._runs[high - 1][0]) > end:
            starts.append(end)
            runs.append(_part(self._runs[high - 1], end - self._starts[high - 1], last - end))
        if low and self._starts[low - 1] + self._runs[low - 1][0] > start:
            self._runs[low - 1] = _part(self._runs[low - 1], 0, start - self._starts[low - 1])
        self._starts[low:high] = starts
        self._runs[low:high] = runs

    def read(self, start: int, nbytes: int) -> list[Run]:
        """Contents of `nbytes` from `start` on; unwritten bytes belong to None."""
        found: list[Run] = []
        at, end = start, start + nbytes
        i = max(bisect.bisect_right(self._starts, start) - 1, 0)
        while at < end:
            while i < len(self._starts) and self._starts[i] + self._runs[i][0] <= at:
                i += 1
            begin = self._starts[i] if i < len(self._starts) else end
            if begin > at:
                found.append((min(begin, end) - at, None, at))
                at = min(begin, end)
            else:
                count = min(begin + self._runs[i][0], end) - at
                found.append(_part(self._runs[i], at - begin, count))
                at += count
        return joined(found)


def _part(run: Run, skip: int, count: int) -> Run:
    return count, run[1], run[2] + skip


def joined(runs: Iterable[Run]) -> list[Run]:
    """`runs` with adjacent contiguous ones merged."""
    found: list[Run] = []
    for count, what, start in runs:
        if found and found[-1][1] is what and found[-1][2] + found[-1][0] == start:
            found[-1] = (found[-1][0] + count, what, found[-1][2])
        else:
            found.append((count, what, start))
    return found


def cut(runs: Sequence[Run], start: int, nbytes: int) -> list[Run]:
    """The range [start, start + nbytes) of `runs`."""
    found, at = [], 0
    for run in runs:
        low, high = max(start, at), min(start + nbytes, at + run[0])
        if low < high:
            found.append(_part(run, low - at, high - low))
        at += run[0]
    return found


@dataclass
class _Follower:
    launches: Mapping[Node, Sequence[Launch]]
    copied: Mapping[Node, Mapping[int, str]]
    numbers: Mapping[object, int]
    slots: Sequence[Slot]
    number: Callable[[int], int] = hint_of

    def __post_init__(self) -> None:
        self.memories: dict[int, MemoryRange] = {}  # by slot; the arena is -1
        self.contents: dict[Value, list[Run]] = {}
        self.parts: dict[object, tuple[object, int]] = {}  # containing value and byte offset of a part

    def bytes_of(self, v: Value) -> int:
        """Bytes of a value at the sizes of the slots."""
        return self.number(v.type.nbytes)

    def place(self, key: object, nbytes: int) -> tuple[int, int, int] | None:
        """(memory, first byte, end) of a value or scratch; None for images, weights and unnamed values."""
        slot = self.slots[self.numbers[key]] if key in self.numbers else None
        if slot is None or slot.image is not None or slot.storage is Storage.STATIC:
            return None
        assert nbytes <= slot.nbytes, f"slot {slot.id} has {slot.nbytes} bytes, {key!r} takes {nbytes}"
        return (-1 if slot.storage is Storage.DYNAMIC else slot.id), slot.offset, slot.offset + nbytes

    def check(self, node: Node, v: Value) -> None:
        """AssertionError if the memory of `v` does not hold `v`."""
        if v not in self.contents or (place := self.place(v, self.bytes_of(v))) is None:
            return
        held, wanted = self.read(place), self.known(self.contents[v])
        for (count, what, first), (_, other, begin) in zip(held, wanted, strict=False):
            whose = f"%{what.name}" if isinstance(what, Value) else "nothing" if what is None else "scratch memory"
            found = f"{node.label} reads %{v.name}, but {count} bytes of its memory hold {whose}"
            assert (what, first) == (other, begin), found
        assert held == wanted, f"{node.label} reads %{v.name}, which is incomplete in memory"

    def read(self, place: tuple[int, int, int]) -> list[Run]:
        """Contents of a place in memory."""
        memory, start, end = place
        return self.known(self.memories.setdefault(memory, MemoryRange()).read(start, end - start))

    def known(self, runs: Iterable[Run]) -> list[Run]:
        """`runs`, with parts of values expressed as their containing values."""
        found: list[Run] = []
        for run in runs:
            count, what, start = run
            passed: list[tuple[object, int]] = []
            while (part := self.parts.get(what)) is not None:
                passed.append((what, start))
                what, start = part[0], start + part[1]
            for each, before in passed:  # path compression
                self.parts[each] = what, start - before
            found.append((count, what, start) if passed else run)
        return joined(found)

    def write(self, key: object, nbytes: int, first: int = 0) -> tuple[int, int, int] | None:
        """Record a write of a value or scratch; returns its place."""
        place = self.place(key, first + nbytes)
        if place is None:
            return None
        memory, start, end = place
        self.memories.setdefault(memory, MemoryRange()).write(start + first, (nbytes, key, first))
        return memory, start + first, end

    def step(self, node: Node) -> None:
        """Track one node."""
        near = [v for v in node.outputs if v.type.place.target is Target.OPENCL]
        outputs = [v for v in near if v.type.count]
        if near and not outputs:
            return  # an empty output: no launch, no read
        launches = self.launches.get(node, ())
        args = [a for x in launches for a in x.args.values() if isinstance(a, Value | Scratch)]
        read = dict.fromkeys(v for v in node.inputs if v is not None and (v in args or not outputs))
        for v in read:
            self.check(node, v)
        taken = [p for v in read if (p := self.place(v, self.bytes_of(v))) is not None]
        scratch = {a.name: self.number(a.nbytes) for a in args if isinstance(a, Scratch)}
        made = [self.write((node, name), nbytes) for name, nbytes in scratch.items()]
        if not outputs:
            return
        if node in self.copied and isinstance(node.op, Concat):
            made += self.concat(node)
        elif node in self.copied and not launches:
            start = stretch_start(node)
            assert start is not None, f"{node.label} is no stretch of its input"
            self.contents[node.y] = cut(self.contents[node.x], self.number(start), self.bytes_of(node.y))
        elif launches or node.x.type.place.target is Target.HOST:
            for v in outputs:
                made.append(self.write(v, self.bytes_of(v)))
                self.contents[v] = [(self.bytes_of(v), v, 0)]
        elif node.x in self.contents:
            self.contents[node.y] = self.contents[node.x]
        _check_apart(node, [p for p in made if p is not None], taken)

    def concat(self, node: Node) -> list[tuple[int, int, int] | None]:
        """Track a Concat, some of whose inputs are in place already; returns what it writes."""
        made, whole = [], list[Run]()
        for i, offset in pieces(node).items():
            v, start = node.input(i), self.number(offset)
            if i in self.copied[node]:
                made.append(self.write(node.y, self.bytes_of(v), start))
                whole.append((self.bytes_of(v), node.y, start))
            else:
                whole += self.contents[v]
        self.contents[node.y] = self.known(whole)
        self.join(node)
        return made

    def join(self, node: Node) -> None:
        """Record the inputs of a Concat as parts of its output, if the output is complete."""
        whole, place = self.contents[node.y], self.place(node.y, self.bytes_of(node.y))
        if len(whole) == 1 or place is None or self.read(place) != whole:
            return
        own = [(count, what) for count, what, start in whole if what is not node.y and start == 0]
        if sum(what is not node.y for _, what, _ in whole) != len(dict.fromkeys(what for _, what in own)):
            return
        if not all(isinstance(what, Value) and self.bytes_of(what) == count for count, what in own):
            return
        at = 0
        for count, what, _ in whole:
            if what is not node.y:
                self.parts[what] = node.y, at
            at += count
        self.write(node.y, at)
        self.contents[node.y] = [(at, node.y, 0)]


def _check_apart(node: Node, made: Sequence[tuple[int, int, int]], taken: Sequence[tuple[int, int, int]]) -> None:
    """AssertionError if memory that a node writes overlaps other memory that the node writes or reads."""
    written = read = (0, 0)  # the stretches of the memory that end last so far
    memory = None
    for place, start, end, writes in sorted([*((*p, True) for p in made), *((*p, False) for p in taken)]):
        if place != memory:
            memory, written, read = place, (0, 0), (0, 0)
        for first, last in (written, read) if writes else (written,):
            mine, other = ((start, end), (first, last)) if writes else ((first, last), (start, end))
            assert start >= last, (
                f"{node.label} writes bytes {mine[0]} to {mine[1]}, of which it uses {other[0]} to {other[1]} otherwise"
            )
        if writes and end > written[1]:
            written = start, end
        elif not writes and end > read[1]:
            read = start, end


def verify_contents(
    graph: Graph,
    launches: Mapping[Node, Sequence[Launch]],
    copied: Mapping[Node, Mapping[int, str]],
    numbers: Mapping[object, int],
    slots: Sequence[Slot],
    number: Callable[[int], int] = hint_of,
) -> None:
    """AssertionError if a node of a placed graph reads memory that does not contain the node's input.

    launches: of each node. copied: for each Concat and Slice, the inputs that it copies. numbers: slot numbers of
    values, and of (node, name of scratch memory). number: converts a symbolic size of the graph to the plain number for
    which `slots` were planned.
    """
    follower = _Follower(launches, copied, numbers, slots, number)
    for node in graph.nodes:
        follower.step(node)
