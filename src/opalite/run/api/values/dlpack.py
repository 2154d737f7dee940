"""DLPack: exchange of tensors in host memory with other libraries, without a copy.

The structures are those of dlpack.h 0.8 (DLManagedTensor), which every library with `__dlpack__` accepts; the codes of
8-bit and 4-bit floats are those of version 1.1. NumPy's own `__dlpack__` lacks read-only arrays and the types
of ml_dtypes. Elements of less than a byte are copied: DLPack packs them, NumPy stores each in a byte.
"""

from __future__ import annotations

import ctypes
import math
from contextlib import suppress
from typing import Any

import numpy as np

from ....errors import BindingError, InputTypeError
from ....ir.dtype import DType

Array = np.ndarray[Any, Any]

CPU_DEVICE = (1, 0)
"""kDLCPU and the index of the device."""

_NAME, _USED = b"dltensor", b"used_dltensor"
_INT, _UINT, _FLOAT, _COMPLEX = 0, 1, 2, 5
_NUMPY_KINDS = {"i": _INT, "u": _UINT, "f": _FLOAT, "c": _COMPLEX}
_TYPES = {
    DType.BOOL: (6, 8),
    DType.BFLOAT16: (4, 16),
    DType.FLOAT8E4M3FN: (10, 8),
    DType.FLOAT8E4M3FNUZ: (11, 8),
    DType.FLOAT8E5M2: (12, 8),
    DType.FLOAT8E5M2FNUZ: (13, 8),
    DType.FLOAT8E8M0: (14, 8),
    DType.FLOAT4E2M1: (17, 4),
    DType.INT4: (_INT, 4),
    DType.UINT4: (_UINT, 4),
    DType.INT2: (_INT, 2),
    DType.UINT2: (_UINT, 2),
}
"""(code, bits) of the types that NumPy itself does not have."""
_BY_CODE = {code: dtype for dtype, code in _TYPES.items()}
_HOST_KINDS = (1, 3)  # kDLCPU, kDLCUDAHost: memory that the host can read


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter)]

_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _Destructor]
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_set_name = _api.PyCapsule_SetName
_set_name.restype, _set_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
# The same functions by address, for a capsule that is being destroyed and must not get new references.
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))

_exported: dict[int, tuple[Any, ...]] = {}
"""Objects that exported tensors point to, by address of the structure, until the consumer calls the deleter."""


def _release(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


def _destroy(capsule: int) -> None:
    if _raw_is_valid(capsule, _NAME):  # not consumed
        _exported.pop(int(_raw_pointer(capsule, _NAME) or 0), None)


_deleter, _destructor = _Deleter(_release), _Destructor(_destroy)


def to_capsule(array: Array) -> Any:
    """A capsule that shares the memory of `array`, or a copy if the elements have less than a byte.

    Raises BindingError for text and for types that DLPack does not have.
    """
    code, bits = _code_of(array.dtype)
    held = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    managed = _Managed()
    shape = (ctypes.c_int64 * max(held.ndim, 1))(*held.shape)
    strides = (ctypes.c_int64 * max(held.ndim, 1))(*(s // held.itemsize for s in held.strides))
    if bits < 8:
        held = _packed(held, bits)
    t = managed.tensor
    t.data = held.ctypes.data
    t.device_type, t.device_id = CPU_DEVICE
    t.ndim, t.code, t.bits, t.lanes = array.ndim, code, bits, 1
    t.shape, t.strides, t.byte_offset = shape, strides, 0
    managed.deleter = _deleter
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, strides, held)
    return _new(address, _NAME, _destructor)


def _code_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    if dtype.kind in _NUMPY_KINDS and dtype.isbuiltin == 1 and dtype.isnative:
        return _NUMPY_KINDS[dtype.kind], dtype.itemsize * 8
    found = None
    with suppress(ValueError):
        found = _TYPES.get(DType.of(dtype)) if dtype.isnative else None
    if found is None:
        raise BindingError(f"DLPack does not support arrays of {dtype}: cast it to a number type first")
    return found


def from_capsule(capsule: Any) -> Array:
    """An array that shares the memory of a capsule, or a copy if the elements have less than a byte.

    Raises InputTypeError for other objects and consumed capsules; BindingError for memory that the host cannot read,
    unknown types, and tensors that are not row-major.
    """
    try:
        valid = bool(_is_valid(capsule, _NAME))
    except ctypes.ArgumentError:
        valid = False
    if not valid:
        raise InputTypeError(
            "from_dlpack expected a valid DLPack capsule named 'dltensor', or an object with __dlpack__; got "
            f"{type(capsule).__name__}"
        )
    managed = ctypes.cast(_pointer(capsule, _NAME), ctypes.POINTER(_Managed)).contents
    t = managed.tensor
    if t.device_type not in _HOST_KINDS:
        raise BindingError(
            f"the tensor is on a device of DLPack's type {t.device_type}, whose memory OpenCL cannot use: copy it to "
            "the host first (tensor.cpu())"
        )
    dtype = _dtype_of(t.code, t.bits, t.lanes)
    shape = tuple(t.shape[i] for i in range(t.ndim))
    count = math.prod(shape)
    if t.strides and count and not _is_row_major(shape, tuple(t.strides[i] for i in range(t.ndim))):
        raise BindingError(f"the tensor of shape {list(shape)} is not row-major: make it contiguous first")
    _set_name(capsule, _USED)
    owner = _Owner(managed)
    if not count:
        return np.empty(shape, dtype)
    memory = (ctypes.c_ubyte * -(-count * t.bits // 8)).from_address(t.data + t.byte_offset)
    memory._owner = owner  # every view of the memory keeps it alive
    held = np.frombuffer(memory, np.uint8)
    if t.bits < 8:
        held = _unpacked(held, count, t.bits, t.code == _INT)
    array: Array = held.view(dtype).reshape(shape)
    return array


class _Owner:
    """Calls the deleter of an imported tensor when no array refers to its memory."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(ctypes.byref(self._managed))


def _dtype_of(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    if lanes == 1 and (code, bits) in _BY_CODE:
        found: np.dtype[Any] = _BY_CODE[code, bits].np
        return found
    kind = next((k for k, number in _NUMPY_KINDS.items() if number == code), None)
    try:
        if lanes == 1 and kind is not None and bits % 8 == 0:
            found = np.dtype(f"{kind}{bits // 8}")
            DType.of(found)
            return found
    except (TypeError, ValueError):  # NumPy or ONNX has no such type
        pass
    raise BindingError(f"the tensor's type (DLPack code {code}, {bits} bits, {lanes} lanes) has no ONNX type")


def _packed(array: Array, bits: int) -> Array:
    """Pack elements of a byte each, `8 // bits` in a byte, the first in the lowest bits."""
    per_byte, flat = 8 // bits, array.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    rows = np.pad(flat, (0, -flat.size % per_byte)).reshape(-1, per_byte)
    found: Array = np.bitwise_or.reduce(rows << _shifts(bits), axis=1)
    return found


def _unpacked(held: Array, count: int, bits: int, signed: bool) -> Array:
    """Unpack `count` elements to a byte each (the inverse of `_packed`), with sign extension if signed."""
    flat = ((held[:, None] >> _shifts(bits)) & ((1 << bits) - 1)).reshape(-1)[:count]
    sign = 1 << (bits - 1)
    return (flat ^ sign) - np.uint8(sign) if signed else flat


def _shifts(bits: int) -> Array:
    return np.arange(0, 8, bits, dtype=np.uint8)


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
