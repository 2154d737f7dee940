"""Runtime counters of a piece of work, without those of background jobs that earlier tests left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from opalite.cl.runtime import Runtime
from opalite.cl.runtime_counters import Counters
from opalite.run.execute.compile_queue import compile_queue


def settled(rt: Runtime, timeout: float = 120) -> Counters:
    """The counters once no background job of the device is left, of whichever session."""
    queue, end = compile_queue(rt), time.monotonic() + timeout
    while clients := queue.clients:  # a client is left until its thread ends, also where its jobs were dropped
        for client in clients:
            queue.settle(queue.jobs(client), max(0.0, end - time.monotonic()))
        assert time.monotonic() < end, "background jobs go on"
        time.sleep(0.001)
    return rt.counters.snapshot()


def spent(rt: Runtime, work: Callable[[], Any]) -> Counters:
    """Counters of `work` alone."""
    before = settled(rt)
    work()
    return rt.counters.snapshot() - before
