"""Shared code of int8 convolutions on channel-packed tensors."""

from __future__ import annotations

import math

import numpy as np

from ...ir.dtype import DType
from ...ir.graph import Node, Value
from ...ir.place import FLAT, Layout
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal, operand_layouts
from ..conv.pack_filters import ConvProblem
from ..filter_window import MAX_RANK
from ..kernel import Binding
from ..launch import Args, Array, Weight, ceil_div
from .dot4_common import digest


def integer_refusal(node: Node) -> str | None:
    """The reason why no channel-packed int8 convolution takes `node`, whatever its shape, or None."""
    rank = len(node.x.shape) - 2
    if rank > MAX_RANK:
        return f"{rank} spatial axes; kernels serve up to {MAX_RANK}"
    for i in (1, 2, 4):
        v = node.get(i)
        if v is not None and not v.is_const:
            return f"input {i} is not constant, so it cannot be packed ahead of time"
    if not node.x.type.count or not node.y.type.count:
        return "the tensors hold no elements"
    largest = max(math.prod(node.x.shape) + 4 * node.x.shape[0] * math.prod(node.x.shape[2:]), node.y.type.count)
    return f"a tensor of {largest} elements is beyond 32-bit indices" if largest >= 1 << 31 else None


def integer_binding(node: Node, layout: Layout) -> Binding:
    """x and y in `layout`; filters, bias and zero points as packed weights."""
    own = (layout, None, None, None if node.get(3) is None else FLAT, None)[: len(node.inputs)]
    return Binding((*own, *operand_layouts(node, "packed", layout)), (layout,))


def zero_define(zero: Value | None) -> int:
    """X_ZERO of the kernels: 0 without a zero point of x, 1 for a constant one, 2 for one in memory."""
    return 0 if zero is None else 2 if zero.data is None else 1


def subtract_zero_point(filters: Array, zero: Value | None) -> Array:
    """Filters [M, C / group, K...] minus their zero point, in int32."""
    wide = filters.astype(np.int32)
    if zero is None or zero.data is None:
        return wide
    return wide - zero.data.astype(np.int32).reshape(-1, *(1,) * (filters.ndim - 1))


def padded(data: Array, block: int) -> Array:
    """Numbers in int32, zero-padded to whole blocks."""
    out: Array = np.zeros(ceil_div(data.size, block) * block, np.int32)
    out[: data.size] = data.reshape(-1)
    return out


def initial_sums_int32(node: Node, block: int) -> Weight | None:
    """Initial accumulators by output channel: the bias, and the contribution of a constant zero point of x."""
    bias, x_zero, w_zero = node.get(2), node.get(3), node.get(4)
    zero = 0 if x_zero is None or x_zero.data is None else int(x_zero.data.reshape(()))
    if bias is None and not zero:
        return None

    def pack(data: Array) -> Array:
        start = -zero * subtract_zero_point(data, w_zero).reshape(data.shape[0], -1).sum(1)
        return padded(start if bias is None or bias.data is None else start + bias.data, block)

    return Weight(node.input(1), f"start of sums {digest(bias)} {digest(x_zero)} {digest(w_zero)} by {block}", pack)


def vnni_refusal(p: ConvProblem) -> str | None:
    """The reason why no VNNI convolution takes the node, or None."""
    if not p.device.is_cpu or p.device.byte_dots != "fours":
        return "the device has no sums of four products of bytes in vectors"
    return integer_refusal(p.node) or epilogue_refusal(p.node, "packed")


def vnni_seconds(p: ConvProblem, turns: float, share: float, cost: Cost) -> float:
    """Seconds of a launch with `turns` VNNI instructions per core at `share` of the peak."""
    busy = turns * p.device.compute_units * 2 * p.device.pack
    arithmetic = busy / (p.device.peak_flops * share)
    return max(arithmetic, cost.bytes / p.device.bandwidth) + p.device.launch_s


def _wide_sums(node: Node, data: Array) -> Array:
    """Sums over each output channel's filter minus its zero point."""
    found: Array = subtract_zero_point(data, node.get(4)).reshape(data.shape[0], -1).sum(1)
    return found


def initial_sums(node: Node, block: int) -> Weight:
    """Initial accumulators by output channel: the bias, and the contribution of a known zero point of x."""
    bias, x_zero, w_zero = node.get(2), node.get(3), node.get(4)
    shift = 128 if node.x.dtype is DType.INT8 else 0
    zero = 0 if x_zero is None else None if x_zero.data is None else int(x_zero.data.reshape(()))
    less = 0 if zero is None else zero + shift

    def pack(data: Array) -> Array:
        start = -less * _wide_sums(node, data)
        return padded(start if bias is None or bias.data is None else start + bias.data, block)

    return Weight(node.input(1), f"start of fours {digest(bias)} {less} {digest(w_zero)} by {block}", pack)


def zero_point_args(node: Node, block: int) -> Args:
    """The arguments of integer/zero_point_params.cl."""
    zero = node.get(3)
    if zero is None:
        return {}
    if zero.data is not None:
        return {"zero": int(zero.data.reshape(()))}
    form = f"filter sums less {digest(node.get(4))}, fours {block}"
    sums = Weight(node.input(1), form, lambda data: padded(_wide_sums(node, data), block))
    return {"x_zero": zero, "sums": sums}
