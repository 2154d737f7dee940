"""Datatypes of the Open Inference Protocol: NumPy types, ONNX's and Triton's names, raw bytes.

Raw bytes are little-endian, in row-major order. Each element of BYTES follows its length in four bytes
(https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .serve_errors import Invalid, TooLarge

Array = np.ndarray[Any, Any]

_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BYTES": np.dtype(object),
}
_OF_ONNX = {dtype.name: name for name, dtype in _DTYPES.items()} | {
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
}
_LENGTH = struct.Struct("<I")
DATATYPES = tuple(_DTYPES)
MOST_TEXTS = 1 << 20
"""Most elements of a BYTES tensor."""


def dtype_of(datatype: str) -> np.dtype[Any]:
    """Map 'FP32' to float32, BYTES to object. Invalid for an unknown name."""
    try:
        return _DTYPES[datatype]
    except (KeyError, TypeError):
        raise Invalid(f"datatype {datatype!r} is none of {', '.join(DATATYPES)}") from None


def datatype_of_onnx(type_text: str) -> str | None:
    """Map 'tensor(float)' to 'FP32'; None for types outside the protocol, such as sequences."""
    inner = type_text.removeprefix("tensor(").removesuffix(")")
    return _OF_ONNX.get(inner) if type_text.startswith("tensor(") else None


def triton_name(datatype: str) -> str:
    """Map 'FP32' to 'TYPE_FP32' and 'BYTES' to 'TYPE_STRING', the names of Triton's configuration."""
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def array_from_raw(datatype: str, shape: Sequence[int], raw: bytes | bytearray | memoryview, what: str) -> Array:
    """An array that views `raw`, aligned or not; BYTES are copied. Invalid, with `what`, for a wrong size."""
    dtype, count = dtype_of(datatype), count_of(shape, what)
    if datatype == "BYTES":
        return _texts_from_raw(count, memoryview(raw).cast("B"), what).reshape(tuple(shape))
    nbytes = memoryview(raw).nbytes
    if nbytes != count * dtype.itemsize:
        raise Invalid(
            f"{what}: {datatype} of shape {list(shape)} takes {count * dtype.itemsize} bytes, but {nbytes} came"
        )
    if datatype == "BOOL" and count:
        flat = np.frombuffer(raw, np.uint8)
        if flat.max() > 1:
            raise Invalid(f"{what}: BOOL is a byte that is 0 or 1, got {int(flat.max())}")
    return np.frombuffer(raw, dtype).reshape(tuple(shape))


def raw_from_array(datatype: str, array: Array) -> memoryview:
    """The bytes of an array, without a copy if it is row-major; inverse of `array_from_raw`."""
    if datatype == "BYTES":
        return memoryview(b"".join(_pieces(array)))
    ordered = np.ascontiguousarray(array, dtype_of(datatype))
    return ordered.reshape(-1).view(np.uint8).data


def raw_size(datatype: str, array: Array) -> int:
    """The number of bytes of `raw_from_array`."""
    if datatype == "BYTES":
        return sum(4 + len(as_bytes(v)) for v in array.flat)
    return array.size * dtype_of(datatype).itemsize


def count_of(shape: Sequence[int], what: str) -> int:
    """The number of elements of a shape. Invalid for sizes that are no integers from 0 on."""
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 1 << 63:
            raise Invalid(f"{what}: a shape has numbers from 0 on, got {list(shape)!r}")
    if math.prod(size or 1 for size in shape) >= 1 << 60:  # NumPy refuses it, even beside a size of 0
        raise Invalid(f"{what}: a tensor of shape {list(shape)!r} is larger than any memory")
    return math.prod(shape)


def as_bytes(value: Any) -> bytes:
    """An element of a BYTES tensor as bytes; texts in UTF-8. Inverse of `as_text`."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def as_text(value: bytes) -> str:
    """An element of a BYTES tensor as text. A byte that is no UTF-8 becomes a lone surrogate."""
    return value.decode("utf-8", "surrogateescape")


def is_unicode(text: str) -> bool:
    """Whether the bytes of `as_text` were UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pieces(array: Array) -> list[bytes]:
    pieces = []
    for value in array.flat:
        text = as_bytes(value)
        pieces += [_LENGTH.pack(len(text)), text]
    return pieces


def check_texts(count: int, what: str) -> None:
    """TooLarge for more elements of BYTES than are taken: each is an object of Python, which others wait for."""
    if count > MOST_TEXTS:
        raise TooLarge(f"{what} has {count} elements of BYTES, and {MOST_TEXTS} are allowed")


def _texts_from_raw(count: int, raw: memoryview, what: str) -> Array:
    if count > raw.nbytes // 4:
        raise Invalid(f"{what}: {count} elements of BYTES take 4 bytes each and more, but {raw.nbytes} bytes came")
    check_texts(count, what)
    found = np.empty(count, object)
    at = 0
    for i in range(count):
        if at + 4 > raw.nbytes:
            raise Invalid(f"{what}: the bytes end at element {i} of {count}, before its length")
        (length,) = _LENGTH.unpack_from(raw, at)
        at += 4
        if at + length > raw.nbytes:
            raise Invalid(f"{what}: element {i} of {count} has {length} bytes, but {raw.nbytes - at} are left")
        found[i] = bytes(raw[at : at + length])
        at += length
    if at != raw.nbytes:
        raise Invalid(f"{what}: {raw.nbytes - at} bytes are left after {count} elements of BYTES")
    return found
