"""Build a Concat from a shorter one that begins alike, as in dense blocks, where parts of tensors are copied."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.device.device_family import SLOW_SUB_BUFFERS
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ops.data_movement import Concat
from ..rewrite_driver import Rule, Sweep

_MOST = 64  # Concats of Concats


def share_concats(device: DeviceInfo) -> Rule:
    """Rule that takes what an earlier Concat has joined in place of its parts.

    Layer k of a dense block reads the features of all k layers before it (Huang et al., Densely connected convolutional
    networks, 2017): joined anew each time that is k launches, from the last joint it is two. Where the planner has
    producers write into the joint tensor there is nothing to save.
    """
    copies = SLOW_SUB_BUFFERS in device.quirks

    def share_concat(node: Node, sweep: Sweep) -> Patch | str | None:
        if not copies or not isinstance(node.op, Concat) or len(node.inputs) < 3:
            return None
        parts = list(_parts(node))
        found = max(_beginnings(parts, node, sweep), key=lambda each: each[1], default=None)
        if found is None:
            return None
        earlier, count = found
        rest = parts[count:]
        if 1 + len(rest) >= len(node.inputs):
            return None
        return Patch.replacing(node, node.with_(inputs=[earlier.y, *rest]))

    return share_concat


def _parts(node: Node) -> Iterator[Value]:
    """Inputs of a Concat, those of the Concats along the same axis that they come from in their place.

    Of Concats that nest deeper than _MOST a Concat is a part itself.
    """
    waiting = [(v, 0) for v in reversed(node.inputs)]
    while waiting:
        v, depth = waiting.pop()
        assert v is not None
        if v.producer is not None and v.producer.op == node.op and depth < _MOST:
            waiting.extend((part, depth + 1) for part in reversed(v.producer.inputs))
        else:
            yield v


def _beginnings(parts: list[Value], node: Node, sweep: Sweep) -> Iterator[tuple[Node, int]]:
    """Concats before `node` of what it begins with, and of how many parts."""
    starts = [parts[0]]
    for start in starts:
        for user in sweep.uses.get(start, ()):
            if user.op != node.op or user.inputs[0] is not start or sweep.position[user] >= sweep.position[node]:
                continue
            own = list(_parts(user))
            if 1 < len(own) < len(parts) and parts[: len(own)] == own:
                starts.append(user.y)
                yield user, len(own)
