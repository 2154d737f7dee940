"""Fuse elementwise chains: an Elementwise is merged into its only reader; constant scalars become literals."""

from __future__ import annotations

from ...expr.expression import In, Lit, Ref
from ...expr.trace_function import Builder
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.place import Memory
from ...ir.symbols import equal_guarded
from ...layout.kernel_candidates import find_options
from ...ops.elementwise import Elementwise
from ..rewrite_driver import Rule, Sweep
from .fold_into_conv import with_expression

MAX_OPERANDS = 12
MAX_INSTRUCTIONS = 96


def inline_scalars(node: Node, sweep: Sweep) -> Patch | str | None:
    """Constant operands of one element become literals of the expression."""
    if not isinstance(node.op, Elementwise):
        return None
    expr = node.op.expr
    operands: list[Ref] = []
    found = False
    for i, v in enumerate(node.inputs):
        if v is not None and v.is_const and v.type.count == 1 and v.dtype.on_device:
            operands.append(Lit(v.array.reshape(()).item(), v.dtype))
            found = True
        else:
            operands.append(In(i))
    if not found:
        return None
    b = Builder(expr.dtypes)
    joined = b.finish(b.inline(expr, operands))
    made = with_expression(node, Elementwise(joined, node.y.shape), node.inputs)
    return Patch.replacing(node, made)


def fuse_elementwise(node: Node, sweep: Sweep) -> Patch | str | None:
    """Merge an Elementwise producer of the same shape into `node`, its only reader."""
    if not isinstance(node.op, Elementwise):
        return None
    reason = None
    for i, v in enumerate(node.inputs):
        before = v.producer if v is not None else None
        if v is None or before is None or not isinstance(before.op, Elementwise):
            continue
        if node.host_dtype is not None or before.host_dtype is not None:
            reason = "host nodes are not fused"
            continue
        if not equal_guarded(v.shape, node.y.shape):
            reason = "the producer is smaller: fusing would compute it many times"
            continue
        if sweep.only_use(v) is not node:
            reason = "the producer has other readers"
            continue
        joined = join(before, node, i)
        if joined is not None:
            return Patch.replacing(node, joined, also=[before])
        reason = "the merged expression would be too large"
    return reason


def fuse_elementwise_within(device: DeviceInfo) -> Rule:
    """`fuse_elementwise` for the generic tier, within the limits of its expression kernel on `device`."""

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        found = fuse_elementwise(node, sweep)
        if not isinstance(found, Patch) or _is_general(found.add[-1], device):
            return found
        return "no general kernel takes the joined expression" if _is_general(node, device) else found

    return rule


def _is_general(node: Node, device: DeviceInfo) -> bool:
    options, _ = find_options(node, device, Memory.BUFFER, timed=False, tier="generic")
    return any(o.kernel is not None and o.kernel.tier == "generic" for o in options)


def join(before: Node, node: Node, operand: int) -> Node | None:
    """`node` with its input `operand` replaced by the expression of `before`; None if that grows too large."""
    inputs: list[Value | None] = []

    def place(v: Value | None) -> In:
        for k, other in enumerate(inputs):
            if other is v:
                return In(k)
        inputs.append(v)
        return In(len(inputs) - 1)

    inner, outer = before.as_(Elementwise).expr, node.as_(Elementwise).expr
    first = [place(v) for v in before.inputs]
    joined = node.inputs[operand]
    later = [None if v is joined else place(v) for v in node.inputs]
    if len(inputs) > MAX_OPERANDS:
        return None
    b = Builder([v.dtype for v in inputs if v is not None])
    value = b.inline(inner, first)
    final = b.inline(outer, [value if r is None else r for r in later])
    expr = b.finish(final)
    if len(expr) > MAX_INSTRUCTIONS:
        return None
    return with_expression(node, Elementwise(expr, node.y.shape), inputs, before)
