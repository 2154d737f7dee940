"""Emit: from a placed graph to a Program - slots, weights, sources and steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import knobs
from ..errors import InputError
from ..ir.device import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Graph, Node, Value
from ..ir.place import Target
from ..kernels.base import Launch, Local, Scratch, Weight
from ..kernels.launches import launches_of, sums_in_half
from ..kernels.setting import Setting
from ..kernels.sources import option_text, program_text
from ..kernels.workgroups import size_launches
from ..passes.casts import stored_array
from ..passes.pick import is_free_cast
from .memory import STRATEGIES, Request, lower_bound, plan_memory
from .program import (
    DownloadStep,
    HostStep,
    LaunchStep,
    LocalArg,
    MemoryReport,
    Port,
    Program,
    ReferenceStep,
    ScalarArg,
    Slot,
    SlotArg,
    SourceSpec,
    StepArg,
    Storage,
    UploadStep,
)
from .report import NodeReport

Array = np.ndarray[Any, Any]


@dataclass
class _Memory:
    """A device value's needs before offsets are known."""

    nbytes: int
    first: int
    last: int
    storage: Storage
    label: str
    image: tuple[int, int] | None = None
    dtype: DType = DType.FLOAT32


@dataclass
class Emitter:
    """State of one emission."""

    graph: Graph
    device: DeviceInfo
    settings: dict[Node, Setting]
    program: Program
    slots: dict[Any, int] = field(default_factory=dict)  # Value, (Value, form) or (node, scratch name) -> slot
    memory: list[_Memory] = field(default_factory=list)
    hosts: dict[Value, int] = field(default_factory=dict)
    sources: dict[SourceSpec, int] = field(default_factory=dict)
    now: int = 0

    def host(self, v: Value) -> int:
        """Host slot of a value."""
        if v not in self.hosts:
            self.hosts[v] = len(self.hosts)
            if v.is_const:
                assert v.data is not None
                self.program.host_consts[self.hosts[v]] = v.data
        return self.hosts[v]

    def slot(self, v: Value) -> int:
        """Device slot of a value; a constant's slot is filled with its stored form."""
        if v not in self.slots:
            if v.is_const:
                self.slots[v] = self.add_weight(stored_array(v), v.name, v.type.layout.is_image)
            else:
                self.slots[v] = self.new_slot(v.type.nbytes, Storage.DYNAMIC, v.name)
                if v.type.layout.is_image:
                    memory = self.memory[self.slots[v]]
                    memory.image, memory.dtype = v.type.layout.image_size(v.shape), v.type.storage
        number = self.slots[v]
        self.memory[number].last = self.now
        return number

    def new_slot(self, nbytes: int, storage: Storage, label: str) -> int:
        """A slot first used now."""
        self.memory.append(_Memory(nbytes, self.now, self.now, storage, label))
        return len(self.memory) - 1

    def add_weight(self, array: Array, label: str, image: bool = False) -> int:
        """A STATIC slot holding `array`."""
        array = np.ascontiguousarray(array)
        number = self.new_slot(array.nbytes, Storage.STATIC, label)
        if image:
            self.memory[number].image = (array.shape[1], array.shape[0])
            self.memory[number].dtype = DType.of(array)
        self.program.weights[number] = array
        return number

    def arg(self, node: Node, a: Any) -> StepArg:
        """A launch argument as plain data."""
        if isinstance(a, Value):
            return SlotArg(self.slot(a))
        if isinstance(a, Weight):
            key = (a.value, a.form)
            if key not in self.slots:
                assert a.value.data is not None
                self.slots[key] = self.add_weight(a.fn(a.value.data), f"{a.value.name}:{a.form}", a.image)
            return SlotArg(self.slots[key])
        if isinstance(a, Scratch):
            owned = (node, a.name)
            if owned not in self.slots:
                self.slots[owned] = self.new_slot(a.nbytes, Storage.DYNAMIC, f"{node.name}:{a.name}")
            return SlotArg(self.slots[owned])
        if isinstance(a, Local):
            return LocalArg(a.nbytes)
        if isinstance(a, np.generic):
            return ScalarArg(a)
        if isinstance(a, np.ndarray):
            return SlotArg(self.add_weight(a, f"{node.name}:table"))
        return ScalarArg(np.float32(a) if isinstance(a, float) else np.int32(a))

    def source(self, launch: Launch, default: str) -> int:
        """Number of the launch's program."""
        name = launch.source or default
        spec = SourceSpec(program_text(name, launch.prelude), option_text(launch.defines), name)
        return self.sources.setdefault(spec, len(self.sources))


def emit(
    graph: Graph,
    device: DeviceInfo,
    *,
    settings: Mapping[Node, Setting] | None = None,
    strategy: str | None = None,
) -> Program:
    """The Program of a placed graph. `settings` override kernels' untuned parameters and work-groups."""
    program = Program(graph.name)
    e = Emitter(graph, device, dict(settings or {}), program)
    reports: list[NodeReport] = []
    for v in graph.inputs:
        program.inputs.append(Port(v.name, v.dtype, v.shape, e.host(v)))
    for node in graph.nodes:
        launches = _emit_node(e, node)
        reports.append(_report(e, node, launches, len(reports)))
        e.now += 1
    for v in graph.outputs:
        program.outputs.append(Port(v.name, v.dtype, v.shape, e.host(v)))
    program.host_slots = len(e.hosts)
    program.sources = list(e.sources)
    program.placement = reports
    _assign_memory(e, strategy or str(knobs.get("OPALITE_PLANNER")))
    return program


def _emit_node(e: Emitter, node: Node) -> int:
    """Append the steps of one node; returns how many launches it took."""
    steps = e.program.steps
    if node.op.name == "Reshape" and not node.choice.host_reason:
        _alias(e, node)
        return 0
    if node.op.name == "PlaceCast":
        x, y = node.x, node.y
        source, target = x.type.place.target, y.type.place.target
        if target is Target.HOST:
            steps.append(DownloadStep(e.slot(x), e.host(y), y.dtype, y.shape, x.name))
            e.memory[e.slot(x)].storage = _separate(e, e.slot(x))
            return 0
        if source is Target.HOST:
            number = e.slot(y)
            e.memory[number].storage = Storage.SEPARATE
            steps.append(UploadStep(e.host(x), number, y.type.storage, x.name))
            return 0
        if x.type.storage is y.type.storage and is_free_cast(x.shape, x.type.layout, y.type.layout):
            _alias(e, node)
            return 0
    if node.choice.host_reason:
        _emit_host(e, node)
        return 0
    return _emit_launches(e, node)


def _separate(e: Emitter, number: int) -> Storage:
    """Outputs get memory of their own unless they are weights."""
    now = e.memory[number].storage
    return Storage.SEPARATE if now is Storage.DYNAMIC else now


def _alias(e: Emitter, node: Node) -> None:
    """The output is a view of the input's memory."""
    number = e.slot(node.x)
    e.slots[node.y] = number


def _emit_host(e: Emitter, node: Node) -> None:
    inputs = tuple(-1 if v is None else e.host(v) for v in node.inputs)
    outputs = tuple(e.host(v) for v in node.outputs)
    a = node.attrs
    if node.op.name == "HostOp":
        step = HostStep(a["op_type"], a["domain"], a["opset"], a["proto"], inputs, outputs, node.label)
        e.program.steps.append(step)
    else:
        e.program.steps.append(ReferenceStep(node.op.name, dict(a), inputs, outputs, node.label))


def _emit_launches(e: Emitter, node: Node) -> int:
    kernel = node.choice.kernel
    if not any(o.type.count for o in node.outputs):
        for o in node.outputs:
            e.slot(o)
        return 0
    setting = e.settings.get(node) or Setting(kernel.defaults(node, e.device))
    e.settings[node] = setting
    launches = launches_of(kernel, node, setting.params, e.device)
    ins = [None if v is None else v.type for v in node.inputs]
    cost = node.op.cost(node.attrs, ins, [o.type for o in node.outputs])
    count = 0
    for launch, grid, group in size_launches(launches, e.device, setting.group):
        args = tuple(e.arg(node, a) for a in launch.args)
        e.program.steps.append(
            LaunchStep(
                e.source(launch, kernel.source),
                launch.entry,
                args,
                grid,
                group,
                node.label,
                kernel.name,
                cost.flops / len(launches),
                cost.bytes / len(launches),
                launch.group is None,
            )
        )
        count += 1
    return count


def _report(e: Emitter, node: Node, launches: int, index: int) -> NodeReport:
    choice = node.choice
    kernel = choice.kernel
    setting = e.settings.get(node)
    target = "host" if choice.host_reason else "opencl" if launches else "view"
    if node.op.name == "PlaceCast" and kernel is None:
        target = "transfer"
    why = choice.host_reason
    if kernel is not None:
        others = len({o.kernel.name for o in choice.options if o.kernel is not None}) - 1
        how = "measured cheapest" if choice.option.measured else "cheapest"
        why = "the only kernel that accepts it" if others <= 0 else f"{how} with its casts of {others + 1} kernels"
        if setting is not None and setting.origin:
            why += f"; parameters {setting.origin}"
    elif not why:
        why = "moves no data" if target == "view" else "copies between host and device"
    if kernel is not None and sums_in_half(kernel, node, e.device):
        why += "; sums in half"
    if node.precision_reason:
        why += f"; in float32: {node.precision_reason}"
    ins = [None if v is None else v.type for v in node.inputs]
    cost = node.op.cost(node.attrs, ins, [o.type for o in node.outputs])
    epilogue = node.attrs.get("epilogue")
    return NodeReport(
        index,
        node.name,
        node.op.name,
        node.origin,
        target,
        kernel.name if kernel is not None else "",
        tuple(f"{o.name}: {o.type}" for o in node.outputs),
        tuple(str(o.type.place) for o in node.outputs),
        dict(setting.params) if setting is not None else {},
        why,
        tuple(
            (
                o.kernel.name if o.kernel else "view",
                str(o.binding.outputs[0]) if o.binding.outputs else "",
                o.seconds,
                o.measured,
            )
            for o in choice.options
        ),
        dict(choice.refusals),
        launches,
        cost.flops,
        cost.bytes,
        str(epilogue) if epilogue is not None else "",
        choice.option.seconds,
        choice.option.measured,
        setting.group if setting is not None else None,
    )


def _assign_memory(e: Emitter, strategy: str) -> None:
    """Offsets for DYNAMIC buffers, pool numbers for images, and the report."""
    if strategy != "best" and strategy not in STRATEGIES:
        raise InputError(f"unknown memory planner {strategy!r}; expected best, {', '.join(STRATEGIES)}")
    align = max(e.device.base_align, 64)
    requests = [
        Request(i, m.nbytes, m.first, m.last)
        for i, m in enumerate(e.memory)
        if m.storage is Storage.DYNAMIC and m.image is None
    ]
    plan, totals = plan_memory(requests, align, strategy)
    images = _assign_images(e)
    program = e.program
    for i, m in enumerate(e.memory):
        program.slots.append(
            Slot(i, m.nbytes, m.storage, plan.offsets.get(i, 0), m.image, m.dtype, images.get(i, 0), m.label)
        )
    program.arena_bytes = plan.total
    program.memory = MemoryReport(
        plan.strategy,
        totals,
        lower_bound(requests, align),
        sum(m.nbytes for m in e.memory if m.storage is Storage.STATIC),
        sum(m.nbytes for m in e.memory if m.storage is Storage.SEPARATE),
        sum(w * h * 4 * dtype.size for w, h, dtype in program.image_pool),
    )


def _assign_images(e: Emitter) -> dict[int, int]:
    """A pool of images reused by size: the smallest free one that fits, else the one that needs least growth, else new.

    A wide image and a high one are never merged: growing must cost fewer texels than an image of its own.
    """
    pool: list[list[Any]] = []  # width, height, dtype, busy until step
    number: dict[int, int] = {}
    order = [i for i, m in enumerate(e.memory) if m.image is not None and m.storage is not Storage.STATIC]
    for i in sorted(order, key=lambda i: e.memory[i].first):
        m = e.memory[i]
        assert m.image is not None
        w, h = m.image
        free = [p for p in range(len(pool)) if pool[p][3] < m.first and pool[p][2] is m.dtype]
        fits = [p for p in free if pool[p][0] >= w and pool[p][1] >= h]
        growth = {p: max(pool[p][0], w) * max(pool[p][1], h) - pool[p][0] * pool[p][1] for p in free}
        if fits:
            p = min(fits, key=lambda p: pool[p][0] * pool[p][1])
        elif free and min(growth.values()) < w * h:
            p = min(growth, key=lambda p: growth[p])
            pool[p][0], pool[p][1] = max(pool[p][0], w), max(pool[p][1], h)
        else:
            p = len(pool)
            pool.append([w, h, m.dtype, 0])
        pool[p][3] = m.last
        number[i] = p
    e.program.image_pool = [(w, h, dtype) for w, h, dtype, _ in pool]
    return number
