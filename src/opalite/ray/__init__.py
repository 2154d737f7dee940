"""Opalite in Ray: `Predictor` for Ray Data, `deployment` for Ray Serve, `put` and `resources` for a cluster.

    dataset.map_batches(opalite.ray.Predictor, fn_constructor_args=("model.onnx",), batch_size=32, concurrency=4)

Scheduling, retries, back-pressure and batching are Ray's. Ray itself (`pip install 'opalite-cl[ray]'`) is imported by
what needs it; a Predictor works without, in Spark's `mapInPandas` for instance.
"""

from .device_resources import resources
from .object_store import put
from .predictor import Predictor
from .serve_deployment import deployment

__all__ = ["Predictor", "deployment", "put", "resources"]
