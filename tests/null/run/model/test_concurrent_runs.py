"""What runs beside others have of the device: a core each, or all of it for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from opalite.run.model.run_lock import RunLock

LONG_S = 60.0  # for what takes milliseconds on a machine that is not busy


def start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_slice_has_all_of_the_device() -> None:
    """No turn is another's, and nobody walks, meanwhile."""
    lock, faults = RunLock(), list[str]()
    state = {"slices": 0, "others": 0}
    guard = threading.Lock()

    def enter(mine: str, other: str) -> None:
        with guard:
            state[mine] += 1
            if state[other] or state["slices"] > 1:
                faults.append(f"{mine} beside {other}")

    def leave(mine: str) -> None:
        with guard:
            state[mine] -= 1

    def slices() -> None:
        for _ in range(50):
            with lock.concurrent.exclusive():
                enter("slices", "others")
                time.sleep(0.0002)
                leave("slices")

    def walk() -> None:
        for _ in range(50):
            with lock.concurrent.reserve_core(2):
                enter("others", "slices")
                time.sleep(0.0002)
                leave("others")

    def turns() -> None:
        for _ in range(50):
            with lock:
                enter("others", "slices")
                time.sleep(0.0002)
                leave("others")

    threads = [start(work) for work in (slices, slices, walk, walk, turns)]
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert not faults


def test_as_many_walk_as_there_are_cores() -> None:
    """One is left to the run whose turn it is, if there is one; in the order in which they came."""
    lock = RunLock()
    inside, most = 0, 0
    guard, two = threading.Lock(), threading.Event()

    def walk() -> None:
        nonlocal inside, most
        with lock.concurrent.reserve_core(3):
            with guard:
                inside += 1
                most = max(most, inside)
            if most == 2:
                two.set()
            assert two.wait(LONG_S)
            time.sleep(0.01)
            with guard:
                inside -= 1

    with lock:
        for thread in [start(walk) for _ in range(6)]:
            thread.join(LONG_S)
    assert most == 2


def test_slices_and_walks_alternate() -> None:
    """However short the pauses of either are."""
    lock, over = RunLock(), threading.Event()
    counts = {"slices": 0, "walks": 0}

    def slices() -> None:
        while not over.is_set():
            with lock.concurrent.exclusive():
                counts["slices"] += 1
                time.sleep(0.0005)

    def walk() -> None:
        while not over.is_set():
            with lock.concurrent.reserve_core(2):
                counts["walks"] += 1
                time.sleep(0.0005)

    threads = [start(slices), start(walk)]
    deadline = time.monotonic() + LONG_S
    while min(counts.values()) < 20 and time.monotonic() < deadline:
        time.sleep(0.001)
    over.set()
    for thread in threads:
        thread.join(LONG_S)
    assert min(counts.values()) >= 20


def test_slices_and_turns_alternate() -> None:
    lock, over = RunLock(), threading.Event()
    order: list[str] = []

    def turns() -> None:
        while not over.is_set():
            with lock:
                order.append("turn")
                time.sleep(0.0005)

    other = start(turns)
    for _ in range(20):
        with lock.concurrent.exclusive():
            order.append("slice")
            time.sleep(0.0005)
    over.set()
    other.join(LONG_S)
    first, last = order.index("slice"), len(order) - order[::-1].index("slice")
    between = order[first:last]
    assert between.count("turn") >= 5
    assert between.count("turn") <= 200


def test_who_wants_to_be_alone_waits_and_is() -> None:
    lock = RunLock()
    lock.concurrent._running = 1
    began = threading.Event()

    def exclusive() -> None:
        with lock.exclusive():
            began.set()

    thread = start(exclusive)
    assert not began.wait(0.05)
    with lock.concurrent._changed:
        lock.concurrent._running = 0
        lock.concurrent._changed.notify_all()
    thread.join(LONG_S)
    assert began.is_set()


def test_waiting_is_told_and_forgotten() -> None:
    lock = RunLock()
    with lock:
        other = start(lambda: lock.__enter__() or lock.release())
        deadline = time.monotonic() + LONG_S
        while not lock.is_shared and time.monotonic() < deadline:
            time.sleep(0.001)
    other.join(LONG_S)
    assert lock.is_shared
    lock.concurrent._shared_until = 0.0
    lock.concurrent.evict_idle()
    assert not lock.is_shared


class Busy:
    """An executable on a device with a queue of its own, which has launches or host threads for its runs."""

    tier, is_released, is_random, runs_on_host_thread = "optimized", False, False, False

    def __init__(self) -> None:
        self.program = object()
        self.memory = SimpleNamespace(nbytes=1)
        self.rt = SimpleNamespace(info=SimpleNamespace(on_host=False, global_mem=1 << 34))
        self.lock = threading.Lock()

    def make_replica(self, program: Any) -> Any:
        return Busy()


def test_a_gpu_has_a_replica_for_runs_that_find_it_in_use() -> None:
    """A run that finds it free waits for nobody, and takes the executable itself."""
    lock, executable = RunLock(), Busy()

    def lease(program: Any) -> Any:
        with lock.concurrent.lease_replica(executable, program) as found:  # type: ignore[arg-type]
            return found

    assert lease(executable.program) is None
    assert lease(object()) is not None, "of another size"
    with lock:
        found: list[Any] = []
        start(lambda: found.append(lease(executable.program))).join(LONG_S)
    assert isinstance(found[0], Busy)
    executable.memory.nbytes = executable.rt.info.global_mem
    with lock:
        start(lambda: found.append(lease(executable.program))).join(LONG_S)
    assert found[1] is None, "its replica would take too much memory"
    lock.concurrent._replicas.clear()  # these have no memory to release
