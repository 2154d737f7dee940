"""Concurrent runs of a worker: the number with the highest throughput, if clearly faster."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from opalite.serve.engine import concurrency_probe
from opalite.serve.engine.concurrency_probe import best_concurrency
from opalite.serve.engine.inference_server import Server
from opalite.serve.wire.serve_errors import WorkerLost

from ....helpers.numpy_server import Seen, found, request, served, write
from ....helpers.serve_sessions import SLOW


@pytest.mark.parametrize(
    "rates,cores,expected",
    [
        ({1: 100}, 1, 1),
        ({1: 100, 2: 102}, 2, 1),
        ({1: 100, 2: 110}, 2, 2),
        ({1: 100, 2: 110, 3: 112}, 8, 2),
        ({1: 100, 2: 110, 3: 120}, 8, 3),
        ({1: 100, 2: 90, 3: 120}, 8, 3),
    ],
)
def test_as_many_as_are_done_fastest(
    rates: dict[int, float], cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency_probe, "_rate", lambda run, count: rates[count])
    monkeypatch.setattr(concurrency_probe, "_seconds", lambda run: 0.004)
    assert best_concurrency(lambda: None, cores) == expected


def test_as_many_threads_as_are_tried_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency_probe, "_FIRST_S", 0.01)
    barrier, met = threading.Barrier(3), set()

    def run() -> None:
        if threading.current_thread() not in met:
            barrier.wait(60)
            met.add(threading.current_thread())
        time.sleep(0.001)

    assert concurrency_probe._rate(run, 3) > 0
    assert len(met) == 3


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_runs_that_are_short_or_long_are_not_tried(seconds: float) -> None:
    calls = []

    def run() -> None:
        calls.append(threading.current_thread())
        if seconds:
            time.sleep(seconds)

    assert best_concurrency(run, 8) == 1
    assert set(calls) == {threading.current_thread()}


def test_a_slow_moment_does_not_count() -> None:
    steady = [0.005 * i for i in range(80)]
    assert concurrency_probe._best_rate(steady) == pytest.approx(200)
    disturbed = [t if t < 0.25 else t + 1.0 for t in steady]
    assert concurrency_probe._best_rate(disturbed) == pytest.approx(200)
    assert concurrency_probe._best_rate([]) == concurrency_probe._best_rate([1.0]) == 0.0


def test_a_worker_runs_as_many_at_once_as_are_done_fastest(tmp_path: Path) -> None:
    write(tmp_path)

    async def test(server: Server, seen: Seen) -> None:
        async def most_at_once() -> int:
            answers = await asyncio.gather(*(server.infer(request(float(n))) for n in range(1, 13)))
            assert [found(a, "y")[0][0] for a in answers] == [2 * n for n in range(1, 13)]
            return max(found(a, "size")[0] for a in answers)

        count = await most_at_once()
        assert count == 2
        (pid,) = server.workers()
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
        held = [asyncio.create_task(server.infer(request(SLOW, second=60))) for _ in range(count + 3)]
        while len(seen.of("accepted")) < 12 + len(held) or seen.of("queued")[-1][2] > len(held) - count - 1:
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        lost: set[asyncio.Task[Any]] = set()
        left = set(held)
        while len(lost) < count:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            lost |= done
        assert [type(t.exception()) for t in lost] == [WorkerLost] * count  # the one it held ahead runs again
        for task in left:
            task.cancel()
        assert await most_at_once() == count

    served(tmp_path, test, session_factory="tests.helpers.serve_sessions:pair")
