"""Parallelism of builds and other long work: limits by cores, process limits and OPALITE_BUILD_THREADS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ... import knobs
from ...pocl.process_limits import task_limit

_MAX_WORKERS = 8  # each takes about 200 MB

T = TypeVar("T")
R = TypeVar("R")


def worker_count() -> int:
    """Number of threads or processes that build at once; 1 under a tight limit of tasks."""
    if knobs.get("OPALITE_BUILD_THREADS") is None and task_limit() is not None:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(knobs.get("OPALITE_BUILD_THREADS") or min(cores, _MAX_WORKERS))


def may_start_processes() -> bool:
    """Return whether background processes may start: no tight limit of tasks, OPALITE_BUILD_THREADS not set."""
    return knobs.get("OPALITE_BUILD_THREADS") is None and task_limit() is None


def parallel_map(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply `function` to each item in up to `worker_count()` threads: for functions that release the GIL."""
    items = list(items)
    threads = min(worker_count(), len(items))
    if threads <= 1:
        return list(map(function, items))
    with ThreadPoolExecutor(threads, "opalite-map") as pool:
        try:
            return list(pool.map(function, items))
        except RuntimeError:  # the system has no more threads
            return list(map(function, items))
