"""Low-bit weights: products with, and gathers from, constants read integers.

Dequantized constants keep their integers; on request of a session, float weights are kept in 8 bits (weight-only
quantization), and activations of products with low-bit weights are quantized too (dynamic quantization).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np

from ...ir.constants.lazy_array import Array, LazyArray, converted, read_part, read_slices
from ...ir.constants.quantized_constant import SMALLEST, QuantizedConstant
from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.precision import PrecisionPolicy
from ...ir.tensor_type import TensorType
from ...ops.gather import Gather
from ...ops.matmul import MatMul
from ...ops.operator import Op
from ...ops.quantized_matmul import BITS, FLOATS, QuantizedGather, QuantizedMatMul
from ..rewrite_driver import Rule, Sweep

WORD = 32
"""Bits that kernels read at a time; blocks begin at words."""

SMALLEST_FLOATS = 1 << 16
"""Least elements of a float constant that is kept in 8 bits."""

BLOCK = 32
"""Adjacent weights of one sum that share a scale."""

_MOST = 127


def keep_quantized(smallest: int = SMALLEST) -> Rule:
    """Rule: MatMul with a dequantized constant becomes QuantizedMatMul, Gather of its rows QuantizedGather.

    A scale and zero point applies to the whole matrix, a row along the sum, or a block of a row. smallest: least
    elements of a constant whose integers are kept; products that may quantize activations keep all integers, so that
    results do not depend on sizes.
    """

    def integers_of(node: Node, held: Value) -> QuantizedConstant | None:
        levels = held.quantized
        if levels is None or len(levels.codes.shape) != 2:
            return None
        is_small = held.type.count < smallest and not (levels.rounds and isinstance(node.op, MatMul))
        return None if is_small else levels

    return _keep_constants(integers_of)


def quantize_weights(smallest: int = SMALLEST_FLOATS) -> Rule:
    """Rule: MatMul with a constant float matrix, and Gather of its rows, read 8-bit integers.

    Blocks of 32 weights along the sum share a scale, their largest magnitude / 127, without zero point. smallest: least
    elements of a constant.
    """

    def integers_of(node: Node, held: Value) -> QuantizedConstant | str | None:
        op = node.op
        if not held.is_const or held.quantized is not None or len(held.shape) != 2 or held.type.count < smallest:
            return None
        if isinstance(op, MatMul) and op.exact:
            return "its sums are integers, exact in floats"
        return narrowed(held, 0 if isinstance(op, MatMul) and not op.trans_b else 1) or "a weight is not finite"

    return _keep_constants(integers_of)


def quantize_activations(policy: PrecisionPolicy) -> Rule:
    """Rule: QuantizedMatMul may quantize its activations as `policy` says, like `accuracy_level` 4 in a model.

    Nodes that the policy keeps in fp32, and nodes with table weights, stay exact.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        op = node.op
        if not isinstance(op, QuantizedMatMul) or op.rounds or op.table:
            return None
        if node.name in policy.fp32:
            return policy.fp32[node.name] or "the policy keeps it in fp32"
        return Patch.replacing(node, node.with_(op=replace(op, rounds=True)))

    return rule


def _keep_constants(integers_of: Callable[[Node, Value], QuantizedConstant | str | None]) -> Rule:
    """Rule: MatMul and Gather of a constant are computed from `integers_of(node, constant)`, if there are any."""

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, MatMul | Gather) or node.y.dtype not in FLOATS:
            return None
        held = node.input(1 if isinstance(node.op, MatMul) else 0)
        found = integers_of(node, held)
        return _keep(node, held, found, made) if isinstance(found, QuantizedConstant) else found

    made: dict[Hashable, Value] = {}
    return rule


def _keep(node: Node, held: Value, levels: QuantizedConstant, known: dict[Hashable, Value]) -> Patch | str:
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


def _constant(like: Value, data: Array | LazyArray, known: dict[Hashable, Value]) -> Value:
    made = Value(like.name.split("~")[0], TensorType(DType.of(data.dtype), tuple(data.shape)), data, needs_number=True)
    return known.setdefault(data.key, made) if isinstance(data, LazyArray) else made


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
