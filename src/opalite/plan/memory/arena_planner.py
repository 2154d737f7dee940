"""Arena planner: an offset for every intermediate, by several strategies, checked by an independent verifier."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from ...lazy_dataclass import dataclass


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
    """The most bytes alive at any one step, a lower bound of every plan."""
    return _most_alive(_events(requests), {r.id: align_up(r.nbytes, align) for r in requests})


def _events(requests: Sequence[Request]) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Ids of requests that begin, and of requests that have ended, at each step with at least one, in order."""
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
    """No reuse, for debugging: every value keeps its memory to the end."""
    offsets: dict[int, int] = {}
    top = 0
    for r in requests:
        offsets[r.id] = top
        top += align_up(r.nbytes, align)
    return Plan("naive", offsets, top)


MOST_OVERLAPS = 64
"""Most overlapping pairs for each request in the greedy strategies; with more, a pool allocates in execution order."""

Overlaps = Mapping[int, Sequence[int]]
"""By request id, the requests whose lifetimes overlap."""


def find_overlaps(requests: Sequence[Request]) -> Overlaps | None:
    """Overlapping lifetimes; None for more than MOST_OVERLAPS pairs a request."""
    meets: dict[int, list[int]] = {r.id: [] for r in requests}
    alive: list[tuple[int, int]] = []  # last step and id, a heap
    count = 0
    for r in sorted(requests, key=lambda r: r.first):
        while alive and alive[0][0] < r.first:
            heappop(alive)
        count += len(alive)
        if count > MOST_OVERLAPS * len(requests):
            return None
        own = meets[r.id]
        for _, other in alive:
            own.append(other)
            meets[other].append(r.id)
        heappush(alive, (r.last, r.id))
    return meets


def _place_in_order(name: str, order: Iterable[tuple[int, int]], meets: Overlaps) -> Plan:
    """Place requests (id, aligned bytes) in order: each in the best-fitting gap among overlapping ones."""
    offsets: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    total = 0
    for number, size in order:
        offset = _best_fit(sorted([spans[o] for o in meets[number] if o in spans]), size)
        offsets[number] = offset
        spans[number] = offset, offset + size
        total = max(total, offset + size)
    return Plan(name, offsets, total)


def _sized(order: Iterable[Request], align: int) -> list[tuple[int, int]]:
    return [(r.id, align_up(r.nbytes, align)) for r in order]


def _best_fit(busy: Sequence[tuple[int, int]], size: int) -> int:
    """Offset of `size` bytes among sorted busy ranges: the smallest gap that fits, else the end."""
    best, best_gap, cursor = None, None, 0
    for start, end in busy:
        gap = start - cursor
        if gap >= size and (best_gap is None or gap < best_gap):
            best, best_gap = cursor, gap
        cursor = max(cursor, end)
    return cursor if best is None else best


_KEYS: Mapping[str, Callable[[Request], tuple[int, int]]] = {
    "by_size": lambda r: (-r.nbytes, r.first),
    "best_fit": lambda r: (r.first, -r.nbytes),
    "by_lifetime": lambda r: (r.first - r.last, -r.nbytes),
}
"""The requests' order of some strategies.

by_size: the largest first (TensorFlow Lite's greedy_by_size_assignment). best_fit: in execution order (MNN's
BufferPool). by_lifetime: the longest-lived first, so that they stay at the bottom of the arena.
"""


def _by_breadth(requests: Sequence[Request]) -> Iterable[Request]:
    """The steps with most bytes alive first, and in each its largest values first."""
    steps: dict[int, list[Request]] = {}
    marks = sorted({r.first for r in requests})
    for r in requests:
        for step in marks[bisect_left(marks, r.first) : bisect_right(marks, r.last)]:
            steps.setdefault(step, []).append(r)
    order: dict[Request, None] = {}
    for step in sorted(steps, key=lambda s: -sum(r.nbytes for r in steps[s])):
        for r in sorted(steps[step], key=lambda r: -r.nbytes):
            order.setdefault(r)
    return order


SEARCH_PLACEMENTS = 20000  # requests placed in all: keeps the search to some tens of milliseconds


def _search(requests: Sequence[Request], align: int, meets: Overlaps) -> Plan:
    """Greedy by size, repaired: requests that end above the lower bound move forward in the order; all are placed anew.

    ('Squeaky wheel' optimization: Joslin and Clements 1999.) Stops at the lower bound or after SEARCH_PLACEMENTS.
    """
    bound = lower_bound(requests, align)
    order = sorted(requests, key=_KEYS["by_size"])
    best = _place_in_order("search", _sized(order, align), meets)
    weight = {r.id: float(r.nbytes) for r in requests}
    for _ in range(SEARCH_PLACEMENTS // max(len(requests), 1)):
        if best.total <= bound:
            break
        plan = _place_in_order("search", _sized(order, align), meets)
        if plan.total < best.total:
            best = plan
        for r in requests:
            if plan.offsets[r.id] + r.nbytes > bound:
                weight[r.id] = weight[r.id] * 1.3 + bound * 0.05
        order = sorted(requests, key=lambda r: (-weight[r.id], r.first))
    return best


def plan_pool(requests: Sequence[Request], sizes: Mapping[int, int]) -> Plan:
    """`best_fit` for any number of overlaps: free blocks are kept by size, and merged when freed.

    sizes: aligned bytes by request.
    """
    offsets: dict[int, int] = {}
    by_size: list[tuple[int, int]] = []  # size and start of free blocks, sorted
    starts: dict[int, int] = {}  # size of the free block that starts there
    ends: dict[int, int] = {}  # start of the free block that ends there
    busy: list[tuple[int, int]] = []  # last step and id, a heap
    total = 0

    def take(start: int) -> int:
        size = starts.pop(start)
        del ends[start + size]
        del by_size[bisect_left(by_size, (size, start))]
        return size

    def give(start: int, size: int) -> None:
        if start in ends:
            before = ends[start]
            start, size = before, size + take(before)
        if start + size in starts:
            size += take(start + size)
        starts[start], ends[start + size] = size, start
        insort(by_size, (size, start))

    for r in sorted(requests, key=lambda r: (r.first, -sizes[r.id])):
        while busy and busy[0][0] < r.first:
            done = heappop(busy)[1]
            if sizes[done]:
                give(offsets[done], sizes[done])
        size = sizes[r.id]
        fits = bisect_left(by_size, (size, 0)) if size else len(by_size)
        if fits < len(by_size):
            start = by_size[fits][1]
            found = take(start)
        else:
            start = ends.get(total, total)  # the last free block can grow
            found = take(start) if start < total else 0
            total = max(total, start + size)
        offsets[r.id] = start
        if found > size:
            give(start + size, found - size)
        heappush(busy, (r.last, r.id))
    return Plan("pool", offsets, total)


class Replacer:
    """Places requests of known lifetimes again for other sizes; overlaps are computed once.

    order: ids of the requests by their offsets in a plan for some sizes. Placed in that order, no request gets a higher
    offset than in that plan, so that for those sizes the arena is no larger.
    """

    WELL = 1.05  # times the lower bound; larger plans are also tried by size

    def __init__(self, requests: Sequence[Request], order: Sequence[int]) -> None:
        self._requests = requests
        self._order = order
        self._meets = find_overlaps(requests)
        self._events = _events(requests)
        self._last: tuple[Any, Plan, int] = ({}, Plan("", {}, 0), -1)

    def place(self, nbytes: Mapping[int, int], align: int) -> tuple[Plan, int]:
        """(a plan, the lower bound) for these bytes by request."""
        sizes = {i: align_up(n, align) for i, n in nbytes.items()}
        last, plan, least = self._last
        if sizes == last and least >= 0:
            return plan, least
        least = _most_alive(self._events, sizes)
        if self._meets is None:
            plan = plan_pool(self._requests, sizes)
        else:
            plan = _place_in_order("as_planned", [(i, sizes[i]) for i in self._order], self._meets)
            if plan.total > self.WELL * least:
                by_size = sorted(sizes.items(), key=lambda item: -item[1])
                plan = min(plan, _place_in_order("by_size", by_size, self._meets), key=lambda p: p.total)
        self._last = sizes, plan, least  # set at once, for threads
        return plan, least


STRATEGIES = ("naive", "by_size", "by_breadth", "best_fit", "by_lifetime", "search")
"""Names of the strategies."""


def _place(strategy: str, requests: Sequence[Request], align: int, meets: Overlaps) -> Plan:
    if strategy == "search":
        return _search(requests, align, meets)
    order = _by_breadth(requests) if strategy == "by_breadth" else sorted(requests, key=_KEYS[strategy])
    return _place_in_order(strategy, _sized(order, align), meets)


def plan_memory(requests: Sequence[Request], align: int, strategy: str = "best") -> tuple[Plan, dict[str, int]]:
    """(the chosen plan, totals of all strategies tried). `best` takes the smallest arena, and searches only if needed.

    With more than MOST_OVERLAPS overlapping pairs a request, all strategies but `naive` are replaced by a pool.
    """
    plans = [plan_naive(requests, align)] if strategy in ("best", "naive") else []
    if strategy != "naive":
        meets = find_overlaps(requests)
        if meets is None:
            plans.append(plan_pool(requests, dict(_sized(requests, align))))
        else:
            names = STRATEGIES[1:-1] if strategy == "best" else (strategy,)
            plans += [_place(name, requests, align, meets) for name in names]
            if strategy == "best" and min(p.total for p in plans) > lower_bound(requests, align):
                plans.append(_search(requests, align, meets))
    for plan in plans:
        verify_plan(requests, plan, align)
    chosen = min(plans, key=lambda p: p.total)
    return chosen, {plan.strategy: plan.total for plan in plans}


def verify_plan(requests: Sequence[Request], plan: Plan, align: int) -> None:
    """AssertionError if values alive at the same time overlap, or a value exceeds the arena or is misaligned."""
    active: list[tuple[int, int, int]] = []  # first byte, end and id of what is alive, sorted; none overlaps
    ends: list[tuple[int, tuple[int, int, int]]] = []  # last step of each, a heap
    for r in sorted(requests, key=lambda r: r.first):
        offset, end = plan.offsets[r.id], plan.offsets[r.id] + r.nbytes
        assert offset % align == 0, f"{plan.strategy}: value {r.id} at {offset} is not aligned to {align}"
        assert end <= plan.total, f"{plan.strategy}: value {r.id} sticks out of the arena"
        if not r.nbytes:
            continue
        while ends and ends[0][0] < r.first:
            del active[bisect_left(active, heappop(ends)[1])]
        at = bisect_left(active, (offset, end, r.id))
        for start, stop, other in active[max(0, at - 1) : at + 1]:
            assert end <= start or stop <= offset, f"{plan.strategy}: values {other} and {r.id} overlap"
        active.insert(at, (offset, end, r.id))
        heappush(ends, (r.last, (offset, end, r.id)))
