"""A Program of one placed node, for tests, tuning and verification of kernels.

Emission is the same as for whole graphs; the caller does the transfers.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from ..ir.constants.lazy_array import Array
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Graph, Node, Value
from ..kernels.kernel import Kernel, LaunchConfig
from ..kernels.node_launches import launches_of
from ..layout.insert_casts import stored_as
from .emit_program import Emitter, add_launches, alignment, size_steps
from .memory.liveness import assign_memory
from .program import Program, Storage

Forms = MutableMapping[tuple[Value, str], Array]
"""Packed constants, by value and the form's name."""


@dataclass(frozen=True)
class NodeProgram:
    """A one-node Program. outputs: slots of the node's outputs, in order."""

    program: Program
    outputs: tuple[int, ...]


def stored_inputs(node: Node, arrays: Sequence[Array | None]) -> dict[Value, Array]:
    """Contents of `node`'s inputs as their places store them, from logical arrays; absent inputs are omitted."""
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
    """The Program of a placed node by `kernel` with `setting`.

    stored: from `stored_inputs`. forms: reused from plan to plan. guard: bytes past the end of each buffer output. key:
    identifies the stored contents, so that they need not be hashed to share memory.
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
