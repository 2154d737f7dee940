"""The steps that are linked: launches with their PTX, and which of them may run beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .find_written_params import read_first, written
from .parse_kernel import PtxKernel

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
class DynamicNumber:
    """An argument that is another number in each run: `nbytes` of them, at byte `at` of the table of such numbers."""

    at: int
    nbytes: int


@dataclass(frozen=True)
class Memory:
    """An argument that is bytes `first` to `last` of memory `whole`, parameter number `param` of the linked kernel.

    is_constant: no launch writes to it. is_own: each work-group reads or writes its own part of it, the same in all
    steps of one walk.
    """

    param: int
    whole: int
    first: int
    last: int
    is_constant: bool = False
    is_own: bool = False


@dataclass(frozen=True)
class LinkedStep:
    """groups, group: work-groups and work-items of one along x, y and z. counts: byte of the table of numbers that move
    where those of the work-groups stand, three of 32 bits; -1 where they are always `groups`. walk: which work-group
    has what part of memory that is_own; -1 where that is not known."""

    entry: PtxKernel
    args: tuple[Number | DynamicNumber | Memory, ...]
    groups: tuple[int, int, int]
    group: tuple[int, int, int]
    counts: int = -1
    walk: int = -1

    @property
    def moves(self) -> bool:
        """Whether a number of it is another in each run."""
        return self.counts >= 0 or any(isinstance(a, DynamicNumber) for a in self.args)


def argument_mismatch(step: LinkedStep) -> str:
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
    args = tuple((a.is_constant, is_streamed(a)) if isinstance(a, Memory) else a for a in step.args)
    return step.entry, args, step.groups, step.group, step.counts


def is_streamed(a: Memory) -> bool:
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


@dataclass(frozen=True)
class StepOrder:
    """When a step may begin. waits: all before it must be done. follows: number of the step before it whose work-groups
    its own go to the same groups of the linked kernel as, for they read what those wrote; -1 for none."""

    waits: bool
    follows: int = -1


def find_step_order(steps: Sequence[LinkedStep]) -> list[StepOrder]:
    """Of each step: it waits if it and one since the last that waited use the same memory, and one of them writes to
    it, but for what a work-group has to itself in both."""
    found: list[StepOrder] = []
    used: list[tuple[int, Memory, bool]] = []  # since the last that waited: by which step, and whether it writes
    for i, step in enumerate(steps):
        names = written(step.entry)
        mine = [
            (i, a, p.name in names) for p, a in zip(step.entry.params, step.args, strict=True) if isinstance(a, Memory)
        ]
        met = {
            j if _is_apart(step, a, steps[j], b) else -1
            for _, a, writes in mine
            for j, b, wrote in used
            if (writes or wrote) and _meet(a, b)
        }
        first = {j if j < 0 or found[j].follows < 0 else found[j].follows for j in met}
        waits = len(first) > 1 or -1 in first
        found.append(StepOrder(waits, -1 if waits or not first else first.pop()))
        used = mine if waits else used + mine
    return found


def _is_apart(step: LinkedStep, a: Memory, before: LinkedStep, b: Memory) -> bool:
    """Whether work-groups of one number use the same part of the memory in both steps, and others none of it."""
    same = step.walk == before.walk >= 0 and (step.groups, step.group) == (before.groups, before.group)
    own = a.is_own and b.is_own and (a.first, a.last) == (b.first, b.last)
    return same and own and not step.entry.has_global_atomics and not before.entry.has_global_atomics


def _meet(a: Memory, b: Memory) -> bool:
    return a.whole == b.whole and a.first < b.last and b.first < a.last
