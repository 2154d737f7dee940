"""A Program of one node, whose tensors lie where the node's places say: what kernels are tested, tuned and verified by.

Emission is that of whole graphs; only the transfers are left to whoever runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph, Node, Value
from ..kernels.kernel import Kernel
from ..kernels.launch_config import LaunchConfig
from ..kernels.node_launches import launches_of
from ..layout.insert_casts import stored_as
from .emit_program import Emitter, add_launches, alignment, size_steps
from .memory.liveness import assign_memory
from .program import Program, Storage

Array = np.ndarray[Any, Any]
Forms = MutableMapping[tuple[Value, str], Array]
"""Constants in kernels' own forms, by value and the form's name."""


@dataclass(frozen=True)
class NodeProgram:
    """outputs: the slots of the node's outputs, in order."""

    program: Program
    outputs: tuple[int, ...]


def stored_inputs(node: Node, arrays: Sequence[Array | None]) -> dict[Value, Array]:
    """What `node`'s inputs hold as their places store it, given logical arrays; None where there is none to store."""
    pairs = zip(node.inputs, arrays, strict=True)
    return {v: stored_as(a, v.type) for v, a in pairs if v is not None and a is not None}


def plan_node(
    node: Node,
    kernel: Kernel,
    setting: LaunchConfig,
    device: DeviceInfo,
    stored: Mapping[Value, Array],
    *,
    forms: Forms | None = None,
    guard: int = 0,
    key: str = "",
) -> NodeProgram:
    """The Program of a placed node by `kernel` as `setting` says.

    stored: what `stored_inputs` gave. forms: kept from plan to plan. guard: bytes past the end of each output that is
    no image. key: names the stored contents, which then are not hashed to share their memory.
    """
    graph = Graph(node.name)
    program = Program(node.name)
    e = Emitter(graph, device, {node: setting}, program, stored=stored, forms=forms)
    for i, v in enumerate(stored):
        number = e.slot(v)
        if key:
            program.weight_keys[number] = f"{key}:{i}"
    outputs = []
    for v in node.outputs:
        number = e.slot(v)
        memory = e.lifetimes[number]
        memory.storage = Storage.SEPARATE
        if memory.image is None:
            memory.nbytes += guard
        outputs.append(number)
    launches = launches_of(kernel, kernel.problem(node, device), setting.params)
    add_launches(e, node, kernel, launches, setting.group, node.cost())
    program.sources = list(e.sources)
    size_steps(program, device)
    assign_memory(program, e.lifetimes, alignment(device), "by_size")
    return NodeProgram(program, tuple(outputs))
