"""onnxruntime, which says what is right: without its graph optimisations and on one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from onnx import helper

Array = np.ndarray[Any, Any]

onnxruntime.set_default_logger_severity(4)

VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
"""Of onnxruntime."""

IR_VERSIONS = dict(zip(range(7, 26), (3, 3, 4, 5, 6, 7, 7, 7, 8, 8, 8, 8, 9, 9, 10, 10, 11, 12, 13), strict=True))
"""By opset of ai.onnx."""


def value_info(name: str, array: Array, shape: Sequence[int | str] | str | None = "own") -> Any:
    """A graph input or output like `array`; shape None leaves the rank open, "own" is its own."""
    dims = list(array.shape) if shape == "own" else shape
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)


def open_session(model: Any, optimised: bool = False) -> Any:
    """A session of onnxruntime's for a ModelProto or its bytes."""
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    raw = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])


def run_model(model: Any, feeds: Mapping[str, Array], optimised: bool = False) -> list[Any]:
    """All outputs."""
    session = open_session(model, optimised)
    return list(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()}))
