"""Models by way of Ray's object store, so that nodes need no common folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import InputTypeError
from ..extras import need

Source = str | os.PathLike[str] | bytes


def put(model: Source) -> Any:
    """A ray.ObjectRef of the model's bytes, which a Predictor takes in place of a path, on any node.

    For an .onnx file or a bundle (`opalite.compile`, which also takes in data that lies beside an .onnx file). Keep the
    reference as long as actors may start: Ray frees what nobody refers to.
    """
    ray = need("ray", "opalite.ray.put", "ray")
    return ray.put(model if isinstance(model, bytes) else Path(model).read_bytes())


def fetch(model: Any) -> Source:
    """A path or bytes as they are, and the bytes that a reference stands for."""
    if isinstance(model, str | os.PathLike | bytes):
        return model
    if type(model).__name__ != "ObjectRef":
        raise InputTypeError(f"a model is a path, bytes, or what opalite.ray.put gave, got {type(model).__name__}")
    found: Source = need("ray", "a reference to a model", "ray").get(model)
    return found
