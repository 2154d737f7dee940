"""Constant scalars in generated code: literals if they are round numbers, else kernel arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...expr.expression import Expr, In, Lit, Ref
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Value
from ...ir.tensor_type import TensorType
from .vector_types import compute_type

_QUANTIZED = {DType.INT8, DType.UINT8, DType.INT16, DType.UINT16}
_ARITHMETIC = ("add", "sub", "mul", "div")
_SIZES = (1e-18, 1e18)  # magnitude limits of divisors that are replaced by reciprocals


def is_scalar(v: Value) -> bool:
    """Whether `v` is a constant of one element that kernels can hold."""
    return v.data is not None and v.type.count == 1 and v.dtype.on_device


def is_round(v: Value) -> bool:
    """Whether a constant scalar becomes a literal (0, 0.75, 6); others are arguments, so that programs are shared."""
    if v.data is None or not is_scalar(v):
        return False
    x = float(v.data.reshape(()))
    return math.isfinite(x) and abs(x) <= 16 and (4 * x).is_integer()


def lift_literals(expr: Expr) -> tuple[Expr, list[Value]]:
    """`expr` with its literals as additional operands, and these as constant scalars, if it computes on small integers.

    Scales and zero points differ from layer to layer. As literals they would give each layer its own program. Literals
    of other expressions belong to the function and are the same in all layers.
    """
    if not _QUANTIZED.intersection((*expr.dtypes, *(i.dtype for i in expr.instrs))):
        return expr, []
    lifted: dict[Lit, In] = {}

    def place(ref: Ref) -> Ref:
        if not isinstance(ref, Lit) or ref.dtype is DType.BOOL or ref.value in (-1, 0, 1):
            return ref
        return lifted.setdefault(ref, In(len(expr.dtypes) + len(lifted)))

    instrs = tuple(replace(i, args=tuple(place(a) for a in i.args)) if i.fn in _ARITHMETIC else i for i in expr.instrs)
    values = [Value("", TensorType(lit.dtype, ()), np.asarray(lit.value, lit.dtype.np)) for lit in lifted]
    return Expr(instrs, (*expr.dtypes, *(lit.dtype for lit in lifted))), values


def reciprocal_divisors(expr: Expr, scalars: Mapping[int, Value], device: DeviceInfo) -> frozenset[int]:
    """Operand numbers of the constant `scalars` whose divisions `generate` may replace by reciprocals.

    Divisors must have ordinary magnitudes, and `expr` must compute on small integers, whose rounding is far coarser
    than the last bit of a quotient. Only on CPUs with fused multiply-add.
    """
    if device.byte_dots != "fours" or not _QUANTIZED.intersection((*expr.dtypes, *(i.dtype for i in expr.instrs))):
        return frozenset()
    ordinary = {i: abs(float(v.data.reshape(()))) for i, v in scalars.items() if v.data is not None}
    return frozenset(i for i, size in ordinary.items() if _SIZES[0] < size < _SIZES[1])


def literal(v: Value) -> Lit:
    """The constant scalar as a literal of an expression."""
    assert v.data is not None
    return Lit(v.data.reshape(()).item(), v.dtype)


def scalar_arg(v: Value) -> np.generic:
    """The constant scalar as a kernel argument of its compute type."""
    assert v.data is not None
    held = {"float": np.float32, "double": np.float64}.get(compute_type(v.dtype, 1).base)
    kind: Any = held or (np.int32 if v.dtype is DType.BOOL else v.dtype.np.type)
    result: np.generic = kind(v.data.reshape(()).astype(kind))
    return result
