"""Paddle Inference (paddlepaddle) on the CPU, with oneDNN's kernels; it runs Paddle's programs. It has no options."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from paddle import inference

from . import Array, Callers, Engine, EngineOptions, WorkerPool


class _Paddle:
    def __init__(self, options: EngineOptions) -> None:
        self.version = version("paddlepaddle")
        self.device = "CPU"
        params = Path(options.model).with_suffix(".pdiparams")
        config = inference.Config(options.model, str(params) if params.exists() else "")
        config.disable_gpu()
        config.disable_glog_info()
        config.enable_mkldnn()
        config.set_cpu_math_library_num_threads(options.threads)
        self._predictor: Any = inference.create_predictor(config)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        for name, array in feeds.items():
            self._predictor.get_input_handle(name).copy_from_cpu(array)
        self._predictor.run()
        return [self._predictor.get_output_handle(n).copy_to_cpu() for n in self._predictor.get_output_names()]


def make_engine(options: EngineOptions) -> Engine:
    """A predictor with as many threads as the process has cores."""
    return _Paddle(options)


def make_worker_pool(options: EngineOptions) -> WorkerPool:
    """As many predictors as workers, each with one thread."""
    one = EngineOptions(options.model, 1, options.extra)
    return Callers([_Paddle(one) for _ in range(options.workers)])
