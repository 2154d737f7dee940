"""Opalite. Options: those of InferenceSession (`device`, `precision`, `memory`, `tune`); its worker pool is a queue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import opalite

from . import Array, Callers, Engine, EngineOptions, WorkerPool


class _Opalite:
    def __init__(self, options: EngineOptions) -> None:
        self.version = opalite.__version__
        settings: dict[str, Any] = dict(options.extra)
        self._session = opalite.InferenceSession(options.model, **settings)
        self.device = self._session.device.title

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        results: list[Array] = self._session.run(None, dict(feeds))
        return results

    def settle(self) -> None:
        self._session.settle()


def make_engine(options: EngineOptions) -> Engine:
    """A session. Its threads are the cores of the process, which the worker has limited."""
    return _Opalite(options)


class _Queue:
    def __init__(self, options: EngineOptions) -> None:
        self.version = opalite.__version__
        settings: dict[str, Any] = dict(options.extra)
        device = settings.pop("device", None)
        self._queue = opalite.InferQueue(
            options.model, devices=device, workers=options.workers, processes=options.mode == "processes", **settings
        )
        self.device = self._queue.devices[0].name

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        return self._queue.start_async(feeds).result()

    def work(self, feeds: Mapping[str, Array], seconds: float) -> list[float]:
        jobs: list[opalite.Job] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            jobs.append(self._queue.start_async(feeds))
        self._queue.wait_all()
        return [job.run_s for job in jobs]

    def settle(self) -> None:
        self._queue.settle()


def make_worker_pool(options: EngineOptions) -> WorkerPool:
    """By `mode`: a session called repeatedly ('latency'), or a queue of 'threads' or 'processes'."""
    return Callers([_Opalite(options)]) if options.mode == "latency" else _Queue(options)
