"""Affine quantisation as expressions: real = (q - zero) * scale, q = saturate(rint(real / scale) + zero)."""

from __future__ import annotations

from ..ir.dtype import DType
from .expr import Sym


def dequantized(q: Sym, scale: Sym, zero: Sym | None) -> Sym:
    """(q - zero) * scale in float32; the difference is exact."""
    whole = q.cast(DType.INT32) - zero.cast(DType.INT32) if zero is not None else q
    return whole.cast(DType.FLOAT32) * scale.cast(DType.FLOAT32)


def quantized(real: Sym, zero: Sym | None, dtype: DType) -> Sym:
    """saturate(rint(real) + zero) of a value that is divided by the scale already; halves go to even."""
    whole = real.call("rint")
    return (whole + zero.cast(real.dtype) if zero is not None else whole).typed("saturate", dtype)


def centred(q: Sym, zero: Sym | None) -> Sym:
    """q - zero in int32."""
    return q.cast(DType.INT32) if zero is None else q.cast(DType.INT32) - zero.cast(DType.INT32)
