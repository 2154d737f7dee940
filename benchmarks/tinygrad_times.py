"""Times tinygrad on an ONNX file through OpenCL, with kernels captured by its JIT."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any


def median_ms(data: bytes, x: Any, repeats: int) -> float:
    """Median milliseconds of a finished run on the one input `x`, which is on the device."""
    from tinygrad import Context, Device, Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    with TemporaryDirectory() as folder, Context(DEV="CL"):
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        runner = OnnxRunner(path)
        inputs = {next(iter(runner.graph_inputs)): Tensor(x).realize()}

        @TinyJit
        def run(**tensors: Any) -> Any:
            return next(iter(runner(tensors).values())).realize()

        device = Device[Device.DEFAULT]
        for _ in range(4):
            run(**inputs)
        device.synchronize()
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            run(**inputs)
            device.synchronize()
            times.append(time.perf_counter() - started)
    return median(times) * 1e3
