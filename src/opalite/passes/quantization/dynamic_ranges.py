"""Ranges of tensors that are quantised at run time: one pass finds both ends, and readers compute scales themselves."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ir.symbols import hint_of
from ...ops.data_movement import Reshape
from ...ops.elementwise import Elementwise
from ...ops.reduce import Extremes, Reduce
from ..fusion.fuse_elementwise import join
from ..rewrite_driver import Added, Rule, Sweep, joined_origin

_DEAR = 4.0
"""Operations that one instruction of an expression takes, in the mean of products and divisions."""


def pays_launches(device: DeviceInfo | None) -> bool:
    """Whether each launch costs time on `device`: a GPU whose launches are not linked into one kernel."""
    return device is not None and not device.on_host and not device.links_launches


def join_extremes(device: DeviceInfo | None) -> Rule:
    """Rule: the minimum and the maximum of a whole tensor become one Extremes."""
    if not pays_launches(device):
        return lambda node, sweep: None

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not _is_of_whole(node, "min") or not node.x.dtype.is_float:
            return None
        other = next((n for n in sweep.uses[node.x] if _is_of_whole(n, "max")), None)
        if other is None:
            return "the maximum is not asked for"
        added = Added()
        both = node.make_helper(Extremes(), [node.x], like=node.y.name)
        both.origin = joined_origin(node, other)
        added.append(both)
        ends = [
            made if old.shape == () else added.put(node.make_helper(Reshape(old.shape), [made]))
            for old, made in zip((node.y, other.y), both.outputs, strict=True)
        ]
        return Patch([node, other], added, dict(zip((node.y, other.y), ends, strict=True)))

    return rule


def _is_of_whole(node: Node, kind: str) -> bool:
    op = node.op
    whole = isinstance(op, Reduce) and op.kind == kind and len(op.axes) == len(node.x.shape)
    return whole and node.epilogue is None


def compute_scalars_in_readers(device: DeviceInfo | None) -> Rule:
    """Rule: an expression of numbers is computed by those who read it, where that takes less time than a launch."""
    if not pays_launches(device):
        return lambda node, sweep: None
    assert device is not None
    free = device.launch_s * device.peak_flops / _DEAR  # instructions

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        if not isinstance(node.op, Elementwise) or node.host_dtype is not None:
            return None
        reason = None
        for i, v in enumerate(node.inputs):
            maker, views = _maker(v)
            if maker is None or v is None:
                continue
            read = [maker.y, *(view.y for view in views)]
            readers = [n for r in read for n in sweep.uses.get(r, ()) if n not in views]
            if any(r in sweep.exposed for r in read) or not all(isinstance(n.op, Elementwise) for n in readers):
                reason = "its number has other readers"
            elif any(x is not None and len(x.shape) > len(node.y.shape) for x in maker.inputs):
                reason = "its operands have more axes"
            elif v.dtype.is_float and _instructions(maker, readers) > free:  # kernels on images read floats only
                reason = "computing its number again takes longer than a launch"
            elif (joined := join(maker, node, i)) is None:
                reason = "the merged expression would be too large"
            else:
                return Patch([node], [joined], {node.y: joined.y})
        return reason

    return rule


def _instructions(maker: Node, readers: Sequence[Node]) -> float:
    return float(len(maker.as_(Elementwise).expr) * max(hint_of(n.y.type.count) for n in readers))


def _maker(v: Value | None) -> tuple[Node | None, list[Node]]:
    """(the Elementwise of single numbers that computes `v`, the Reshapes between)."""
    views: list[Node] = []
    node = None if v is None or v.type.count != 1 else v.producer
    while node is not None and isinstance(node.op, Reshape):
        views.append(node)
        node = node.x.producer
    if node is None or not isinstance(node.op, Elementwise) or node.op.expr.uses_coords or node.host_dtype is not None:
        return None, views
    return node, views
