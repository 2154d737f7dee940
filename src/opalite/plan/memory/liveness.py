"""Liveness of a Program's memory, and the slots that follow: arena offsets and pool images."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from ...errors import InputError
from ...ir.dtype import DType
from ...ir.symbols import is_symbolic
from ...lazy_dataclass import dataclass
from ..program import MemoryReport, Program, Slot, Storage
from .arena_planner import STRATEGIES, Plan, Request, lower_bound, plan_memory


@dataclass
class Lifetime:
    """A device value before its offset is known: `nbytes` from step `first` to step `last`, both included.

    image: width and height in texels. within: (containing slot, byte offset).
    """

    nbytes: int
    first: int
    last: int
    storage: Storage
    label: str
    image: tuple[int, int] | None = None
    dtype: DType = DType.FLOAT32
    within: tuple[int, int] | None = None


def arena_requests(lifetimes: Sequence[Lifetime]) -> list[Request]:
    """The requests to the arena; a request has the number of its slot."""
    return [
        Request(i, m.nbytes, m.first, m.last)
        for i, m in enumerate(lifetimes)
        if m.storage is Storage.DYNAMIC and m.image is None and m.within is None
    ]


_Image: TypeAlias = tuple[int, int, DType]  # width and height in texels

LINGERS, LINGERING_BYTES = 3, 1 << 16
"""Nodes by which small memory, up to LINGERING_BYTES, outlives its last use in linked launches."""


def linger(lifetimes: Sequence[Lifetime]) -> None:
    """Extend the lifetimes of small values, except for open sizes.

    A linked launch that overwrites memory waits for earlier launches that read this memory: the rotation of a decoder's
    keys would wait for the rotation of the queries.
    """
    for m in lifetimes:
        is_small = not is_symbolic(m.nbytes) and m.nbytes <= LINGERING_BYTES
        if is_small and m.storage is Storage.DYNAMIC and m.image is None:
            m.last += LINGERS


def assign_memory(program: Program, lifetimes: Sequence[Lifetime], align: int, strategy: str) -> None:
    """Set offsets of DYNAMIC buffers, pool numbers of images, and the report. InputError for an unknown strategy."""
    if strategy != "best" and strategy not in STRATEGIES:
        raise InputError(f"unknown memory planner {strategy!r}; expected best, {', '.join(STRATEGIES)}")
    requests = arena_requests(lifetimes)
    plan, totals = plan_memory(requests, align, strategy)
    fill_slots(program, lifetimes, plan, totals, lower_bound(requests, align))


def fill_slots(
    program: Program,
    lives: Sequence[Lifetime],
    plan: Plan,
    totals: dict[str, int],
    least: int,
    last: Sequence[Slot] = (),
) -> None:
    """Set slots, images and the memory report of `program`.

    plan: of the arena. least: lower bound in bytes. last: slots of the same plan at other sizes; equal ones are reused.
    """
    images, program.image_pool = _assign_images(lives)
    offset_of = plan.offsets.get
    program.slots = []
    for i, m in enumerate(lives):
        within = m.within
        offset = offset_of(i, 0) if within is None else within[1] + offset_of(within[0], 0)
        image = images.get(i, 0)
        if last:
            old = last[i]
            if (old.nbytes, old.offset, old.image, old.image_slot) == (m.nbytes, offset, m.image, image):
                program.slots.append(old)
                continue
        inside = -1 if within is None else within[0]
        program.slots.append(Slot(i, m.nbytes, m.storage, offset, m.image, m.dtype, image, m.label, inside))
    program.arena_bytes = plan.total
    program.memory = MemoryReport(
        plan.strategy,
        totals,
        least,
        sum(m.nbytes for m in lives if m.storage is Storage.STATIC),
        sum(m.nbytes for m in lives if m.storage is Storage.SEPARATE),
        sum(w * h * 4 * dtype.size for w, h, dtype in program.image_pool),
        sum(m.within is not None for m in lives),
    )


def _assign_images(lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], list[_Image]]:
    """A pool of images reused by size: the smallest free one that fits, else the one that grows least, else a new one.

    A wide image and a high one are never merged: growing must cost fewer texels than an image of its own.
    """
    pool: list[_Image] = []
    free: dict[_Image, list[int]] = {}  # numbers of images that are free, by what they are: a heap each
    busy: list[tuple[int, int]] = []  # last step and number, a heap
    number: dict[int, int] = {}
    order = [i for i, m in enumerate(lifetimes) if m.image is not None and m.storage is not Storage.STATIC]
    for i in sorted(order, key=lambda i: lifetimes[i].first):
        m = lifetimes[i]
        assert m.image is not None
        w, h = m.image
        while busy and busy[0][0] < m.first:
            done = heappop(busy)[1]
            heappush(free.setdefault(pool[done], []), done)
        kinds = [(kind, numbers[0]) for kind, numbers in free.items() if kind[2] is m.dtype]
        fits = [(kind[0] * kind[1], n, kind) for kind, n in kinds if kind[0] >= w and kind[1] >= h]
        if not fits:  # the grown image replaces it
            fits = [(max(k[0], w) * max(k[1], h) - k[0] * k[1], n, k) for k, n in kinds]
            fits = [found for found in fits if found[0] < w * h]
        if fits:
            _, p, kind = min(fits, key=lambda found: found[:2])
            heappop(free[kind])
            if not free[kind]:
                del free[kind]
            pool[p] = max(kind[0], w), max(kind[1], h), m.dtype
        else:
            p = len(pool)
            pool.append((w, h, m.dtype))
        heappush(busy, (m.last, p))
        number[i] = p
    return number, pool
