"""The steps that are linked: launches with their PTX, and which of them may run beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .entry import Entry
from .writes import read_first, written

SHARED = 49152
"""Bytes of shared memory of a group that need not ask for more."""
WARP = 32
STREAMED = 64 << 10
"""Bytes of constants from which on they are read as what passes by, where all of them are more than the cache keeps."""
_ALIGN = 128


@dataclass(frozen=True)
class Number:
    """An argument's value: the bytes of it."""

    raw: bytes


@dataclass(frozen=True)
class Moving:
    """An argument that is another number in each run: `nbytes` of them, at byte `at` of the table of such numbers."""

    at: int
    nbytes: int


@dataclass(frozen=True)
class Memory:
    """An argument that is bytes `first` to `last` of memory `whole`, parameter number `param` of the linked kernel.

    is_constant: no launch writes to it.
    """

    param: int
    whole: int
    first: int
    last: int
    is_constant: bool = False


@dataclass(frozen=True)
class LinkedStep:
    """groups, group: work-groups and work-items of one along x, y and z. counts: byte of the table of numbers that move
    where those of the work-groups stand, three of 32 bits; -1 where they are always `groups`."""

    entry: Entry
    args: tuple[Number | Moving | Memory, ...]
    groups: tuple[int, int, int]
    group: tuple[int, int, int]
    counts: int = -1

    @property
    def moves(self) -> bool:
        """Whether a number of it is another in each run."""
        return self.counts >= 0 or any(isinstance(a, Moving) for a in self.args)


def misfit(step: LinkedStep) -> str:
    """Why arguments are not what the kernel takes, which says that its PTX is not understood; ''."""
    if len(step.args) != len(step.entry.params):
        return f"it takes {len(step.entry.params)} arguments, not {len(step.args)}"
    for p, a in zip(step.entry.params, step.args, strict=True):
        wanted = "global" if isinstance(a, Memory) else ""
        if p.space != wanted:
            return f"its parameter {p.name} is in {p.space or 'no'} memory"
    return ""


def memory_of(step: LinkedStep) -> list[Memory]:
    """The arguments that are memory, in order."""
    return [a for a in step.args if isinstance(a, Memory)]


def shape_of(step: LinkedStep) -> object:
    """All of a step but its memory: what its code depends on."""
    args = tuple((a.is_constant, passes_by(a)) if isinstance(a, Memory) else a for a in step.args)
    return step.entry, args, step.groups, step.group, step.counts


def passes_by(a: Memory) -> bool:
    """Whether it is a large constant, which a run reads once."""
    return a.is_constant and a.last - a.first >= STREAMED


@lru_cache(maxsize=1024)
def layout(step: LinkedStep) -> tuple[dict[str, int], int]:
    """Where in a work-group's shared memory each variable begins, and how many bytes that has."""
    at, found = 0, {}
    for s in step.entry.shared:
        at = -(-at // s.align) * s.align
        found[s.name] = at
        at += s.nbytes
    return found, -(-at // _ALIGN) * _ALIGN


def shared_bytes(step: LinkedStep) -> int:
    """Shared memory of one work-group."""
    return layout(step)[1]


def begins_early(step: LinkedStep) -> bool:
    """Whether its work-groups may begin before the steps before it are done: they read constants then, and await the
    others themselves before they do anything else."""
    if math.prod(step.group) % WARP:
        return False
    names = read_first(step.entry)
    given = dict(zip((p.name for p in step.entry.params), step.args, strict=True))
    return names is not None and all(isinstance(a := given[n], Memory) and a.is_constant for n in names)


def find_waits(steps: Sequence[LinkedStep]) -> list[bool]:
    """Of each step, whether all before it must be done: it and one since the last that waited use the same memory, and
    one of them writes to it."""
    found: list[bool] = []
    read: list[Memory] = []
    wrote: list[Memory] = []
    for step in steps:
        names = written(step.entry)
        mine = [
            (a, p.name in names) for p, a in zip(step.entry.params, step.args, strict=True) if isinstance(a, Memory)
        ]
        waits = any(_meet(a, b) for a, writes in mine for b in (read + wrote if writes else wrote))
        if waits:
            read, wrote = [], []
        for a, writes in mine:
            (wrote if writes else read).append(a)
        found.append(waits)
    return found


def _meet(a: Memory, b: Memory) -> bool:
    return a.whole == b.whole and a.first < b.last and b.first < a.last
