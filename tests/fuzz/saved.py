"""Cases as onnxruntime saves them: its optimiser's operators, its channel blocks, in place of what the graph had.

python -m tests.fuzz --saved --seconds 600 --seed 1 [--mode null|device]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnxruntime as ort

import onnx

from .case import Case

_LEVELS = ("ORT_ENABLE_ALL", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL", "ORT_ENABLE_BASIC")


def saved_case(case: Case, seed: int) -> Case | None:
    """The case with the model that onnxruntime's optimiser makes of it, at a level by the seed; None if it refuses."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[seed % len(_LEVELS)])
    # Products that it makes of dequantised matrices would round their rows to 8 bits, which the graph does not.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.onnx"
        options.optimized_model_filepath = str(path)
        try:
            ort.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception:  # whatever onnxruntime raises
            return None
        return Case(onnx.load(path), case.feeds)
