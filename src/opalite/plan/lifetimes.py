"""Lifetimes of a Program's memory, and from them its slots: offsets in the arena, and images of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..ir.dtype import DType
from ..ir.symbols import is_symbolic
from .arena import STRATEGIES, Plan, Request, lower_bound, plan_memory
from .program import MemoryReport, Program, Slot, Storage


@dataclass
class Lifetime:
    """A device value's needs before offsets are known: `nbytes` from step `first` to step `last`, both included.

    image: width and height in texels. within: the slot that holds it, and at which byte.
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
    """What the arena has to hold; a request has the number of its slot."""
    return [
        Request(i, m.nbytes, m.first, m.last)
        for i, m in enumerate(lifetimes)
        if m.storage is Storage.DYNAMIC and m.image is None and m.within is None
    ]


LINGERS, LINGERING_BYTES = 3, 1 << 16
"""Nodes for which memory of so many bytes at most is kept after its last use, where launches are linked."""


def linger(lifetimes: Sequence[Lifetime]) -> None:
    """Keep small values' memory a little longer than they are used; not of sizes that are open.

    Linked launches of which one writes what another has read wait for each other: the rotation of a decoder's keys
    would for that of its queries.
    """
    for m in lifetimes:
        is_small = not is_symbolic(m.nbytes) and m.nbytes <= LINGERING_BYTES
        if is_small and m.storage is Storage.DYNAMIC and m.image is None:
            m.last += LINGERS


def assign_memory(program: Program, lifetimes: Sequence[Lifetime], align: int, strategy: str) -> None:
    """Offsets for DYNAMIC buffers, pool numbers for images, and the report. InputError for an unknown strategy."""
    if strategy != "best" and strategy not in STRATEGIES:
        raise InputError(f"unknown memory planner {strategy!r}; expected best, {', '.join(STRATEGIES)}")
    requests = arena_requests(lifetimes)
    plan, totals = plan_memory(requests, align, strategy)
    fill_slots(program, lifetimes, plan, totals, lower_bound(requests, align))


def fill_slots(
    program: Program,
    lifetimes: Sequence[Lifetime],
    plan: Plan,
    totals: dict[str, int],
    least: int,
    last: Sequence[Slot] = (),
) -> None:
    """The slots of `program`, its images and its report. plan: of the arena. least: bytes that no plan goes below.

    last: slots of the same plan at another size; those that are equal are taken again.
    """
    images, program.image_pool = _assign_images(lifetimes)
    offset_of = plan.offsets.get
    program.slots = []
    for i, m in enumerate(lifetimes):
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
        sum(m.nbytes for m in lifetimes if m.storage is Storage.STATIC),
        sum(m.nbytes for m in lifetimes if m.storage is Storage.SEPARATE),
        sum(w * h * 4 * dtype.size for w, h, dtype in program.image_pool),
        sum(m.within is not None for m in lifetimes),
    )


def _assign_images(lifetimes: Sequence[Lifetime]) -> tuple[dict[int, int], list[tuple[int, int, DType]]]:
    """A pool of images reused by size: the smallest free one that fits, else the one that needs least growth, else new.

    A wide image and a high one are never merged: growing must cost fewer texels than an image of its own.
    """
    pool: list[list[Any]] = []  # width, height, dtype, busy until step
    number: dict[int, int] = {}
    order = [i for i, m in enumerate(lifetimes) if m.image is not None and m.storage is not Storage.STATIC]
    for i in sorted(order, key=lambda i: lifetimes[i].first):
        m = lifetimes[i]
        assert m.image is not None
        w, h = m.image
        free = [p for p in range(len(pool)) if pool[p][3] < m.first and pool[p][2] is m.dtype]
        fits = [p for p in free if pool[p][0] >= w and pool[p][1] >= h]
        growth = {p: max(pool[p][0], w) * max(pool[p][1], h) - pool[p][0] * pool[p][1] for p in free}
        if fits:
            p = min(fits, key=lambda p: pool[p][0] * pool[p][1])
        elif free and min(growth.values()) < w * h:
            p = min(growth, key=lambda p: growth[p])
            pool[p][0], pool[p][1] = max(pool[p][0], w), max(pool[p][1], h)
        else:
            p = len(pool)
            pool.append([w, h, m.dtype, 0])
        pool[p][3] = m.last
        number[i] = p
    return number, [(w, h, dtype) for w, h, dtype, _ in pool]
