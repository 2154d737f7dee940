"""The memory planner: one arena, an offset for every intermediate, several strategies, an independent verifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """One value's memory: `nbytes` alive from step `first` to step `last`, both included."""

    id: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """Offsets by request id and the arena's size in bytes."""

    strategy: str
    offsets: dict[int, int]
    total: int


def align_up(n: int, align: int) -> int:
    """`n` rounded up to a multiple of `align`."""
    return -(-n // align) * align


def lower_bound(requests: Sequence[Request], align: int = 1) -> int:
    """The most bytes alive at any one step: no plan can be smaller."""
    return _most_alive(_events(requests), {r.id: align_up(r.nbytes, align) for r in requests})


def _events(requests: Sequence[Request]) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Ids of the requests that begin, and of those that have ended, at each step at which there are any, in order."""
    begins, ends = dict[int, list[int]](), dict[int, list[int]]()
    for r in requests:
        begins.setdefault(r.first, []).append(r.id)
        ends.setdefault(r.last + 1, []).append(r.id)
    return [(begins.get(step, ()), ends.get(step, ())) for step in sorted({*begins, *ends})]


def _most_alive(events: Sequence[tuple[Sequence[int], Sequence[int]]], sizes: Mapping[int, int]) -> int:
    alive = most = 0
    for begins, ends in events:
        for i in begins:
            alive += sizes[i]
        for i in ends:
            alive -= sizes[i]
        most = max(most, alive)
    return most


def plan_naive(requests: Sequence[Request], align: int) -> Plan:
    """No reuse: for debugging, every value keeps its bytes to the end."""
    offsets: dict[int, int] = {}
    top = 0
    for r in requests:
        offsets[r.id] = top
        top += align_up(r.nbytes, align)
    return Plan("naive", offsets, top)


def _place_in_order(name: str, order: Sequence[Request], align: int) -> Plan:
    """Give each request in turn the lowest gap that fits among the placed ones it overlaps in time, best fit first."""
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # first, last, offset, end
    total = 0
    for r in order:
        size = align_up(r.nbytes, align)
        offset = _best_fit(sorted((o, e) for first, last, o, e in placed if first <= r.last and r.first <= last), size)
        offsets[r.id] = offset
        placed.append((r.first, r.last, offset, offset + size))
        total = max(total, offset + size)
    return Plan(name, offsets, total)


def _best_fit(busy: Sequence[tuple[int, int]], size: int) -> int:
    """Where `size` bytes go beside stretches in order of their starts: the smallest gap that fits, else behind all."""
    best, best_gap, cursor = None, None, 0
    for start, end in busy:
        gap = start - cursor
        if gap >= size and (best_gap is None or gap < best_gap):
            best, best_gap = cursor, gap
        cursor = max(cursor, end)
    return cursor if best is None else best


def plan_by_size(requests: Sequence[Request], align: int) -> Plan:
    """Greedy by size: the largest value first (TensorFlow Lite's greedy_by_size_assignment)."""
    return _place_in_order("by_size", sorted(requests, key=lambda r: (-r.nbytes, r.first)), align)


def plan_by_breadth(requests: Sequence[Request], align: int) -> Plan:
    """Greedy by breadth: the steps with most bytes alive first, and in each its largest values first."""
    steps: dict[int, list[Request]] = {}
    marks = sorted({r.first for r in requests})
    for r in requests:
        for step in marks:
            if r.first <= step <= r.last:
                steps.setdefault(step, []).append(r)
    order: dict[Request, None] = {}
    for step in sorted(steps, key=lambda s: -sum(r.nbytes for r in steps[s])):
        for r in sorted(steps[step], key=lambda r: -r.nbytes):
            order.setdefault(r)
    return _place_in_order("by_breadth", list(order), align)


def plan_best_fit(requests: Sequence[Request], align: int) -> Plan:
    """A pool in execution order: the smallest free block that fits, split when larger (MNN's BufferPool)."""
    return _place_in_order("best_fit", sorted(requests, key=lambda r: (r.first, -r.nbytes)), align)


def plan_by_lifetime(requests: Sequence[Request], align: int) -> Plan:
    """Longest-lived first: values that stay keep to the bottom of the arena."""
    return _place_in_order("by_lifetime", sorted(requests, key=lambda r: (r.first - r.last, -r.nbytes)), align)


SEARCH_PLACEMENTS = 20000  # requests placed in all: keeps the search to some tens of milliseconds


def plan_search(requests: Sequence[Request], align: int) -> Plan:
    """Greedy by size, repaired: whoever ends above the lower bound moves forward in the order; all are placed anew.

    ('Squeaky wheel' optimisation: Joslin and Clements 1999.) Stops at the lower bound or after SEARCH_PLACEMENTS.
    """
    bound = lower_bound(requests, align)
    order = sorted(requests, key=lambda r: (-r.nbytes, r.first))
    best = _place_in_order("search", order, align)
    weight = {r.id: float(r.nbytes) for r in requests}
    for _ in range(SEARCH_PLACEMENTS // max(len(requests), 1)):
        if best.total <= bound:
            break
        plan = _place_in_order("search", order, align)
        if plan.total < best.total:
            best = plan
        for r in requests:
            if plan.offsets[r.id] + r.nbytes > bound:
                weight[r.id] = weight[r.id] * 1.3 + bound * 0.05
        order = sorted(requests, key=lambda r: (-weight[r.id], r.first))
    return best


class Replacer:
    """Places requests of known lifetimes again for other sizes, quickly: who meets whom in time is worked out once.

    order: ids of the requests by their offsets in a plan for some sizes. Placed in that order they come to lie nowhere
    higher than there, so that for those sizes the arena is no larger.
    """

    WELL = 1.05  # of the lower bound: what is larger is placed by size too

    def __init__(self, requests: Sequence[Request], order: Sequence[int]) -> None:
        self._order = order
        self._meets = {
            r.id: [o.id for o in requests if o is not r and o.first <= r.last and r.first <= o.last] for r in requests
        }
        self._events = _events(requests)
        self._last: tuple[Any, Plan, int] = ({}, Plan("", {}, 0), -1)

    def place(self, nbytes: Mapping[int, int], align: int) -> tuple[Plan, int]:
        """(a plan, the lower bound) for these bytes by request, whose lifetimes are those that are known."""
        sizes = {i: align_up(n, align) for i, n in nbytes.items()}
        last, plan, least = self._last
        if sizes == last and least >= 0:
            return plan, least
        least = _most_alive(self._events, sizes)
        plan = self._placed("as_planned", self._order, sizes)
        if plan.total > self.WELL * least:
            other = self._placed("by_size", sorted(sizes, key=lambda i: -sizes[i]), sizes)
            plan = min(plan, other, key=lambda p: p.total)
        self._last = sizes, plan, least  # set at once, for threads
        return plan, least

    def _placed(self, name: str, order: Sequence[int], sizes: Mapping[int, int]) -> Plan:
        offsets: dict[int, int] = {}
        total = 0
        for number in order:
            size = sizes[number]
            busy = sorted((offsets[o], offsets[o] + sizes[o]) for o in self._meets[number] if o in offsets)
            offset = _best_fit(busy, size)
            offsets[number] = offset
            total = max(total, offset + size)
        return Plan(name, offsets, total)


STRATEGIES: dict[str, Callable[[Sequence[Request], int], Plan]] = {
    "naive": plan_naive,
    "by_size": plan_by_size,
    "by_breadth": plan_by_breadth,
    "best_fit": plan_best_fit,
    "by_lifetime": plan_by_lifetime,
    "search": plan_search,
}


def plan_memory(requests: Sequence[Request], align: int, strategy: str = "best") -> tuple[Plan, dict[str, int]]:
    """(the plan chosen, totals of all strategies tried). `best` takes the smallest arena, searching only if it must."""
    names = [n for n in STRATEGIES if n != "search"] if strategy == "best" else [strategy]
    plans = {name: STRATEGIES[name](requests, align) for name in names}
    if strategy == "best" and min(p.total for p in plans.values()) > lower_bound(requests, align):
        plans["search"] = plan_search(requests, align)
    for plan in plans.values():
        verify_plan(requests, plan, align)
    chosen = min(plans.values(), key=lambda p: p.total)
    return chosen, {name: p.total for name, p in plans.items()}


def verify_plan(requests: Sequence[Request], plan: Plan, align: int) -> None:
    """AssertionError if two values alive at the same time overlap, stick out of the arena, or are misaligned."""
    active: list[Request] = []
    for r in sorted(requests, key=lambda r: r.first):
        offset = plan.offsets[r.id]
        assert offset % align == 0, f"{plan.strategy}: value {r.id} at {offset} is not aligned to {align}"
        assert offset + r.nbytes <= plan.total, f"{plan.strategy}: value {r.id} sticks out of the arena"
        active = [a for a in active if a.last >= r.first]
        for a in active:
            other = plan.offsets[a.id]
            apart = offset + r.nbytes <= other or other + a.nbytes <= offset
            assert apart or not r.nbytes or not a.nbytes, f"{plan.strategy}: values {a.id} and {r.id} overlap"
        active.append(r)
