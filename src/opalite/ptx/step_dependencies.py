"""LinkedStep: launches to link with their PTX, and the dependencies between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .find_written_params import read_first, written
from .parse_kernel import PtxKernel

WARP = 32
STREAMED = 64 << 10
"""Size from which constants are streamed past the cache, if all constants exceed the cache."""
_ALIGN = 128


@dataclass(frozen=True)
class Number:
    """A scalar argument; raw: its bytes."""

    raw: bytes


@dataclass(frozen=True)
class DynamicNumber:
    """A scalar argument that changes per run: `nbytes` at byte `at` of the launch parameter buffer."""

    at: int
    nbytes: int


@dataclass(frozen=True)
class Memory:
    """A memory argument: bytes [first, last) of buffer `whole`, parameter number `param` of the linked kernel.

    is_constant: no launch writes it. is_own: each work-group accesses its own part, equal in all steps of one
    partition.
    """

    param: int
    whole: int
    first: int
    last: int
    is_constant: bool = False
    is_own: bool = False


@dataclass(frozen=True)
class LinkedStep:
    """A launch to link. groups, group: number of work-groups, and work-items of each, along x, y, z.

    count_offset: byte of the launch parameter buffer with three 32-bit numbers of work-groups; -1 if they are always
    `groups`. partition: id of the mapping of `is_own` memory to work-groups; -1 if unknown.
    """

    entry: PtxKernel
    args: tuple[Number | DynamicNumber | Memory, ...]
    groups: tuple[int, int, int]
    group: tuple[int, int, int]
    count_offset: int = -1
    partition: int = -1

    @property
    def is_dynamic(self) -> bool:
        """Return whether an argument or the number of work-groups changes per run."""
        return self.count_offset >= 0 or any(isinstance(a, DynamicNumber) for a in self.args)


def argument_mismatch(step: LinkedStep) -> str:
    """Reason why the arguments do not fit the kernel's parameters, a parser fault; '' if they fit."""
    if len(step.args) != len(step.entry.params):
        return f"it takes {len(step.entry.params)} arguments, not {len(step.args)}"
    for p, a in zip(step.entry.params, step.args, strict=True):
        wanted = "global" if isinstance(a, Memory) else ""
        if p.space != wanted:
            return f"its parameter {p.name} is in {p.space or 'no'} memory"
    return ""


def memory_of(step: LinkedStep) -> list[Memory]:
    """The memory arguments, in order."""
    return [a for a in step.args if isinstance(a, Memory)]


def code_key(step: LinkedStep) -> object:
    """Key of a step's code: everything but its memory."""
    args = tuple((a.is_constant, is_streamed(a)) if isinstance(a, Memory) else a for a in step.args)
    return step.entry, args, step.groups, step.group, step.count_offset


def is_streamed(a: Memory) -> bool:
    """Return whether `a` is a constant of at least STREAMED bytes, which a run reads once."""
    return a.is_constant and a.last - a.first >= STREAMED


@lru_cache(maxsize=1024)
def layout(step: LinkedStep) -> tuple[dict[str, int], int]:
    """(offset by shared variable, total bytes) of a work-group's shared memory."""
    at, found = 0, {}
    for s in step.entry.shared:
        at = -(-at // s.align) * s.align
        found[s.name] = at
        at += s.nbytes
    return found, -(-at // _ALIGN) * _ALIGN


def shared_bytes(step: LinkedStep) -> int:
    """Shared memory of one work-group, in bytes."""
    return layout(step)[1]


def begins_early(step: LinkedStep) -> bool:
    """Return whether work-groups may start before earlier steps are done: until they wait they read only constants."""
    if math.prod(step.group) % WARP:
        return False
    names = read_first(step.entry)
    given = dict(zip((p.name for p in step.entry.params), step.args, strict=True))
    return names is not None and all(isinstance(a := given[n], Memory) and a.is_constant for n in names)


@dataclass(frozen=True)
class StepOrder:
    """Dependency of a step. waits: all earlier steps must be done.

    follows: earlier step whose results it reads work-group by work-group, so that both use the same groups of the
    linked kernel; -1 for none.
    """

    waits: bool
    follows: int = -1


def find_step_order(steps: Sequence[LinkedStep]) -> list[StepOrder]:
    """Dependency of each step. A step waits if it conflicts with a step since the last wait.

    Two steps conflict if their memory overlaps and at least one writes it, unless each work-group has its own part in
    both steps.
    """
    found: list[StepOrder] = []
    used: list[tuple[int, Memory, bool]] = []  # since the last wait: (step, memory, is written)
    for i, step in enumerate(steps):
        names = written(step.entry)
        accesses = [
            (i, a, p.name in names) for p, a in zip(step.entry.params, step.args, strict=True) if isinstance(a, Memory)
        ]
        conflicts = {
            j if _is_apart(step, a, steps[j], b) else -1
            for _, a, writes in accesses
            for j, b, wrote in used
            if (writes or wrote) and _overlap(a, b)
        }
        first = {j if j < 0 or found[j].follows < 0 else found[j].follows for j in conflicts}
        waits = len(first) > 1 or -1 in first
        found.append(StepOrder(waits, -1 if waits or not first else first.pop()))
        used = accesses if waits else used + accesses
    return found


def _is_apart(step: LinkedStep, a: Memory, before: LinkedStep, b: Memory) -> bool:
    """Return whether equal work-groups of both steps access the same parts of the memory, and no other parts."""
    same = step.partition == before.partition >= 0 and (step.groups, step.group) == (before.groups, before.group)
    own = a.is_own and b.is_own and (a.first, a.last) == (b.first, b.last)
    return same and own and not step.entry.has_global_atomics and not before.entry.has_global_atomics


def _overlap(a: Memory, b: Memory) -> bool:
    return a.whole == b.whole and a.first < b.last and b.first < a.last
