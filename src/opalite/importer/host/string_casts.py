"""Casts on the host: numbers to and from strings, and types that NumPy cannot cast to.

The text format is onnxruntime's: floats have at most eight digits, infinity is INF. Parsing skips white space and reads
a number prefix, as C does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import onnx

from ...errors import InputError
from ...ir import Array, DType
from ..proto.decode import elem_dtype
from ..proto.graphdef import DOMAIN
from .numpy_ops import HostNode, Step, host_op

_REAL = re.compile(
    r"\s*(?:(?P<hex>[+-]?0x(?:[0-9a-f]+(?:\.[0-9a-f]*)?|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?)"
    r"|(?P<real>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?inf(?:inity)?|[+-]?nan))",
    re.ASCII | re.IGNORECASE,
)
_WHOLE = re.compile(r"\s*([+-]?)0*([0-9]*)", re.ASCII)
_MOST_DIGITS = 20  # of a 64-bit integer


@host_op("Cast", DOMAIN)
def cast(node: HostNode) -> Step:
    """Cast to strings, from strings, or to float8e8m0."""
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
    """Reinterpret the bits as another type of the same size."""
    dtype = elem_dtype(int(node.attrs["to"]))
    return lambda inputs: [np.ascontiguousarray(inputs[0]).view(dtype.np).reshape(inputs[0].shape).copy()]


def _texts(x: Array) -> Array:
    out = np.empty(x.size, object)
    flat = x.reshape(-1)
    if x.dtype.kind not in "iub" and x.dtype.itemsize < 4:  # float16 and smaller floats are written as float32
        flat = flat.astype(np.float32)
    out[:] = [_write(v) for v in flat.tolist()]
    return out.reshape(x.shape)


def _write(value: float | int | bool) -> str:
    if not isinstance(value, float):
        return str(int(value))
    return "NaN" if math.isnan(value) else ("INF" if value > 0 else "-INF") if math.isinf(value) else f"{value:.8g}"


def _read(x: Array, dtype: DType, number: Callable[[str], Any], through: Any) -> Array:
    """Parse each string by `number`, convert to `through`, then to `dtype`."""
    found = []
    for text in x.reshape(-1).tolist():
        value = number(text)
        if value is None:
            shown = text if len(text) <= 40 else f"{text[:37]}..."
            raise InputError(f"Cast to {dtype} reads {shown!r}; expected a number that it holds")
        found.append(value)
    return np.array(found, through).reshape(x.shape).astype(dtype.np)


def _real(text: str) -> float | None:
    """Parse a float prefix; None if there is none, or if it exceeds float64."""
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
    """Parse an unsigned integer; a negative number wraps around."""
    value = _whole(text)
    return value % (1 << 64) if value is not None and abs(value) < 1 << 64 else None


def _whole(text: str) -> int | None:
    """Parse an integer prefix; None if there is none, or if it exceeds 64 bits."""
    found = _WHOLE.match(text)
    if found is None or len(found[2]) > _MOST_DIGITS or not found[0][-1:].isdigit():
        return None
    value = int(found[2] or "0")
    return -value if found[1] == "-" else value
