"""Seeded random inputs for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import onnx
from onnx import helper
from opalite.importer import ValueInfo

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


def declared_feeds(inputs: Sequence[ValueInfo], seed: int = 0, size: int = 1) -> dict[str, Array]:
    """An array for every input of a model of any format: normal floats, zeros and ones; open sizes are `size`."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for info in inputs:
        assert info.dtype is not None, f"input {info.name} is no tensor"
        shape = tuple(d if isinstance(d, int) else size for d in info.shape or ())
        dtype = info.dtype.np
        floats = dtype.kind == "f"
        feeds[info.name] = (rng.standard_normal(shape) if floats else rng.integers(0, 2, shape)).astype(dtype)
    return feeds


def stored_feeds(path: Path) -> dict[str, Array]:
    """The arrays `in:NAME` of the .npz beside the model file `path`; empty without one."""
    arrays = path.with_suffix(".npz")
    if not arrays.is_file():
        return {}
    with np.load(arrays) as archive:
        return {key.removeprefix("in:"): archive[key] for key in archive.files if key.startswith("in:")}
