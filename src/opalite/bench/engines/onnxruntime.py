"""ONNX Runtime. Option: `provider` (default CPUExecutionProvider). Its worker pool: sessions that split the threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnxruntime

from . import Array, Callers, Engine, EngineOptions, WorkerPool


class _OnnxRuntime:
    def __init__(self, options: EngineOptions) -> None:
        self.version = onnxruntime.__version__
        self.device = options.extra.get("provider", "CPUExecutionProvider")
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(options.model, settings, providers=[self.device])

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        results: list[Array] = self._session.run(None, dict(feeds))
        return results


def make_engine(options: EngineOptions) -> Engine:
    """A session with the given provider alone, so that no operator falls back unnoticed."""
    return _OnnxRuntime(options)


def make_worker_pool(options: EngineOptions) -> WorkerPool:
    """As many sessions as workers, each called by its own thread with its share of the threads."""
    share = replace(options, threads=max(1, options.threads // options.workers))
    return Callers([_OnnxRuntime(share) for _ in range(options.workers)])
