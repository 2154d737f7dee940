"""Build a Concat from an earlier Concat of the same first inputs, as in dense blocks, if parts are copied."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.device.device_family import SLOW_SUB_BUFFERS
from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node, Value
from ...ir.patch import Patch
from ...ops.data_movement import Concat
from ..rewrite_driver import Rule, Sweep

_MOST = 64  # deepest nesting of Concats


def share_concat_prefix(device: DeviceInfo) -> Rule:
    """Rule that reads an earlier Concat in place of its parts.

    Layer k of a dense block reads the features of all k layers before it (Huang et al., Densely connected convolutional
    networks, 2017): k copies each time, or two from the previous Concat. If the planner aliases the parts with the
    output, nothing is copied anyway.
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
    """Inputs of a Concat, with inputs of nested Concats along the same axis in their place, up to _MOST deep."""
    waiting = [(v, 0) for v in reversed(node.inputs)]
    while waiting:
        v, depth = waiting.pop()
        assert v is not None
        if v.producer is not None and v.producer.op == node.op and depth < _MOST:
            waiting.extend((part, depth + 1) for part in reversed(v.producer.inputs))
        else:
            yield v


def _beginnings(parts: list[Value], node: Node, sweep: Sweep) -> Iterator[tuple[Node, int]]:
    """Earlier Concats of the first inputs of `node`, with the number of these inputs."""
    starts = [parts[0]]
    for start in starts:
        for user in sweep.uses.get(start, ()):
            if user.op != node.op or user.inputs[0] is not start or sweep.position[user] >= sweep.position[node]:
                continue
            own = list(_parts(user))
            if 1 < len(own) < len(parts) and parts[: len(own)] == own:
                starts.append(user.y)
                yield user, len(own)
