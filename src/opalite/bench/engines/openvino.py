"""OpenVINO. Options: `device` (default CPU), `precision` (default f32)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import openvino

from . import Array, Engine, EngineOptions


class _OpenVino:
    def __init__(self, options: EngineOptions) -> None:
        self.version = openvino.__version__.split("-")[0]
        self.device = options.extra.get("device", "CPU")
        config: dict[str, str | int] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": options.extra.get("precision", "f32"),
        }
        if self.device == "CPU":
            config["INFERENCE_NUM_THREADS"] = options.threads
        self._request = openvino.Core().compile_model(options.model, self.device, config).create_infer_request()
        self._count = len(self._request.model_outputs)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        self._request.infer(dict(feeds), share_inputs=True)
        return [np.array(self._request.get_output_tensor(i).data) for i in range(self._count)]


def make_engine(options: EngineOptions) -> Engine:
    """A compiled model with one infer request. float32 unless asked otherwise: CPUs with bfloat16 would use that."""
    return _OpenVino(options)
