"""Affine quantization as expressions: real = (q - zero) * scale, q = saturate(rint(real / scale) + zero)."""

from __future__ import annotations

from functools import cache

from ..expr.expression import Expr
from ..expr.trace_function import Sym, trace
from ..ir.dtype import DType


def dequantized(q: Sym, scale: Sym, zero: Sym | None) -> Sym:
    """(q - zero) * scale in float32; the difference is exact."""
    whole = q.cast(DType.INT32) - zero.cast(DType.INT32) if zero is not None else q
    return whole.cast(DType.FLOAT32) * scale.cast(DType.FLOAT32)


def quantized(real: Sym, zero: Sym | None, dtype: DType) -> Sym:
    """saturate(rint(real) + zero) of a value already divided by the scale; ties round to even."""
    whole = real.call("rint")
    return (whole + zero.cast(real.dtype) if zero is not None else whole).typed("saturate", dtype)


def divided(real: Sym, scale: Sym, zero: Sym | None, dtype: DType) -> Sym:
    """`quantized` of real / scale, computed in float32."""
    return quantized(real.cast(DType.FLOAT32) / scale.cast(DType.FLOAT32), zero, dtype)


def centred(q: Sym, zero: Sym | None) -> Sym:
    """q - zero in int32."""
    return q.cast(DType.INT32) if zero is None else q.cast(DType.INT32) - zero.cast(DType.INT32)


@cache
def dequantize_expr(dtypes: tuple[DType, ...]) -> Expr | None:
    """DequantizeLinear as an expression of q, scale and optionally zero of these types; None for other types."""
    if len(dtypes) not in (2, 3):
        return None
    return trace(lambda q, s, *z: dequantized(q, s, z[0] if z else None), *dtypes)


@cache
def quantize_expr(dtypes: tuple[DType, ...], dtype: DType) -> Expr | None:
    """QuantizeLinear to `dtype` as an expression of real, scale and optionally zero; None for other types."""
    if len(dtypes) not in (2, 3):
        return None
    return trace(lambda v, s, *z: divided(v, s, z[0] if z else None, dtype), *dtypes)
