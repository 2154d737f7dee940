"""One node with one kernel on a device: its outputs, with guards around them, and its time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...cl.runtime import Runtime
from ...errors import DeviceError
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Node, Origin, Value
from ...ir.place import FLAT, Place, Target
from ...ir.tensor_type import TensorType
from ...kernels.kernel import Binding, Kernel
from ...kernels.launch import Grid
from ...kernels.launch_workgroups import launch_with_open_group
from ...ops.operator import make_op
from ...run.execute.single_node_executable import SingleNodeExecutable

Array = np.ndarray[Any, Any]
_LARGE = 1024  # work-items of a group


def make_node(
    op: str,
    attrs: Mapping[str, Any],
    arrays: Sequence[Array | None],
    *,
    const: Sequence[int] = (),
    binding: Binding | None = None,
    precision: DType | None = None,
) -> Node:
    """A stand-alone node of the operator called `op` on `arrays`.

    attrs: its attributes by name, and perhaps "epilogue". const: numbers of the inputs that are constants. precision:
    how float32 is stored.
    """
    ins: list[Value | None] = []
    for i, a in enumerate(arrays):
        if a is None:
            ins.append(None)
            continue
        layout = FLAT if binding is None or binding.inputs[i] is None else binding.inputs[i]
        dtype = DType.of(a)
        stored = precision if dtype is DType.FLOAT32 else None
        place = Place(Target.OPENCL, layout or FLAT, stored)
        ins.append(Value(f"x{i}", TensorType(dtype, a.shape, place), a if i in const else None))
    own = {key: value for key, value in attrs.items() if key != "epilogue"}
    node = Node(make_op(op, own), ins, [], attrs.get("epilogue"), "test", (Origin(op, "test"),))
    for i, t in enumerate(node.infer()):
        layout = FLAT if binding is None else binding.outputs[i]
        stored = precision if t.dtype is DType.FLOAT32 else None
        node.outputs.append(Value(f"y{i}", t.with_place(Place(Target.OPENCL, layout, stored))))
        node.outputs[i].producer = node
    return node


def run_node(
    rt: Runtime, kernel: Kernel, node: Node, arrays: Sequence[Array | None], params: Mapping[str, Any] | None = None
) -> list[Array]:
    """Outputs of `node` computed by `kernel` on `arrays` (logical, unpacked).

    A launch that leaves its work-group open runs a second time with a group that divides no axis of its grid, as tuning
    may choose it. DeviceError for overwritten guard bytes, or outputs that differ between the two.
    """
    one = SingleNodeExecutable(rt, node, arrays)
    found = one.prepare(kernel, params).run()
    problem = kernel.problem(node, rt.info)
    chosen = kernel.defaults(problem) if params is None else params
    launch = launch_with_open_group(kernel.launch(problem, chosen))
    if launch is not None:
        group = uneven_group(launch.grid, rt.info)
        for v, want, got in zip(node.outputs, found, one.prepare(kernel, chosen, group).run(), strict=True):
            if not np.allclose(got, want, rtol=1e-2, atol=1e-6, equal_nan=True):
                raise DeviceError(f"{kernel.name} gives another output {v.name} with work-groups of {group}")
    return found


def time_node(
    rt: Runtime,
    kernel: Kernel,
    node: Node,
    arrays: Sequence[Array | None],
    params: Mapping[str, Any] | None = None,
    seconds: float = 0.1,
) -> float:
    """Least seconds that one run of `node` takes, enqueueing included, measured for about `seconds` after a warm-up."""
    prepared = SingleNodeExecutable(rt, node, arrays).prepare(kernel, params)
    recording = rt.record(prepared.launches)

    def run(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            recording.run()
        rt.finish()
        return (time.perf_counter() - start) / times

    run(1)
    once = run(1)
    times = max(1, int(seconds / 10 / once))
    return min(run(times) for _ in range(10))


def uneven_group(grid: Grid, device: DeviceInfo) -> Grid:
    """A small work-group that divides no axis of `grid`, if possible: it reveals missing bounds checks."""
    left, group = device.max_work_group_size, []
    for extent, limit in zip(grid, device.max_work_item_sizes, strict=False):
        size = next((d for d in (3, 5, 7, 11, 13) if extent % d and d <= min(left, limit)), 1)
        group.append(size)
        left //= size
    return tuple(group)


def large_group(grid: Grid, limit: int, device: DeviceInfo) -> Grid:
    """The largest work-group along the first axis, up to `limit`: it reveals local memory that is too small."""
    return (min(limit, device.max_work_item_sizes[0], _LARGE), *(1 for _ in grid[1:]))
