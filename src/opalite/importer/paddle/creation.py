"""Importers of tensors that are made from numbers: constants, ranges, random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import DType, Value
from ...ir.symbols import is_symbolic
from .common import PaddleNode, paddle_op


def _filled(n: PaddleNode, value: Any, dtype: DType, shape: Sequence[int]) -> Value:
    if isinstance(value, Value):
        return n.expand(n.reshape(n.cast(value, dtype), ()), shape)
    if not dtype.is_float and not isinstance(value, bool):
        value = int(value)
    return n.full(value, dtype, shape)


@paddle_op("full", "fill_constant", "empty", "fill", operands="x")
def full(n: PaddleNode) -> Value:
    """Import full: a tensor of one number."""
    dtype = n.dtype("dtype", default=DType.FLOAT32)
    shape = n.whole("shape_tensor", "shape_tensor_list", "shape", default=())
    tensor = n.maybe("value_tensor")
    text = n.text("str_value")
    value = tensor if tensor is not None else float(text) if text else n.number("value", default=0.0)
    if isinstance(value, float) and not dtype.is_float and text.lstrip("+-").isdigit():
        value = int(text)
    return _filled(n, value, dtype, shape)


@paddle_op("full_with_tensor", operands="value shape")
def full_with_tensor(n: PaddleNode) -> Value:
    """Import full_with_tensor: the number is a tensor, and perhaps the shape."""
    value = n.value("value")
    dtype = n.dtype("dtype", default=value.dtype)
    known = value.data
    shape = n.whole("shape", default=())
    return _filled(n, value if known is None else known.reshape(-1)[0].item(), dtype, shape)


@paddle_op("full_int_array")
def full_int_array(n: PaddleNode) -> Value:
    """Import full_int_array: a vector of integers."""
    return n.constant(np.asarray(n.attr("value", ()), n.dtype("dtype", default=DType.INT64).np))


@paddle_op("full_like", "fill_any_like", "fill_zeros_like", "empty_like", operands="x value")
def full_like(n: PaddleNode) -> Value:
    """Import full_like: one number in the shape of another tensor."""
    x = n.value("x")
    return _filled(n, n.number("value", default=0.0), n.dtype("dtype", default=x.dtype), x.shape)


@paddle_op("full_batch_size_like", "fill_constant_batch_size_like", operands="input")
def full_batch_size_like(n: PaddleNode) -> Value:
    """Import full_batch_size_like: one dimension is that of another tensor."""
    x, shape = n.value("input"), n.whole("shape")
    shape[int(n.number("output_dim_idx", default=0))] = x.shape[int(n.number("input_dim_idx", default=0))]
    text = n.text("str_value")
    value = float(text) if text else n.number("value", default=0.0)
    return _filled(n, value, n.dtype("dtype", default=DType.FLOAT32), shape)


@paddle_op("assign_value", operands="output")
def assign_value(n: PaddleNode) -> Value:
    """Import assign_value: a constant that is written in the program."""
    dtype = n.dtype("dtype", default=DType.FLOAT32)
    names = ("values", "fp32_values", "int32_values", "int64_values", "bool_values", "fp64_values", "int8_values")
    found = next((v for name in names if (v := n.attr(name))), ())
    return n.constant(np.asarray(found).astype(dtype.np).reshape(n.whole("shape", default=())))


@paddle_op("arange", "range", operands="start end step")
def arange(n: PaddleNode) -> Value:
    """Import arange: numbers from start to before end."""
    dtype = n.dtype("dtype", default=n.value("start").dtype)
    values = [n.reshape(n.value(name), ()) for name in ("start", "end", "step")]
    made = n.emit("Range", values)
    return n.cast(made, dtype)


@paddle_op("linspace", operands="start stop num")
def linspace(n: PaddleNode) -> Value:
    """Import linspace: evenly spaced numbers, both ends included."""
    start, stop, count = (n.number(name) for name in ("start", "stop", "num"))
    dtype = n.dtype("dtype", default=DType.FLOAT32)
    return n.constant(np.linspace(float(start), float(stop), int(count)).astype(dtype.np))


@paddle_op("eye", operands="num_rows num_columns")
def eye(n: PaddleNode) -> Value:
    """Import eye: ones on the diagonal."""
    rows, columns = int(n.number("num_rows")), int(n.number("num_columns", default=-1))
    dtype = n.dtype("dtype", default=DType.FLOAT32)
    return n.constant(np.eye(rows, rows if columns < 0 else columns).astype(dtype.np))


@paddle_op("tril_indices", "triu_indices")
def triangle_indices(n: PaddleNode) -> Value:
    """Import tril_indices and triu_indices: the positions of a triangle."""
    rows, columns, offset = (int(n.number(*names)) for names in (("rows", "row"), ("cols", "col"), ("offset",)))
    find = np.tril_indices if n.op_type == "tril_indices" else np.triu_indices
    return n.constant(np.stack(find(rows, offset, columns)).astype(n.dtype("dtype", default=DType.INT64).np))


@paddle_op("uniform_random", "uniform", "gaussian_random", "gaussian", operands="shape")
def random(n: PaddleNode) -> Value:
    """Import uniform and gaussian: random numbers."""
    shape = n.whole("shape_tensor", "shape_tensor_list", "shape")
    if is_symbolic(shape):
        raise n.refuse("draws a number of random numbers that depends on open sizes: set them (dims=)")
    seed = int(n.number("seed", default=0))
    attrs: dict[str, Any] = {"shape": tuple(int(d) for d in shape), "dtype": 1} | (
        {"seed": float(seed)} if seed else {}
    )
    if n.op_type.startswith("uniform"):
        low, high = float(n.number("min", default=-1.0)), float(n.number("max", default=1.0))
        made = n.emit("RandomUniform", [], low=low, high=high, **attrs)
    else:
        mean, scale = float(n.number("mean", default=0.0)), float(n.number("std", default=1.0))
        made = n.emit("RandomNormal", [], mean=mean, scale=scale, **attrs)
    return n.cast(made, n.dtype("dtype", default=DType.FLOAT32))
