"""Shared code of int8 convolutions on CPUs with VNNI: refusals, zero points, initial sums."""

from __future__ import annotations

from ...ir.dtype import DType
from ...ir.graph import Node
from ...ops.operator import Cost
from ..codegen.epilogue import epilogue_refusal
from ..conv.pack_filters import ConvProblem
from ..launch import Args, Array, Weight
from .dot4_common import digest
from .int8_filter_window import integer_refusal, padded, subtract_zero_point


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


def has_filter_zeros(node: Node) -> bool:
    """Whether the filters, converted to signed, have zero points."""
    zero = node.get(4)
    return node.input(1).dtype is DType.UINT8 or (zero is not None and (zero.data is None or bool(zero.data.any())))


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
