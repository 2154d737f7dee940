"""What takes long is done in several threads, where there may be some."""

from __future__ import annotations

import threading

import pytest

from opalite.cl.programs import build_parallelism
from opalite.cl.programs.build_parallelism import parallel_map


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_order_from_as_many_threads_as_may_work(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(build_parallelism, "worker_count", lambda: workers)
    meet = threading.Barrier(min(workers, 2))

    def work(i: int) -> tuple[int, str]:
        meet.wait(60)  # with another, if there may be one
        return i * i, threading.current_thread().name

    found = parallel_map(work, range(4) if workers < 3 else range(2))
    assert [n for n, _ in found] == [0, 1, 4, 9][: len(found)]
    assert (found[0][1] == threading.current_thread().name) is (workers == 1)


def test_what_fails_is_told() -> None:
    def fail(i: int) -> None:
        raise ValueError(f"no {i}")

    with pytest.raises(ValueError, match="no 0"):
        parallel_map(fail, range(3))


def test_without_threads_all_is_done_by_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(build_parallelism, "worker_count", lambda: 2)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert parallel_map(abs, [-1, -2]) == [1, 2]
