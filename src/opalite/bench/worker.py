"""The process of one engine: reads one command per line from stdin, answers each with one line of JSON.


    load    {engine, model, threads, names, feeds, extra, mode, workers} -> {version, device, load_s, first_s, memory}
    settle  {runs} -> {}
    slice   {seconds, warmup, least} -> {times: [seconds of each run]}
    work    {seconds} -> {times: [seconds of each concurrent run], seconds}
    save    {path} -> {} and the last run's outputs in an .npz file
    quit    {}

An error is answered as {"error": text}. The engine's own output goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OpaliteError
from .engines import Array, Engine, EngineOptions, WorkerPool, find_maker

_SETTLE_S = 0.2  # seconds of a pool's work before its runs count
# Thread counts of libraries that read them from the environment when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "POCL_MAX_PTHREAD_COUNT")


class Worker:
    """One engine with one model and its inputs."""

    def __init__(self) -> None:
        self.engine: Engine | WorkerPool | None = None
        self.feeds: dict[str, Array] = {}
        self.outputs: list[Array] = []

    def load(
        self,
        engine: str,
        model: str,
        threads: int,
        names: list[str],
        feeds: str,
        extra: dict[str, str],
        mode: str = "",
        workers: int = 1,
    ) -> dict[str, Any]:
        """Loads the model and runs it once; load_s excludes the engine's import, since Opalite is imported already.

        mode: for a pool of so many workers; "" for an engine.
        """
        limit_threads(threads)
        with np.load(feeds) as archive:
            self.feeds = {name: archive[f"arr_{i}"] for i, name in enumerate(names)}
        make = find_maker(engine, "make_worker_pool" if mode else "make_engine")
        begin = time.perf_counter()
        self.engine = made = make(EngineOptions(model, threads, extra, mode, workers))
        loaded = time.perf_counter()
        self.outputs = made.run(self.feeds)
        first = time.perf_counter()
        return {
            "version": made.version,
            "device": made.device,
            "load_s": loaded - begin,
            "first_s": first - loaded,
            "memory": peak_memory(),
        }

    def settle(self, runs: int) -> dict[str, Any]:
        """Runs until the engine is in its final state: waits for background builds, then runs as often again."""
        assert self.engine is not None, "load comes before settle"
        for _ in range(3):
            if isinstance(self.engine, WorkerPool):
                count = 0
                while count < runs:
                    count += len(self.engine.work(self.feeds, _SETTLE_S))
            else:
                self.slice(0.0, 0, runs)
            getattr(self.engine, "settle", lambda: None)()
        return {}

    def slice(self, seconds: float, warmup: int, least: int) -> dict[str, Any]:
        """Times runs for `seconds`, at least `least` of them, after `warmup` untimed ones."""
        assert self.engine is not None, "load comes before slice"
        for _ in range(warmup):
            self.engine.run(self.feeds)
        times: list[float] = []
        end = time.perf_counter() + seconds
        while len(times) < least or time.perf_counter() < end:
            begin = time.perf_counter()
            self.outputs = self.engine.run(self.feeds)
            times.append(time.perf_counter() - begin)
        return {"times": times}

    def work(self, seconds: float) -> dict[str, Any]:
        """Runs a pool for `seconds`, until its last inference ends."""
        assert isinstance(self.engine, WorkerPool), "load with a mode comes before work"
        begin = time.perf_counter()
        times = self.engine.work(self.feeds, seconds)
        return {"times": times, "seconds": time.perf_counter() - begin}

    def save(self, path: str) -> dict[str, Any]:
        """Writes the last run's outputs as arr_0, arr_1, ..."""
        np.savez(path, *self.outputs)
        return {}


def limit_threads(threads: int) -> None:
    """Limits this process to `threads` cores, so that engines without a setting for it comply."""
    for name in _THREAD_VARIABLES:
        os.putenv(name, str(threads))
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:threads])


def peak_memory() -> int:
    """Peak host memory of this process in bytes; 0 if unknown."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)


def main() -> None:
    """Answers commands until `quit` or the end of input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines that print cannot break the protocol
    worker = Worker()
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "load": worker.load,
        "settle": worker.settle,
        "slice": worker.slice,
        "work": worker.work,
        "save": worker.save,
    }
    for line in sys.stdin:
        request = json.loads(line)
        command = request.pop("command")
        if command == "quit":
            return
        try:
            answer = commands[command](**request)
        except OpaliteError as e:
            answer = {"error": str(e)}
        except Exception as e:  # an engine may raise anything; the parent reports it
            traceback.print_exc()
            answer = {"error": f"{type(e).__name__}: {e}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
