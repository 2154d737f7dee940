"""put and fetch: models in Ray's object store, so that nodes need no shared folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import InputTypeError
from ..extras import need

Source = str | os.PathLike[str] | bytes


def put(model: Source) -> Any:
    """Put a model's bytes into the object store; returns a ray.ObjectRef that a Predictor accepts on any node.

    model: an .onnx file without external data, or a bundle of `opalite.compile`. Keep the reference as long as actors
    may start: Ray frees objects without references.
    """
    ray = need("ray", "opalite.ray.put", "ray")
    return ray.put(model if isinstance(model, bytes) else Path(model).read_bytes())


def fetch(model: Any) -> Source:
    """The bytes of a reference of `put`; returns a path or bytes unchanged. Raises InputTypeError for other types."""
    if isinstance(model, str | os.PathLike | bytes):
        return model
    if type(model).__name__ != "ObjectRef":
        raise InputTypeError(f"a model is a path, bytes, or a result of opalite.ray.put, got {type(model).__name__}")
    found: Source = need("ray", "a reference to a model", "ray").get(model)
    return found
