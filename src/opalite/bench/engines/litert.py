"""LiteRT (ai-edge-litert), whose default kernels are XNNPACK's; it runs .tflite files. It has no options."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from ai_edge_litert import interpreter

from . import Array, Callers, Engine, EngineOptions, WorkerPool


class _LiteRt:
    def __init__(self, options: EngineOptions) -> None:
        self.version = version("ai-edge-litert")
        self.device = "CPU"
        self._interpreter: Any = interpreter.Interpreter(options.model, num_threads=options.threads)
        self._interpreter.allocate_tensors()
        self._inputs = {d["name"]: d["index"] for d in self._interpreter.get_input_details()}
        self._outputs = [d["index"] for d in self._interpreter.get_output_details()]
        self._shapes = {d["name"]: tuple(d["shape"]) for d in self._interpreter.get_input_details()}

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        shapes = {name: array.shape for name, array in feeds.items()}
        if shapes != self._shapes:
            for name, shape in shapes.items():
                self._interpreter.resize_tensor_input(self._inputs[name], shape)
            self._interpreter.allocate_tensors()
            self._shapes = shapes
        for name, array in feeds.items():
            self._interpreter.set_tensor(self._inputs[name], array)
        self._interpreter.invoke()
        return [self._interpreter.get_tensor(i) for i in self._outputs]


def make_engine(options: EngineOptions) -> Engine:
    """An interpreter with as many threads as the process has cores."""
    return _LiteRt(options)


def make_worker_pool(options: EngineOptions) -> WorkerPool:
    """As many interpreters as workers, each with one thread."""
    one = EngineOptions(options.model, 1, options.extra)
    return Callers([_LiteRt(one) for _ in range(options.workers)])
