"""Decides which products quantise their activations to int8: all kernels of a product on a device, or none.

The decision ignores tiers and row counts. A decoder therefore computes the same for a prompt as for single tokens, and
in both tiers. It then chooses the same tokens as onnxruntime, which quantises in the same way.
"""

from __future__ import annotations

from ...ops.quantized_matmul import QuantizedMatMul
from ..matmul.matmul_problem import MatmulProblem

LONGEST = 128
"""Numbers of a row that share a scale at most: dot_low_bit_int8.cl has room for so many."""


def scale_group(block: int, columns: int) -> int:
    """Numbers of a row that share a scale: a block, or an even part of one; 0 if no group size fits."""
    if block >= columns:
        return min(LONGEST, columns)
    size = block if block <= LONGEST else LONGEST
    return 0 if size % 16 or block % size else size


def sum_length(p: MatmulProblem) -> int:
    """Terms of a sum, from the constant matrix."""
    b = p.node.input(1)
    return int(b.shape[1 if p.node.as_(QuantizedMatMul).trans_b else 0])


def activation_quantization_refusal(p: MatmulProblem) -> str | None:
    """The reason why a QuantizedMatMul keeps float activations, or None if they are quantised."""
    op, dots = p.node.as_(QuantizedMatMul), p.device.byte_dots
    if not op.rounds or op.table:
        return "sums of floats are wanted: neither accuracy_level 4 nor precision int8"
    if not p.device.is_cpu or not dots:
        return "the device has no sums of products of bytes in vectors"
    if dots == "pairs" and op.bits > 4:
        return "pairs of products of 8 bits exceed the 16 bits that they are summed in"
    if not scale_group(op.block, sum_length(p)):
        return f"blocks of {op.block} numbers are no whole number of groups"
    zero = p.node.get(3)
    if zero is not None and zero.dtype.is_float and zero.type.count == 1:
        return "the one zero point is a fraction"
    return None
