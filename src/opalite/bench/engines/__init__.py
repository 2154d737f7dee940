"""Engine adapters: one small module each, imported only in the process that measures it.

A module offers `make_engine(options) -> Engine`, and may offer `make_worker_pool(options) -> WorkerPool`. Any
importable module with such functions can be named by its dotted path, for example `benchmarks.engines.torch`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...errors import InputError

Array = np.ndarray[Any, Any]

BUILT_IN = ("opalite", "onnxruntime", "openvino", "litert", "paddle")


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine: model path, number of CPU threads, engine-specific options.

    workers, mode: for a worker pool.
    """

    model: str
    threads: int
    extra: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""
    workers: int = 1


class Engine(Protocol):
    """A loaded model. `version` and `device` appear in the report.

    An engine that builds in the background may have a method `settle()`, which waits until that is finished.
    """

    version: str
    device: str

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in the model's order, as arrays in host memory; returns when they are complete."""
        ...


@runtime_checkable
class WorkerPool(Protocol):
    """A loaded model that runs several inferences concurrently. It may have `settle()`, as an Engine may."""

    version: str
    device: str

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs of one inference."""
        ...

    def work(self, feeds: Mapping[str, Array], seconds: float) -> list[float]:
        """Keeps all workers busy for `seconds`; returns the seconds of each inference, from its start by a worker."""
        ...


def find_maker(name: str, function: str = "make_engine") -> Callable[[EngineOptions], Any]:
    """The function of engine `name` that loads a model, or with "make_worker_pool" loads it into several workers.

    InputError if the engine is unknown or not installed.
    """
    path = f"{__name__}.{name}" if name in BUILT_IN else name
    try:
        module = importlib.import_module(path)
    except ImportError as e:
        if name in BUILT_IN:
            package = {"ai_edge_litert": "ai-edge-litert", "paddle": "paddlepaddle"}.get(e.name or "", e.name)
            raise InputError(f"engine '{name}' needs the package '{e.name}': pip install {package}") from e
        known = ", ".join(BUILT_IN)
        raise InputError(f"engine '{name}' could not be imported ({e}); built in: {known}, or a dotted module") from e
    make: Callable[[EngineOptions], Any] | None = getattr(module, function, None)
    if make is None:
        raise InputError(f"engine '{name}': the module has no function {function}(options)")
    return make


class Callers:
    """A pool of engines of one kind."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines
        self.version, self.device = engines[0].version, engines[0].device
        self._pool = ThreadPoolExecutor(len(engines))

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
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
        for engine in self._engines:
            getattr(engine, "settle", lambda: None)()
