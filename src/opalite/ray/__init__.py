"""Opalite in Ray: `Predictor` for Ray Data, `deployment` for Ray Serve, `put` and `resources` for a cluster.

    dataset.map_batches(opalite.ray.Predictor, fn_constructor_args=("model.onnx",), batch_size=32, concurrency=4)

Ray does scheduling, retries, back-pressure and batching. Ray (`pip install 'opalite-cl[ray]'`) is imported at first
use; a Predictor works without Ray, for example in Spark's `mapInPandas`.
"""

from .device_resources import resources
from .predictor import Predictor, put
from .serve_deployment import deployment

__all__ = ["Predictor", "deployment", "put", "resources"]
