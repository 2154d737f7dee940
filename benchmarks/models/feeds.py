"""Seeded random inputs for a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import onnx
from onnx import helper

Array = np.ndarray[Any, Any]


def random_feeds(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None, seed: int = 0
) -> dict[str, Array]:
    """An array for every input: normal floats, fair zeros and ones for integers, ones for masks.

    A free dimension is 1 unless `shapes` gives the input's shape.
    """
    rng = np.random.default_rng(seed)
    constants = {w.name for w in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for info in model.graph.input:
        if info.name in constants:
            continue
        tensor = info.type.tensor_type
        shape = (shapes or {}).get(info.name) or tuple(d.dim_value or 1 for d in tensor.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if "mask" in info.name:
            feeds[info.name] = np.ones(shape, dtype)
        elif dtype.kind == "f":
            feeds[info.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[info.name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds


def stored_feeds(path: Path) -> dict[str, Array]:
    """The arrays `in:NAME` of the .npz beside the model file `path`; empty without one."""
    arrays = path.with_suffix(".npz")
    if not arrays.is_file():
        return {}
    with np.load(arrays) as archive:
        return {key.removeprefix("in:"): archive[key] for key in archive.files if key.startswith("in:")}
