"""How many processes or threads do at once what takes long, such as building programs: by the cores, the limits of this
process and the user."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ... import knobs
from ...pocl.process_limits import task_limit

_MANY_WORKERS = 8  # each takes some 200 MB

T = TypeVar("T")
R = TypeVar("R")


def worker_count() -> int:
    """Threads or processes that build at once; 1 where tasks are so few that others would be missing."""
    if knobs.get("OPALITE_BUILD_THREADS") is None and task_limit() is not None:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(knobs.get("OPALITE_BUILD_THREADS") or min(cores, _MANY_WORKERS))


def may_start_processes() -> bool:
    """Whether one more process may run beside this one: tasks are not few, and the user has not asked for one alone."""
    return knobs.get("OPALITE_BUILD_THREADS") is None and task_limit() is None


def parallel_map(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`function` of each item, in as many threads as may work: for what leaves the interpreter to others."""
    items = list(items)
    threads = min(worker_count(), len(items))
    if threads <= 1:
        return list(map(function, items))
    with ThreadPoolExecutor(threads, "opalite-beside") as pool:
        try:
            return list(pool.map(function, items))
        except RuntimeError:  # the system has no more threads
            return list(map(function, items))
