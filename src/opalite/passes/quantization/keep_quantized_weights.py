"""Keep quantized weights: products with, and gathers from, dequantized constants read the low-bit integers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from ...ir.constants.lazy_array import Array, LazyArray, converted
from ...ir.constants.quantized_constant import SMALLEST, QuantizedConstant
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.tensor_type import TensorType
from ...ops.gather import Gather
from ...ops.matmul import MatMul
from ...ops.operator import Op
from ...ops.quantized_matmul import BITS, FLOATS, QuantizedGather, QuantizedMatMul
from ..rewrite_driver import Rule, Sweep

Made = dict[Hashable, Value]

WORD = 32
"""Bits that kernels read at a time; blocks begin at words."""


def keep_quantized(smallest: int = SMALLEST) -> Rule:
    """Rule: MatMul with a dequantized constant becomes QuantizedMatMul, Gather of its rows QuantizedGather.

    Scales and zero points are of the whole matrix, of rows along the sum, or of blocks of those. smallest: least
    elements of a constant whose integers are kept; products that may quantize activations keep all, so that results do
    not depend on sizes.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if not isinstance(op, MatMul | Gather) or node.y.dtype not in FLOATS:
            return None
        held = node.input(1 if isinstance(op, MatMul) else 0)
        levels = held.quantized
        if levels is None or len(levels.codes.shape) != 2:
            return None
        if held.type.count < smallest and not (levels.rounds and isinstance(op, MatMul)):
            return None
        return keep(node, held, levels, made)

    made: Made = {}
    return rule


def keep(node: Node, held: Value, levels: QuantizedConstant, known: Made) -> Patch | str:
    """A MatMul or Gather of the constant `held` computed from its integers, or the reason why not.

    known: constants made so far, by contents: a product and an embedding may share one.
    """
    op = node.op
    if levels.bits not in BITS or levels.codes.dtype not in (np.int8, np.uint8):
        return f"integers of {levels.bits} bits in {levels.codes.dtype} have no kernel"
    if isinstance(op, MatMul) and op.trans_a:
        return "the first operand is stored by columns"
    if isinstance(op, Gather) and (op.axis != 0 or levels.turned or levels.table):
        return "the gather is not by rows, or the integers index a table"
    trans_b = op.trans_b != levels.turned if isinstance(op, MatMul) else True
    found = _by_rows(levels, 1 if trans_b else 0, held.dtype)
    if found is None:
        return "the scales are not along the sums, or their blocks do not begin at words"
    scale, zero, block = found
    q, *parts = (None if a is None else _constant(held, a, known) for a in (levels.codes, scale, zero))
    made: Op = QuantizedGather(bits=levels.bits, block=block)
    inputs = [q, node.input(1), *parts]
    if isinstance(op, MatMul):
        made = QuantizedMatMul(trans_a=False, trans_b=trans_b, bits=levels.bits, block=block, rounds=levels.rounds)
        if levels.table:
            made = replace(made, table=levels.table)
        inputs = [node.x, q, *parts]
    return Patch.replacing(node, node.with_(op=made, inputs=inputs))


def _by_rows(levels: QuantizedConstant, along: int, dtype: DType) -> tuple[Array | LazyArray, Array | None, int] | None:
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
    blocks = (rows, -(-columns // block) if columns else 0)
    halves = levels.scale.dtype == np.float16 and dtype is DType.FLOAT16
    scale: Array | LazyArray | None = levels.scale
    if not isinstance(scale, LazyArray) or along == 0 or scale.shape != blocks:
        scale = _spread(levels.scales, along, blocks)
    if scale is None:
        return None
    scale, zero = converted(scale, np.float16 if halves else np.float32), levels.zero
    if zero is None or not zero.any():
        return scale, None, block
    zero = zero.reshape(1, 1) if zero.size == 1 else _spread(zero, along, blocks)
    if zero is None:
        return None
    return scale, zero if zero.dtype in (np.int8, np.uint8) else zero.astype(np.float32), block


def _spread(part: Array, along: int, shape: tuple[int, int]) -> Array | None:
    """A scale or zero point for each block of each row; None if its shape does not fit."""
    if part.size > 1:
        part = part.reshape((1,) * (2 - part.ndim) + part.shape)
        part = part if along == 1 else part.T
        if part.shape not in (shape, (shape[0], 1), (1, shape[1])):
            return None
    return np.ascontiguousarray(np.broadcast_to(part.reshape(-1) if part.size == 1 else part, shape))


def _constant(like: Value, data: Array | LazyArray, known: Made) -> Value:
    made = Value(like.name.split("~")[0], TensorType(DType.of(data.dtype), tuple(data.shape)), data, needs_number=True)
    return known.setdefault(data.key, made) if isinstance(data, LazyArray) else made
