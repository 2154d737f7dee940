"""Details of tensors, as LiteRT's Interpreter gives them: name, index, shapes, type, quantisation, sparsity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..importer.tflite.read.tensors import TensorInfo
from ..ir.dtype import DType

Array = np.ndarray[Any, Any]


def numpy_type(info: TensorInfo) -> Any:
    """Return the NumPy type of a tensor's elements: bytes for strings, object for handles."""
    if info.dtype is None:
        return np.object_
    return np.bytes_ if info.dtype is DType.STRING else info.dtype.np.type


def describe(info: TensorInfo, shape: Sequence[int]) -> dict[str, Any]:
    """Return a tensor's details; `shape` is its size now."""
    q = info.quantization
    single = q is not None and q.scale.size == 1
    signature = [-1 if d is None else d for d in info.signature] if None in info.signature else shape
    return {
        "name": info.name,
        "index": info.index,
        "shape": np.array(shape, np.int32),
        "shape_signature": np.array(signature, np.int32),
        "dtype": numpy_type(info),
        "quantization": (float(q.scale[0]), int(q.zero_point[0])) if q is not None and single else (0.0, 0),
        "quantization_parameters": {
            "scales": np.zeros(0, np.float32) if q is None else q.scale,
            "zero_points": np.zeros(0, np.int32) if q is None else q.zero_point.astype(np.int32),
            "quantized_dimension": 0 if q is None else q.axis,
            "block_size": 0,
        },
        "sparsity_parameters": _sparsity(info),
    }


def _sparsity(info: TensorInfo) -> dict[str, Any]:
    if info.sparsity is None:
        return {}
    levels = [
        {"format": 0, "dense_size": level}
        if isinstance(level, int)
        else {"format": 1, "array_segments": level[0].astype(np.int32), "array_indices": level[1].astype(np.int32)}
        for level in info.sparsity.levels
    ]
    found = {"traversal_order": np.array(info.sparsity.order, np.int32), "dim_metadata": levels}
    return {**found, "block_map": np.array(info.sparsity.blocks, np.int32)} if info.sparsity.blocks else found
