"""Adapters of engines: one small module each, imported only in the process that measures it.

A module offers `make_engine(options) -> Engine`, and may offer `make_worker_pool(options) -> WorkerPool`.
Beyond the names here, any importable module with such functions can be named by its dotted path, for example
`benchmarks.engines.torch`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...errors import InputError

Array = np.ndarray[Any, Any]

BUILT_IN = ("opalite", "onnxruntime", "openvino")


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is given: the model's path, the number of CPU threads, and options of its own.

    A crew is asked for so many `workers` at once, as `mode` says.
    """

    model: str
    threads: int
    extra: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""
    workers: int = 1


class Engine(Protocol):
    """A loaded model. `version` and `device` are for the report.

    One that goes on building in the background may have a method `settle()`, which waits until that is done.
    """

    version: str
    device: str

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs in the model's order, as arrays in host memory; the call returns when they are complete."""
        ...


@runtime_checkable
class WorkerPool(Protocol):
    """A loaded model that is asked for several inferences at once. It may have `settle()`, as an Engine may."""

    version: str
    device: str

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Outputs of one inference."""
        ...

    def work(self, feeds: Mapping[str, Array], seconds: float) -> list[float]:
        """Keep all workers busy for `seconds`; seconds of each inference, from when a worker took it."""
        ...


def find_maker(name: str) -> Callable[[EngineOptions], Engine]:
    """The function that loads a model into engine `name`. InputError for an unknown or uninstalled one."""
    return _find(name, "make_engine")


def find_worker_pool_maker(name: str) -> Callable[[EngineOptions], WorkerPool]:
    """The function that loads a model into several workers of engine `name`. InputError as for `find_maker`."""
    return _find(name, "make_worker_pool")


def _find(name: str, function: str) -> Callable[[EngineOptions], Any]:
    path = f"{__name__}.{name}" if name in BUILT_IN else name
    try:
        module = importlib.import_module(path)
    except ImportError as e:
        if name in BUILT_IN:
            raise InputError(f"engine '{name}' needs the package '{e.name}': pip install {e.name}") from e
        known = ", ".join(BUILT_IN)
        raise InputError(f"engine '{name}' could not be imported ({e}); built in: {known}, or a dotted module") from e
    make: Callable[[EngineOptions], Any] | None = getattr(module, function, None)
    if make is None:
        raise InputError(f"engine '{name}': the module has no function {function}(options)")
    return make
