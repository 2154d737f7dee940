"""A worker pool of engines, each called repeatedly by its own thread."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from . import Array, Engine


class Callers:
    """A pool of engines of one kind."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines
        self.version, self.device = engines[0].version, engines[0].device
        self._pool = ThreadPoolExecutor(len(engines))

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """One inference of the first engine."""
        return self._engines[0].run(feeds)

    def work(self, feeds: Mapping[str, Array], seconds: float) -> list[float]:
        """Runs all engines for `seconds`; returns the seconds of each inference."""
        end = time.perf_counter() + seconds

        def call(engine: Engine) -> list[float]:
            times: list[float] = []
            while (begun := time.perf_counter()) < end or not times:
                engine.run(feeds)
                times.append(time.perf_counter() - begun)
            return times

        return [t for times in self._pool.map(call, self._engines) for t in times]

    def settle(self) -> None:
        """Settles each engine that can."""
        for engine in self._engines:
            getattr(engine, "settle", lambda: None)()
