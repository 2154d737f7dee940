"""Casts on the host: numbers written as text and read from it, and types that NumPy does not cast to by itself.

Text is that of onnxruntime: floats have eight digits at most, infinity is INF; what is read is the number at the
beginning, after white space, as C reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import onnx

from ...errors import InputError
from ...ir.dtype import DType
from ..proto.decode import Array, elem_dtype
from ..proto.graphdef import DOMAIN
from .numpy_ops import HostNode, Step, host_op

_REAL = re.compile(
    r"\s*(?:(?P<hex>[+-]?0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?)"
    r"|(?P<real>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|[+-]?nan))",
    re.ASCII | re.IGNORECASE,
)
_WHOLE = re.compile(r"\s*([+-]?)0*([0-9]*)", re.ASCII)
_MOST_DIGITS = 20  # of an integer of 64 bits


@host_op("Cast", DOMAIN)
def cast(node: HostNode) -> Step:
    """To text, from text, or to powers of two of 8 bits."""
    dtype = elem_dtype(int(node.attrs["to"]))
    if dtype is DType.STRING:
        return lambda inputs: [_texts(inputs[0])]
    if dtype is DType.FLOAT8E8M0:
        saturates, mode = bool(node.attrs["saturate"]), str(node.attrs["round_mode"])
        convert = onnx.numpy_helper.to_float8e8m0
        return lambda inputs: [np.asarray(convert(inputs[0].astype(np.float32), saturates, mode)).astype(dtype.np)]
    if dtype.name.startswith("INT"):
        return lambda inputs: [_read(inputs[0], dtype, _signed, np.int64)]
    if dtype is DType.BOOL or dtype.name.startswith("UINT"):
        return lambda inputs: [_read(inputs[0], dtype, _unsigned, np.uint64)]
    return lambda inputs: [_read(inputs[0], dtype, _real, np.float64)]


@host_op("BitCast", DOMAIN)
def bit_cast(node: HostNode) -> Step:
    """The same bits as another type of that size."""
    dtype = elem_dtype(int(node.attrs["to"]))
    return lambda inputs: [np.ascontiguousarray(inputs[0]).view(dtype.np).reshape(inputs[0].shape).copy()]


def _texts(x: Array) -> Array:
    out = np.empty(x.size, object)
    flat = x.reshape(-1)
    if x.dtype.kind not in "iub" and x.dtype.itemsize < 4:  # halves and smaller are written as float32
        flat = flat.astype(np.float32)
    out[:] = [_write(v) for v in flat.tolist()]
    return out.reshape(x.shape)


def _write(value: float | int | bool) -> str:
    if not isinstance(value, float):
        return str(int(value))
    return "NaN" if math.isnan(value) else ("INF" if value > 0 else "-INF") if math.isinf(value) else f"{value:.8g}"


def _read(x: Array, dtype: DType, number: Callable[[str], Any], through: Any) -> Array:
    """`number` of each text, as `through` and then as `dtype`."""
    found = []
    for text in x.reshape(-1).tolist():
        value = number(text)
        if value is None:
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise InputError(f"Cast to {dtype} reads {shown!r}; expected a number that it holds")
        found.append(value)
    return np.array(found, through).reshape(x.shape).astype(dtype.np)


def _real(text: str) -> float | None:
    """The number at the beginning; None without one, or if it is beyond float64."""
    found = _REAL.match(text)
    if found is None:
        return None
    try:
        value = float.fromhex(found["hex"]) if found["hex"] else float(found["real"])
    except OverflowError:
        return None
    return None if math.isinf(value) and "n" not in found[0].lower() else value


def _signed(text: str) -> int | None:
    value = _whole(text)
    return value if value is not None and -(1 << 63) <= value < 1 << 63 else None


def _unsigned(text: str) -> int | None:
    """A negative number wraps."""
    value = _whole(text)
    return value % (1 << 64) if value is not None and abs(value) < 1 << 64 else None


def _whole(text: str) -> int | None:
    """The whole number at the beginning; None without one, or if it is beyond 64 bits."""
    found = _WHOLE.match(text)
    if found is None or len(found[2]) > _MOST_DIGITS or not found[0][-1:].isdigit():
        return None
    value = int(found[2] or "0")
    return -value if found[1] == "-" else value
