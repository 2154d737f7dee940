"""opalite.paddle_inference: Paddle Inference's calls on OpenCL devices.

    import opalite.paddle_inference as paddle_infer          # for: import paddle.inference as paddle_infer
    from opalite import paddle_inference as inference        # for: from paddle import inference

docs/paddle.md says which settings have no effect here, and which are refused.
"""

from __future__ import annotations

from .config import Config, PrecisionType
from .predictor import Predictor, PredictorPool, create_predictor
from .tensor import DataType, PlaceType, Tensor, get_num_bytes_of_data_type
from .version import get_trt_compile_version, get_trt_runtime_version, get_version

__all__ = [
    "Config",
    "DataType",
    "PlaceType",
    "PrecisionType",
    "Predictor",
    "PredictorPool",
    "Tensor",
    "create_predictor",
    "get_num_bytes_of_data_type",
    "get_trt_compile_version",
    "get_trt_runtime_version",
    "get_version",
]
