"""Weight-only quantization: float weights are kept in 8 bits if low memory is requested."""

from __future__ import annotations

import numpy as np

from ...ir.constants.lazy_array import Array, LazyArray, read_part, read_slices
from ...ir.constants.quantized_constant import QuantizedConstant
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ops.gather import Gather
from ...ops.matmul import MatMul
from ...ops.quantized_matmul import FLOATS
from ..rewrite_driver import Rule, Sweep
from .keep_quantized_weights import Made, keep

SMALLEST = 1 << 16
"""Least elements of a constant that is kept in 8 bits."""

BLOCK = 32
"""Adjacent weights of one sum that share a scale."""

_MOST = 127


def quantize_weights(smallest: int = SMALLEST) -> Rule:
    """Rule: MatMul with a constant float matrix, and Gather of its rows, read 8-bit integers.

    Blocks of 32 weights along the sum share a scale, their largest magnitude / 127, without zero point. smallest: least
    elements of a constant.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if not isinstance(op, MatMul | Gather) or node.y.dtype not in FLOATS:
            return None
        held = node.input(1 if isinstance(op, MatMul) else 0)
        if not held.is_const or held.quantized is not None or len(held.shape) != 2 or held.type.count < smallest:
            return None
        if isinstance(op, MatMul) and op.exact:
            return "its sums are integers, exact in floats"
        along = 1 if isinstance(op, Gather) or op.trans_b else 0
        levels = narrowed(held, along)
        if levels is None:
            return "a weight is not finite"
        return keep(node, held, levels, made)

    made: Made = {}
    return rule


def narrowed(value: Value, along: int) -> QuantizedConstant | None:
    """A constant matrix in 8 bits, by blocks along an axis; None if an element is not finite. Read by parts."""
    held = value.lazy_data
    assert held is not None
    found = [_largest(part, along) for _, part in read_slices(held, 1 if along else BLOCK)]
    most = np.concatenate(found) if found else np.zeros((0, 0), np.float32)
    if not np.isfinite(most).all():
        return None
    scale = np.where(most > 0, most / np.float32(_MOST), np.float32(1))

    def rows(first: int, last: int) -> Array:
        part = read_part(held, first, last).astype(np.float32)
        at = np.arange(first, last) // BLOCK if along == 0 else np.arange(part.shape[1]) // BLOCK
        part /= scale[at] if along == 0 else scale[first:last][:, at]
        return np.rint(part).astype(np.int8)

    key = (held.key, along, BLOCK) if isinstance(held, LazyArray) else None
    codes = LazyArray(np.dtype(np.int8), tuple(held.shape), lambda: rows(0, held.shape[0]), load_rows=rows, key=key)
    return QuantizedConstant(codes, scale, None, 8, along, BLOCK)


def _largest(part: Array, along: int) -> Array:
    """The largest magnitude of each block, in float32."""
    count = part.shape[along]
    starts = np.arange(0, count, BLOCK)
    most: Array = np.maximum.reduceat(np.abs(part.astype(np.float32)), starts, along)
    return most
