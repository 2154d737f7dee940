"""Element types: one table of names, NumPy types, sizes and OpenCL types."""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np


class DType(Enum):
    """Type of one tensor element. The value is (short name, NumPy or ml_dtypes name, OpenCL storage type)."""

    FLOAT32 = ("f32", "float32", "float")
    FLOAT16 = ("f16", "float16", "half")
    FLOAT64 = ("f64", "float64", "double")
    BFLOAT16 = ("bf16", "bfloat16", "ushort")
    INT8 = ("i8", "int8", "char")
    INT16 = ("i16", "int16", "short")
    INT32 = ("i32", "int32", "int")
    INT64 = ("i64", "int64", "long")
    UINT8 = ("u8", "uint8", "uchar")
    UINT16 = ("u16", "uint16", "ushort")
    UINT32 = ("u32", "uint32", "uint")
    UINT64 = ("u64", "uint64", "ulong")
    BOOL = ("bool", "bool", "uchar")
    # Types that only the host handles: no OpenCL type.
    STRING = ("str", "object", None)
    COMPLEX64 = ("c64", "complex64", None)
    COMPLEX128 = ("c128", "complex128", None)
    FLOAT8E4M3FN = ("f8e4m3fn", "float8_e4m3fn", None)
    FLOAT8E4M3FNUZ = ("f8e4m3fnuz", "float8_e4m3fnuz", None)
    FLOAT8E5M2 = ("f8e5m2", "float8_e5m2", None)
    FLOAT8E5M2FNUZ = ("f8e5m2fnuz", "float8_e5m2fnuz", None)
    FLOAT8E8M0 = ("f8e8m0", "float8_e8m0fnu", None)
    FLOAT4E2M1 = ("f4e2m1", "float4_e2m1fn", None)
    FLOAT6E2M3 = ("f6e2m3", "float6_e2m3fn", None)
    FLOAT6E3M2 = ("f6e3m2", "float6_e3m2fn", None)
    INT4 = ("i4", "int4", None)
    UINT4 = ("u4", "uint4", None)
    INT2 = ("i2", "int2", None)
    UINT2 = ("u2", "uint2", None)

    @cached_property
    def short(self) -> str:
        """Short name used in the text form: f32, i64, bool..."""
        return str(self.value[0])

    @cached_property
    def np(self) -> Any:
        """The NumPy dtype (from ml_dtypes for the types that NumPy lacks)."""
        name = self.value[1]
        try:
            return np.dtype(name)
        except TypeError:
            import ml_dtypes

            return np.dtype(getattr(ml_dtypes, name))

    @cached_property
    def size(self) -> int:
        """Bytes of one element in memory."""
        return int(self.np.itemsize)

    @property
    def cl(self) -> str | None:
        """OpenCL C type that holds one element in a buffer; None for host-only types."""
        found: str | None = self.value[2]
        return found

    @cached_property
    def on_device(self) -> bool:
        """Whether kernels support this type."""
        return self.value[2] is not None

    @property
    def is_float(self) -> bool:
        """Whether the type is f16, f32, f64 or bf16."""
        return self in _FLOATS

    @property
    def is_int(self) -> bool:
        """Whether the type is an integer of 8 to 64 bits (bool is not one)."""
        return self in _INTS

    @property
    def is_unsigned(self) -> bool:
        """Whether the type is an unsigned integer or bool."""
        return self in _UNSIGNED

    @classmethod
    def of(cls, dtype: Any) -> DType:
        """The DType of a NumPy dtype, NumPy type or array; ValueError if there is none."""
        kind = getattr(dtype, "dtype", dtype)
        if not isinstance(kind, np.dtype):
            kind = np.dtype(kind)
        found = _BY_DTYPE.get(kind)
        if found is None:
            if kind.kind in "USO":
                return cls.STRING
            found = _BY_NUMPY.get(kind.name)
            if found is None:
                raise ValueError(f"no tensor element type for NumPy dtype {kind}")
            _BY_DTYPE[kind] = found
        return found

    @classmethod
    def parse(cls, short: str) -> DType:
        """The DType with short name `short` (f32, i64...); ValueError if unknown."""
        for d in cls:
            if d.value[0] == short:
                return d
        raise ValueError(f"unknown element type {short!r}")

    def __repr__(self) -> str:
        return self.short

    __str__ = __repr__


_FLOATS = {DType.FLOAT32, DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16}
_UNSIGNED = {DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64, DType.BOOL}
_INTS = {DType.INT8, DType.INT16, DType.INT32, DType.INT64} | (_UNSIGNED - {DType.BOOL})
_BY_NUMPY = {d.value[1]: d for d in DType}
_BY_DTYPE: dict[np.dtype[Any], DType] = {}  # a cache: dtype.name takes NumPy a microsecond
