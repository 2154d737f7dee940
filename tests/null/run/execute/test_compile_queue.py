"""The background jobs of a device: order, failures, and waiting for them."""

from __future__ import annotations

import threading

import pytest

from opalite.errors import OpaliteError
from opalite.run.execute.compile_queue import CompileQueue, Job

PATIENCE_S = 60.0


class Delayed(Job):
    """A job that is due once somebody waits for it."""

    due = False

    @property
    def is_due(self) -> bool:
        return self.due

    def make_due(self) -> None:
        self.due = True


def test_jobs_of_a_client_run_in_order_and_those_of_others_beside_them() -> None:
    queue, done, go = CompileQueue(), list[str](), threading.Event()
    last = Job(lambda: done.append("last"))
    last.order = 1
    first = Job(lambda: (done.append("first"), go.wait(PATIENCE_S))[0])
    second = Job(lambda: done.append("second"))
    other = Job(lambda: done.append("other"))
    queue.submit("client", first, last, second)
    queue.submit("other", other)
    assert other.wait(PATIENCE_S)
    assert "last" not in done
    assert queue.jobs("client")[1:] == [last, second]
    go.set()
    assert queue.settle([first, last, second], PATIENCE_S)
    assert [name for name in done if name != "other"] == ["first", "second", "last"]
    assert queue.jobs("client") == []


def test_a_delayed_job_runs_when_somebody_waits_for_it() -> None:
    queue, done = CompileQueue(), list[str]()
    job = Delayed(lambda: done.append("done"))
    queue.submit("client", job)
    assert not job.wait(0)
    assert queue.settle([job], PATIENCE_S)
    assert done == ["done"]


def test_jobs_are_asked_without_the_lock_of_the_queue() -> None:
    """A job takes locks that other threads may hold while they submit or drop jobs."""
    queue, answers = CompileQueue(), list[bool]()

    class Asking(Job):
        @property
        def is_due(self) -> bool:
            other = threading.Thread(target=queue.jobs, args=("client",))
            other.start()
            other.join(PATIENCE_S)
            answers.append(not other.is_alive())
            return True

    job = Asking(lambda: None)
    queue.submit("client", job)
    assert queue.settle([job], PATIENCE_S)
    assert answers == [True]


@pytest.mark.parametrize("error", [OpaliteError("no"), MemoryError("no"), ValueError("no")])
def test_a_failure_ends_its_job_alone(error: Exception) -> None:
    queue, failures = CompileQueue(), list[Exception]()

    def fail() -> None:
        raise error

    jobs = [Job(fail, failures.append), Job(lambda: None)]
    queue.submit("client", *jobs)
    assert queue.settle(jobs, PATIENCE_S)
    assert failures == [error]


def test_dropped_jobs_never_run() -> None:
    queue, done = CompileQueue(), list[str]()
    job = Delayed(lambda: done.append("done"))
    queue.submit("client", job)
    queue.drop("client")
    assert job.is_over
    assert queue.settle([job], 0)
    assert not done


def test_without_threads_jobs_are_over_with_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    queue, job = CompileQueue(), Job(lambda: None)
    queue.submit("client", job)
    assert job.is_over
    assert "no thread can be started" in job.fault
