"""Who gets the turn of a session's runs."""

from __future__ import annotations

import threading
import time

from opalite.run.model.run_lock import PATIENCE_S, RunLock

LONG_S = 60.0  # for what takes milliseconds on a machine that is not busy


def wait_for_one_in_line(lock: RunLock) -> None:
    """Until another thread has waited for the lock for longer than its patience lasts."""
    deadline = time.monotonic() + LONG_S
    while not lock.waiting_since:
        assert time.monotonic() < deadline
        time.sleep(0.0001)
    time.sleep(2 * PATIENCE_S)


def test_who_has_waited_goes_before_who_comes_back_at_once() -> None:
    """A thread that repeats a short run lets go of the lock for less time than another takes to wake up."""
    lock, order = RunLock(), list[str]()
    lock.acquire()

    def wait() -> None:
        with lock:
            order.append("waited")

    other = threading.Thread(target=wait)
    other.start()
    wait_for_one_in_line(lock)
    lock.release()
    with lock:
        order.append("came back")
    other.join(LONG_S)
    assert order == ["waited", "came back"]
    assert lock.waits >= 1


def test_who_has_the_lock_takes_it_again_whoever_waits() -> None:
    lock = RunLock()
    with lock:
        other = threading.Thread(target=lambda: lock.__enter__() or lock.release())
        other.start()
        wait_for_one_in_line(lock)
        with lock:
            pass
        assert other.is_alive()
    other.join(LONG_S)
    assert not other.is_alive()
