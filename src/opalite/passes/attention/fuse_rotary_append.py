"""Fuse a rotary embedding into the append to a KV cache: RotaryEmbedding and Append become RotaryAppend."""

from __future__ import annotations

from ...ir.device.device_info import DeviceInfo
from ...ir.graph import Node
from ...ir.patch import Patch
from ...ir.place import Memory
from ...layout.kernel_candidates import find_options
from ...ops.append import Append
from ...ops.rotary_embedding import RotaryAppend, RotaryEmbedding
from ..rewrite_driver import Rule, Sweep, joined_origin


def fuse_rotary_append(device: DeviceInfo, memory: Memory | None = Memory.BUFFER) -> Rule:
    """The rule for `device`; `memory` as in `find_options`.

    It matches an Append at one position, of rotated rows without other readers. The fusion saves a launch, and on GPUs
    a wait.
    """

    def rule(node: Node, sweep: Sweep) -> Patch | str | None:
        new = node.input(1) if isinstance(node.op, Append) else None
        rotation = None if new is None else new.producer
        if new is None or rotation is None or not isinstance(rotation.op, RotaryEmbedding):
            return None
        op = node.as_(Append)
        if sweep.only_use(new) is not node:
            return "the rotated rows have other readers"
        if node.get(2) is not None or op.axis == 3 or node.y.dtype is not new.dtype:
            return "rows have separate positions, are themselves a growing cache, or become int8"
        if rotation.precision is not node.precision:
            return f"rows are rotated in {rotation.precision.value}, appended in {node.precision.value}"
        made = node.with_(
            op=RotaryAppend(op.axis, op.at, rotation.op.perm),
            inputs=[node.x, *rotation.inputs],
            origin=joined_origin(rotation, node),
        )
        options, refusals = find_options(made, device, memory)
        if not options:
            return next(iter(refusals.values()), "no kernel fuses rotation and append")
        return Patch.replacing(node, made, also=[rotation])

    return rule
