"""OpenVINO. Options: `device` (default CPU), `precision` (default f32). Its worker pool uses the hint THROUGHPUT."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import openvino

from . import Array, Callers, Engine, EngineOptions, WorkerPool


class _OpenVino:
    def __init__(self, options: EngineOptions, hint: str = "LATENCY") -> None:
        self.version = openvino.__version__.split("-")[0]
        self.device = options.extra.get("device", "CPU")
        config: dict[str, str | int] = {
            "PERFORMANCE_HINT": hint,
            "INFERENCE_PRECISION_HINT": options.extra.get("precision", "f32"),
        }
        if self.device == "CPU":
            config["INFERENCE_NUM_THREADS"] = options.threads
        self._model = openvino.Core().compile_model(options.model, self.device, config)
        self._request = self._model.create_infer_request()
        self._count = len(self._request.model_outputs)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        self._request.infer(dict(feeds), share_inputs=True)
        return [np.array(self._request.get_output_tensor(i).data) for i in range(self._count)]


def make_engine(options: EngineOptions) -> Engine:
    """A compiled model with one infer request; float32 by default, since CPUs with bfloat16 would use that."""
    return _OpenVino(options)


class _Throughput(_OpenVino):
    """As many infer requests as OpenVINO finds best."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options, "THROUGHPUT")
        self._queue = openvino.AsyncInferQueue(self._model)

    def work(self, feeds: Mapping[str, Array], seconds: float) -> list[float]:
        times: list[float] = []
        self._queue.set_callback(lambda request, begun: times.append(time.perf_counter() - begun))
        end = time.perf_counter() + seconds
        given = dict(feeds)
        while time.perf_counter() < end:
            self._queue.is_ready()  # waits for a free request
            self._queue.start_async(given, time.perf_counter(), share_inputs=True)
        self._queue.wait_all()
        return times


def make_worker_pool(options: EngineOptions) -> WorkerPool:
    """Callers of one request at a time in mode 'latency', else a queue whose number of requests OpenVINO chooses."""
    return Callers([_OpenVino(options)]) if options.mode == "latency" else _Throughput(options)
