"""Models with open dimensions, derived from models of fixed sizes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx


def opened(model: onnx.ModelProto, axes: Sequence[int] = (0, 2, 3)) -> onnx.ModelProto:
    """`model` with the `axes` of its first input open, without inner shapes."""
    for axis in axes:
        dims = model.graph.input[0].type.tensor_type.shape.dim
        if axis < len(dims):
            dims[axis].ClearField("dim_value")
            dims[axis].dim_param = f"d{axis}"
    for info in model.graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    del model.graph.value_info[:]
    return model
