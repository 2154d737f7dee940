"""SingleNodeExecutable: one node on a device, by any kernel, parameters and work-group, planned as models are."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...cl.queue.prepared_launch import PreparedLaunch
from ...cl.runtime import Runtime
from ...errors import DeviceError
from ...ir.graph import Node, Value
from ...kernels.image.image_layout import texels_to_blocks
from ...kernels.kernel import Kernel, LaunchConfig, Params
from ...kernels.launch import Grid
from ...kernels.weight_packing import unpack_array
from ...plan.program import LaunchStep
from ...plan.single_node_program import NodeProgram, plan_node, stored_inputs
from .executable import Executable

Array = np.ndarray[Any, Any]
GUARD = 64  # bytes of a known pattern past the end of every output
PATTERN = 0xFF
"""The byte that fills outputs before a run: floats of it are NaN, which no sum hides, and integers -1."""
_KEPT_FORMS = 256 << 20  # bytes of constants in kernels' own forms that are kept for the next kernel


class SingleNodeExecutable:
    """A node whose values have their places, with the contents of its inputs. Each way to compute it is a `NodeRun`."""

    def __init__(self, rt: Runtime, node: Node, arrays: Sequence[Array | None]) -> None:
        """arrays: the logical inputs, None if one is absent or given in a kernel's own layout."""
        self.rt = rt
        self.node = node
        self._stored = stored_inputs(node, arrays)
        self._forms: dict[tuple[Value, str], Array] = {}
        self._key = f"node:{secrets.token_hex(8)}"

    def prepare(self, kernel: Kernel, params: Params | None = None, group: Grid | None = None) -> NodeRun:
        """The node by `kernel`. params: the untuned ones by default. group: of launches that leave it open.

        DeviceError if a kernel does not run with its group.
        """
        rt = self.rt
        chosen = kernel.defaults(kernel.problem(self.node, rt.info)) if params is None else params
        if sum(a.nbytes for a in self._forms.values()) > _KEPT_FORMS:
            self._forms.clear()
        planned = plan_node(
            *(self.node, kernel, LaunchConfig(chosen, group), rt.info, self._stored),
            forms=self._forms,
            guard=GUARD,
            key=self._key,
        )
        run = NodeRun(self.node, planned, Executable(rt, planned.program, is_trial=True))
        for step, launch in zip(run.steps, run.launches, strict=True):
            if step.group == group and launch.group != group:
                raise DeviceError(f"{kernel.name} runs with work-groups up to {launch.group}, not {group}")
        return run


class NodeRun:
    """One way to compute a node, ready to run. launches: those with work, in order. steps: of the launches.

    outputs: the slots of the outputs.
    """

    def __init__(self, node: Node, planned: NodeProgram, executable: Executable) -> None:
        self.node = node
        self.executable = executable
        self.launches: list[PreparedLaunch] = list(executable.launches.values())
        self.steps = [s for s in planned.program.steps if isinstance(s, LaunchStep)]
        self.outputs = planned.outputs
        self._outputs = [executable.memory.objects[number] for number in planned.outputs]
        self._poison()

    def group_limit(self) -> int | None:
        """The most work-items in a group of the launch that leaves its group open; None unless there is exactly one."""
        found = [launch for step, launch in zip(self.steps, self.launches, strict=True) if step.open_group]
        return found[0].work_group_limit(self.executable.rt.device) if len(found) == 1 else None

    def _poison(self) -> None:
        """Fill the outputs, guard bytes included, with a pattern that shows skipped writes."""
        rt = self.executable.rt
        for v, memory in zip(self.node.outputs, self._outputs, strict=True):
            if v.type.layout.is_image:
                w, h = v.type.layout.image_size(v.shape)
                rt.write_image(memory, np.full((h, w, 4), np.nan, v.type.storage.np))
            elif v.type.nbytes + GUARD:
                rt.fill(memory, PATTERN, v.type.nbytes + GUARD)
        rt.finish()  # the host memory may be freed before a launch

    def run(self) -> list[Array]:
        """Run it. Returns the logical outputs."""
        self.executable.run(())
        return self.results()

    def results(self) -> list[Array]:
        """The logical outputs. DeviceError if guard bytes were overwritten, or lanes past C are not zero."""
        self.executable.rt.finish()
        return [self._result(v, memory) for v, memory in zip(self.node.outputs, self._outputs, strict=True)]

    def _result(self, v: Value, memory: Any) -> Array:
        rt, layout = self.executable.rt, v.type.layout
        if layout.is_image:
            w, h = layout.image_size(v.shape)
            texels = np.empty((h, w, 4), v.type.storage.np)
            rt.read_image(memory, texels)
            return unpack_array(texels_to_blocks(texels, v.shape), v.shape, layout).astype(v.dtype.np)
        raw = np.empty(v.type.nbytes + GUARD, np.uint8)
        rt.read(memory, raw)
        if np.any(raw[v.type.nbytes :] != PATTERN):
            raise DeviceError(f"something was written past the end of output {v!r}")
        return logical_array(raw[: v.type.nbytes], v)


def logical_array(raw: Array, v: Value) -> Array:
    """The elements of a value from the bytes of its buffer. DeviceError if lanes past C are not zero."""
    stored = raw.view(v.type.storage.np).reshape(v.type.layout.storage_shape(v.shape))
    return unpack_array(stored, v.shape, v.type.layout).astype(v.dtype.np)
