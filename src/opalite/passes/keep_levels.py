"""Products with, and rows of, constants that were dequantised: their integers stay as small as the model has them."""

from __future__ import annotations

import numpy as np

from ..ir.dtype import DType
from ..ir.graph import Node, Value
from ..ir.levels import SMALLEST, Levels
from ..ir.patch import Patch
from ..ir.stored import Array, StoredArray
from ..ir.types import TensorType
from ..ops.base import Op
from ..ops.gather import Gather
from ..ops.matmul import MatMul
from ..ops.quantized_matmul import BITS, FLOATS, QuantizedGather, QuantizedMatMul
from .rewrite import Rule, Sweep

WORD = 32
"""Bits that kernels take at a time; blocks begin at words."""


def keep_levels(smallest: int = SMALLEST) -> Rule:
    """MatMul with a constant matrix of levels becomes QuantizedMatMul, Gather of its rows QuantizedGather.

    Scales and zero points are of the whole matrix, or of rows along the sum, or of blocks of those. smallest: elements
    of a constant from which on its integers are kept.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if not isinstance(op, MatMul | Gather) or node.y.dtype not in FLOATS:
            return None
        held = node.input(1 if isinstance(op, MatMul) else 0)
        levels = held.levels
        if levels is None or len(levels.codes.shape) != 2 or held.type.count < smallest:
            return None
        return keep(node, held, levels)

    return rule


def keep(node: Node, held: Value, levels: Levels) -> Patch | str:
    """A MatMul or Gather of the constant `held` computed from its integers, or why not."""
    op = node.op
    if levels.bits not in BITS or levels.codes.dtype not in (np.int8, np.uint8):
        return f"integers of {levels.bits} bits in {levels.codes.dtype} have no kernel"
    if isinstance(op, MatMul) and op.trans_a:
        return "the first operand is stored by columns"
    if isinstance(op, Gather) and (op.axis != 0 or levels.turned):
        return "what is picked are not rows"
    trans_b = op.trans_b != levels.turned if isinstance(op, MatMul) else True
    found = _by_rows(levels, 1 if trans_b else 0, held.dtype)
    if found is None:
        return "the scales do not lie along the sums, or their blocks do not begin at words"
    scale, zero, block = found
    q, *parts = (None if a is None else _constant(held, a) for a in (levels.codes, scale, zero))
    made: Op = QuantizedGather(bits=levels.bits, block=block)
    inputs = [q, node.input(1), *parts]
    if isinstance(op, MatMul):
        made = QuantizedMatMul(trans_a=False, trans_b=trans_b, bits=levels.bits, block=block)
        inputs = [node.x, q, *parts]
    return Patch.replacing(node, node.with_(op=made, inputs=inputs))


def _by_rows(levels: Levels, along: int, dtype: DType) -> tuple[Array, Array | None, int] | None:
    """(scales [rows, blocks], zero points of that shape or one, block) for sums along axis `along` of the integers."""
    shape = levels.codes.shape
    rows, columns = shape[1 - along], shape[along]
    block = columns
    if levels.block and levels.axis % 2 != along:
        return None
    if 0 < levels.block < columns:
        block = levels.block
        if block * levels.bits % WORD:
            return None
    blocks = -(-columns // block) if columns else 0
    wanted = (rows, blocks)
    found: list[Array] = []
    for part in (levels.scale, np.zeros(()) if levels.zero is None else levels.zero):
        if part.size > 1:
            part = part.reshape((1,) * (2 - part.ndim) + part.shape)
            part = part if along == 1 else part.T
            if part.shape not in (wanted, (rows, 1), (1, blocks)):
                return None
        found.append(part)
    scale, zero = found
    if not zero.any():
        return _scales(scale, wanted, dtype), None, block
    if zero.dtype not in (np.int8, np.uint8):
        zero = zero.astype(np.float32)
    zero = zero.reshape(1, 1) if zero.size == 1 else np.ascontiguousarray(np.broadcast_to(zero, wanted))
    return _scales(scale, wanted, dtype), zero, block


def _scales(scale: Array, shape: tuple[int, int], dtype: DType) -> Array:
    """Scales of each block, in halves where the model has halves alone."""
    if scale.dtype != np.float16 or dtype is not DType.FLOAT16:
        scale = scale.astype(np.float32)
    return np.ascontiguousarray(np.broadcast_to(scale.reshape(-1) if scale.size == 1 else scale, shape))


def _constant(like: Value, data: Array | StoredArray) -> Value:
    return Value(like.name.split("~")[0], TensorType(DType.of(data.dtype), tuple(data.shape)), data, unnumbered=True)
