"""Emission from a placed graph to a Program: slots, weights, sources and steps.

Longer than 400 lines: one class whose methods fill one Program.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from .. import knobs
from ..errors import KernelError
from ..ir.constants.lazy_array import Array, LazyArray, page_aligned, page_contiguous
from ..ir.device.default_workgroups import size_grid
from ..ir.device.device_family import ADDRESSES, SLOW_SUB_BUFFERS
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Graph, Node, Value
from ..ir.place import Target
from ..ir.shape_hints import hinted
from ..ir.symbols import hint_of, is_symbolic
from ..kernels.equivalent_nodes import node_key
from ..kernels.kernel import Kernel, LaunchConfig, Problem
from ..kernels.kernel_sources import option_text, program_text, source_name
from ..kernels.launch import Grid, Launch, Local, PerShapeTable, Scratch, SymbolicTable, Table, Weight
from ..kernels.launch_workgroups import nonempty_launches
from ..kernels.lower_arguments import SymbolicNumber, lower
from ..kernels.node_launches import launches_of, sums_in_half
from ..kernels.wave_request import asked_wave
from ..layout.kernel_candidates import Option
from ..ops.data_movement import Concat
from ..ops.elementwise import PlaceCast
from ..ops.gather import Gather
from ..ops.host import HostOp
from ..ops.operator import Cost
from .memory.buffer_aliasing import AliasedSlice, BufferAliasing, copied_inputs, find_buffer_aliasing, is_alias
from .memory.liveness import Lifetime, assign_memory, linger
from .memory.verify_memory_plan import verify_contents
from .program import (
    DownloadStep,
    HostStep,
    LaunchStep,
    LocalArg,
    NodeReport,
    Port,
    Program,
    ReferenceStep,
    ReservedPort,
    ScalarArg,
    SlotArg,
    SourceSpec,
    StepArg,
    Storage,
    TexelsArg,
    UploadStep,
)
from .template.make_template import make_template
from .template.program_template import Template
from .template.symbolic_numbers import TypeText
from .weights.packed_weights import Form, placed_form, weight_form
from .work_partition import find_work_partition

MOST_HELD = 64 << 20
"""Bytes of late weights that a plan keeps in memory at first, so that small models pack them once."""


MAPPED = 64 << 20
"""Least bytes of a gather-only table that is mapped from the model file. A GPU needs all of it, a CPU the rows read."""


@dataclass
class Emitter:
    """State of one emission.

    stored: contents of values as their places store them, for values without data. forms: packed constants, reused by
    later emissions. late: whether large weights from the model file are packed on use, and may be released.
    """

    graph: Graph
    device: DeviceInfo
    settings: dict[Node, LaunchConfig]
    program: Program
    launches: dict[Node, list[Launch]] = field(default_factory=dict)  # launches of a node without aliasing
    nesting: BufferAliasing = field(default_factory=BufferAliasing)
    slots: dict[Any, int] = field(default_factory=dict)  # Value, (Value, form), (node, scratch), (Spot, bytes) -> slot
    lifetimes: list[Lifetime] = field(default_factory=list)
    hosts: dict[Value, int] = field(default_factory=dict)
    sources: dict[SourceSpec, int] = field(default_factory=dict)
    walks: dict[tuple[str, ...], int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)  # number of launches by number of the node
    tables: dict[int, SymbolicTable | PerShapeTable] = field(default_factory=dict)  # contents that depend on sizes
    now: int = 0
    stored: Mapping[Value, Array] = field(default_factory=dict)
    forms: MutableMapping[tuple[Value, str], Array] | None = None
    late: bool = False
    held_bytes: int = 0  # bytes of late weights in memory

    def host(self, v: Value) -> int:
        """Host slot of a value."""
        if v not in self.hosts:
            self.hosts[v] = len(self.hosts)
            if v.is_const:
                self.program.host_consts[self.hosts[v]] = v.array
        return self.hosts[v]

    def slot(self, v: Value) -> int:
        """Device slot of a value; a constant's slot holds its stored form."""
        if v not in self.slots:
            if v in self.stored:
                self.slots[v] = self.add_weight(self.stored[v], v.name, v.type.layout.is_image)
            elif v.is_const:
                self.slots[v] = self.add_constant(v, v.type.layout.is_image)
            elif (spot := self.nesting.find(v)).root is not v:
                self.slots[v] = self.part(v, spot)
            else:
                self.slots[v] = self.new_slot(v.type.nbytes, Storage.DYNAMIC, v.name)
                if v.type.layout.is_image:
                    memory = self.lifetimes[self.slots[v]]
                    memory.image, memory.dtype = v.type.layout.image_size(v.shape), v.type.storage
        number = self.slots[v]
        self.lifetimes[number].last = self.now
        if (within := self.lifetimes[number].within) is not None:
            self.lifetimes[within[0]].last = self.now
        return number

    def part(self, v: Value, spot: AliasedSlice) -> int:
        """Slot of a value inside another value's memory; the other's slot if the value fills that memory."""
        holder = self.slot(spot.root)
        if (spot.offset, v.type.nbytes) == (0, spot.root.type.nbytes):
            return holder
        key = (spot, v.type.nbytes)
        if key not in self.slots:
            self.slots[key] = self.new_slot(v.type.nbytes, Storage.DYNAMIC, v.name)
            self.lifetimes[self.slots[key]].within = holder, spot.offset
        return self.slots[key]

    def new_slot(self, nbytes: int, storage: Storage, label: str) -> int:
        """A slot whose lifetime starts at this step."""
        self.lifetimes.append(Lifetime(nbytes, self.now, self.now, storage, label))
        return len(self.lifetimes) - 1

    def add_weight(self, array: Array | LazyArray, label: str, image: bool = False) -> int:
        """A STATIC slot with the contents `array`."""
        if isinstance(array, np.ndarray):
            array = page_aligned(page_contiguous(array))
        number = self.new_slot(array.nbytes, Storage.STATIC, label)
        if image:
            self.lifetimes[number].image = (array.shape[1], array.shape[0])
            self.lifetimes[number].dtype = DType.of(array)
        self.program.weights[number] = array
        return number

    def add_constant(self, v: Value, image: bool) -> int:
        """A STATIC slot with a constant as its place stores it; a large gather-only table is memory-mapped."""
        held = v.lazy_data
        if self.late and isinstance(held, LazyArray) and held.mapped is not None and held.nbytes >= MAPPED:
            is_as_held = v.type.layout.is_row_major and v.type.storage.np == held.dtype and v.shape == held.shape
            if is_as_held and os.name == "posix" and self.device.on_host and self._is_picked(v):
                return self.add_weight(held.mapped(), v.name, image)
        return self.add_form(placed_form(v), v.name, image)

    def _is_picked(self, v: Value) -> bool:
        """Whether nodes only gather rows of a constant."""
        readers = [n for n in self.graph.nodes if v in n.inputs]
        return all(isinstance(n.op, Gather) and n.inputs.index(v) == 0 and v not in n.inputs[1:] for n in readers)

    def add_form(self, form: Form, label: str, image: bool = False) -> int:
        """A STATIC slot with a packed constant; large ones are packed on use if `late`."""
        later = form.stored() if self.late else None
        if later is None:
            made = form.made()
            if self.late:  # later plans know its dtype and shape
                later = form.stored(made)
            if later is None:
                return self.add_weight(made, label, image)
            self.held_bytes += later.nbytes
            if self.held_bytes > MOST_HELD:
                later.unpin()
                self.held_bytes -= later.nbytes
        return self.add_weight(later, label, image)

    def add_kernel_form(self, weight: Weight, label: str) -> int:
        """A STATIC slot with a constant in a kernel's own form."""
        if self.forms is None:
            return self.add_form(weight_form(weight), label, weight.image)
        key = (weight.value, weight.form)
        if key not in self.forms:
            self.forms[key] = weight_form(weight).made()
        return self.add_weight(self.forms[key], label, weight.image)

    def source(self, launch: Launch, default: str) -> int:
        """Number of the launch's program."""
        name = launch.source or default
        spec = SourceSpec(program_text(name, launch.prelude), option_text(launch.defines), source_name(name))
        return self.sources.setdefault(spec, len(self.sources))


@dataclass(frozen=True)
class _Slots:
    """Slots of the arguments of one node's launches."""

    e: Emitter
    node: Node

    def of_value(self, value: Value) -> SlotArg:
        return SlotArg(self.e.slot(value))

    def of_weight(self, weight: Weight, texels: bool) -> tuple[SlotArg, np.dtype[Any]]:
        value, key = weight.value, (weight.value, weight.form)
        if key not in self.e.slots:
            self.e.slots[key] = self.e.add_kernel_form(weight, f"{value.name}:{weight.form}")
        number = self.e.slots[key]
        return (TexelsArg if texels else SlotArg)(number), self.e.program.weights[number].dtype

    def of_scratch(self, scratch: Scratch) -> SlotArg:
        key = (self.node, scratch.name)
        if key not in self.e.slots:
            self.e.slots[key] = self.e.new_slot(scratch.nbytes, Storage.DYNAMIC, f"{self.node.name}:{scratch.name}")
        return SlotArg(self.e.slots[key])

    def of_table(self, name: str, table: Table) -> SlotArg:
        if isinstance(table, SymbolicTable | PerShapeTable):
            nbytes = table.count * table.dtype.itemsize
            number = self.e.new_slot(nbytes, Storage.STATIC, f"{self.node.name}:table")
            self.e.tables[number] = table
            return SlotArg(number)
        return SlotArg(self.e.add_weight(table, f"{self.node.name}:table"))

    def lower(self, kernel: Kernel, launch: Launch) -> tuple[StepArg, ...]:
        """The arguments of a step."""
        try:
            return tuple(map(_step_arg, lower(kernel, launch, self)))
        except KernelError as e:
            raise e.add_context(f"while planning {self.node.label}") from e


def _step_arg(a: Any) -> Any:
    if isinstance(a, Local):
        return LocalArg(a.nbytes)
    is_number = isinstance(a, np.generic | SymbolicNumber)  # a SymbolicNumber becomes a term
    return ScalarArg(cast(Any, a)) if is_number else a


def emit(
    graph: Graph,
    device: DeviceInfo,
    *,
    settings: Mapping[Node, LaunchConfig] | None = None,
    check: bool = False,
    late: bool = False,
    keep: Callable[[Emitter], None] | None = None,
    start: Callable[..., Emitter] = Emitter,
) -> Program:
    """The Program of a placed graph.

    settings: tuned parameters and work-groups, which override kernels' defaults. late: see Emitter. keep: called with
    the finished Emitter. start: constructor of the Emitter. check: verify memory contents step by step even without
    aliasing.
    """
    e = _emit(graph, device, settings, late, start)
    program = e.program
    size_steps(program, device)
    assign_memory(program, e.lifetimes, alignment(device), str(knobs.get("OPALITE_PLANNER")))
    if e.nesting.copied or check:
        verify_contents(graph, e.launches, e.nesting.copied, e.slots, program.slots)
    program.placement = _reports(e)
    if keep is not None:
        keep(e)
    return program


def _untuned(kernel: Kernel, p: Problem, known: dict[Hashable, LaunchConfig]) -> LaunchConfig:
    """Default parameters for the current sizes. known: a cache by problem."""
    near = hinted(p.node)
    alike = node_key(near)
    found = None if alike is None else known.get((kernel.name, alike))
    if found is None:
        found = LaunchConfig(kernel.defaults(p if near is p.node else kernel.problem(near, p.device)))
        if alike is not None:
            known[kernel.name, alike] = found
    return found


def emit_template(
    graph: Graph,
    device: DeviceInfo,
    *,
    settings: Mapping[Node, LaunchConfig] | None = None,
    late: bool = False,
    keep: Callable[[Emitter], None] | None = None,
    start: Callable[..., Emitter] = Emitter,
) -> Template:
    """The Template of a placed graph with symbols, verified at the current sizes. Options as for `emit`."""
    assert graph.trace is not None
    e = _emit(graph, device, settings, late, start)
    e.program.placement = _reports(e)
    strategy = str(knobs.get("OPALITE_PLANNER"))
    template = make_template(graph.trace, e.program, e.lifetimes, e.tables, alignment(device), device, strategy)
    program = template.at(template.sizes)
    assert program is not None, f"guards fail where they were recorded: {template.failing(template.sizes)}"
    verify_contents(graph, e.launches, e.nesting.copied, e.slots, program.slots)
    if keep is not None:
        keep(e)
    return template


def _emit(
    graph: Graph,
    device: DeviceInfo,
    settings: Mapping[Node, LaunchConfig] | None,
    late: bool = False,
    start: Callable[..., Emitter] = Emitter,
) -> Emitter:
    """Everything except work-groups and the memory plan."""
    program = Program(graph.name)
    e = start(graph, device, dict(settings or {}), program, late=late)
    reserved = [(graph.inputs[i], graph.outputs[o]) for i, o in graph.input_output_aliases]
    lasting = {v for pair in reserved for v in pair}
    untuned: dict[Hashable, LaunchConfig] = {}
    for v in graph.inputs:
        if v not in lasting:
            program.inputs.append(Port(v.name, v.dtype, v.shape, e.host(v)))
    for node in graph.nodes:
        kernel = node.chosen.kernel
        if kernel is not None and any(o.type.count for o in node.outputs) and not is_alias(node):
            problem = kernel.problem(node, device)
            e.settings[node] = e.settings.get(node) or _untuned(kernel, problem, untuned)
            if graph.trace is not None and kernel.illegal(problem, e.settings[node].params) is not None:
                # Symbolic sizes prove less than plain ones.
                e.settings[node] = LaunchConfig(next(kernel.points(problem)))
            e.launches[node] = launches_of(kernel, problem, e.settings[node].params)
    refusal, part = _nesting_refusal(device), part_alignment(device)
    e.nesting = find_buffer_aliasing(graph, e.launches, alignment(device), refusal, part_align=part)
    for node in graph.nodes:
        e.counts.append(_emit_node(e, node))
        e.now += 1
    if device.links_launches:
        linger(e.lifetimes)
    for v in graph.outputs:
        if v not in lasting:
            program.outputs.append(Port(v.name, v.dtype, v.shape, e.host(v)))
    for v, _ in reserved:
        e.lifetimes[e.slot(v)].storage = Storage.RESERVED
        program.reserved.append(ReservedPort(v.name, e.slot(v), v.type.storage, v.shape))
    program.host_slots = len(e.hosts)
    program.sources = list(e.sources)
    program.stores_halves = any(map(_stores_halves, graph.nodes))
    return e


def _stores_halves(node: Node) -> bool:
    """Whether a computed value may overflow its half storage; a model's own half outputs are excluded."""
    if node.chosen.host_reason:  # the host keeps a model's halves
        return not isinstance(node.op, HostOp) and any(v.dtype is DType.FLOAT16 for v in node.outputs)
    if node.chosen.kernel is None:
        return False
    is_cast = isinstance(node.op, PlaceCast)
    return any(v.type.storage is DType.FLOAT16 and (v.dtype is DType.FLOAT32 or not is_cast) for v in node.outputs)


WIDEST_VECTOR = 16  # bytes of the widest load on devices with device pointers


def alignment(device: DeviceInfo) -> int:
    """Alignment of arena offsets, in bytes: that of sub-buffers and of the widest vectors."""
    return max(device.base_align, 64)


def part_alignment(device: DeviceInfo) -> int:
    """Alignment of tensors inside others, in bytes: `alignment`, or the widest vectors with device pointers."""
    return WIDEST_VECTOR if ADDRESSES in device.quirks else alignment(device)


def _nesting_refusal(device: DeviceInfo) -> str | None:
    """The reason why nothing is aliased on `device`, or None."""
    if not knobs.get("OPALITE_BUFFER_ALIASING"):
        return "OPALITE_BUFFER_ALIASING=0"
    return "launches on parts of buffers are slow on this device" if SLOW_SUB_BUFFERS in device.quirks else None


def _emit_node(e: Emitter, node: Node) -> int:
    """Append the steps of one node; returns the number of its launches."""
    steps = e.program.steps
    if is_alias(node):
        e.slots[node.y] = e.slot(node.x)
        return 0
    if isinstance(node.op, PlaceCast):
        x, y = node.x, node.y
        if y.type.place.target is Target.HOST:
            memory = e.lifetimes[e.slot(x)]
            steps.append(DownloadStep(e.slot(x), e.host(y), y.dtype, y.shape, x.name))
            if memory.storage is Storage.DYNAMIC:  # a weight stays one
                memory.storage = Storage.SEPARATE
            return 0
        if x.type.place.target is Target.HOST:
            number = e.slot(y)
            e.lifetimes[number].storage = Storage.SEPARATE
            steps.append(UploadStep(e.host(x), number, y.type.storage, x.name))
            return 0
    if node.chosen.host_reason:
        _emit_host(e, node)
        return 0
    return _emit_launches(e, node)


def _emit_host(e: Emitter, node: Node) -> None:
    assert node.epilogue is None, f"{node.label} on the host has an epilogue"
    inputs = tuple(-1 if v is None else e.host(v) for v in node.inputs)
    outputs = tuple(e.host(v) for v in node.outputs)
    op = node.op
    if isinstance(op, HostOp):
        e.program.steps.append(HostStep(op.op_type, op.domain, op.opset, op.proto, inputs, outputs, node.label))
    else:
        e.program.steps.append(ReferenceStep(op, inputs, outputs, node.label))


def _emit_launches(e: Emitter, node: Node) -> int:
    kernel = node.chosen.kernel
    if not any(o.type.count for o in node.outputs):
        for o in node.outputs:
            e.slot(o)
        return 0
    assert kernel is not None
    launches, setting = e.launches[node], e.settings[node]
    if (copied := e.nesting.copied.get(node)) is not None:
        joined = kernel.join(kernel.problem(node, e.device), list(copied)) if len(copied) > 1 else None
        launches = joined or [x for i, x in zip(copied_inputs(node), launches, strict=True) if i in copied]
        e.launches[node] = launches
    return add_launches(e, node, kernel, launches, setting.group, _cost(e, node))


def add_launches(
    e: Emitter, node: Node, kernel: Kernel, launches: Sequence[Launch], tuned: Grid | None, cost: Cost
) -> int:
    """Append the steps of `launches`; returns the number of those that are not empty.

    tuned: the work-group of a launch that leaves it open. `size_steps` must follow.
    """
    count = 0
    for launch, group in nonempty_launches(launches, tuned):
        args = _Slots(e, node).lower(kernel, launch)
        e.program.steps.append(
            LaunchStep(
                e.source(launch, kernel.source),
                launch.entry,
                args,
                launch.grid,
                group,
                node.label,
                kernel.name,
                cost.flops / len(launches),
                cost.bytes / len(launches),
                launch.group is None,
                *find_work_partition(node, kernel, launch, args, e.walks),
            )
        )
        count += 1
    return count


def size_steps(program: Program, device: DeviceInfo) -> None:
    """Choose open work-groups and round grids up to multiples of work-groups."""
    for i, step in enumerate(program.steps):
        if isinstance(step, LaunchStep):
            grid, group = size_grid(step.grid, step.group, device)
            program.steps[i] = replace(step, grid=grid, group=group)


def _cost(e: Emitter, node: Node) -> Cost:
    """Cost of a node without its aliased inputs."""
    cost = node.cost()
    return Cost(cost.flops, cost.bytes * _moved_share(e, node))


def _moved_share(e: Emitter, node: Node) -> float:
    """The share of its inputs that a node copies: below 1 for a Concat or Slice with aliased inputs, else 1."""
    if (copied := e.nesting.copied.get(node)) is None:
        return 1.0
    return sum(node.input(i).type.nbytes for i in copied) / sum(node.input(i).type.nbytes for i in copied_inputs(node))


def _nesting_words(e: Emitter, node: Node) -> str:
    """Report on a Concat or Slice: what it copies and why, or whose memory it shares; '' for other nodes."""
    if (copied := e.nesting.copied.get(node)) is None:
        return ""
    if copied:
        which = f"{len(copied)} of {len(copied_inputs(node))} inputs: " if isinstance(node.op, Concat) else ""
        return f"copies {which}{'; '.join(dict.fromkeys(copied.values()))}"
    spot = e.nesting.find(node.y)
    inside = f"inside %{spot.root.name}" if spot.root is not node.y else ""
    if e.graph.trace is not None:  # offsets depend on the sizes
        where = inside or "in the arena"
    else:
        start = e.program.slots[e.slots[spot.root]].offset + spot.offset
        where = f"from byte {start} of the arena on" + (f", {inside}" if inside else "")
    joins = isinstance(node.op, Concat)
    what = "its inputs are computed in its memory" if joins else "it is part of its input's memory"
    return f"moves no data: {what}, {where}"


def _type_text(v: Value) -> str:
    """A tensor as shown in reports."""
    text = TypeText(v.name, v.dtype.short, v.shape)
    return text if is_symbolic(v.shape) else str(text)  # type: ignore[return-value]


def _reports(e: Emitter) -> list[NodeReport]:
    return [_report(e, n, e.counts[i], i) for i, n in enumerate(e.graph.nodes)]


def _candidate(o: Option) -> tuple[str, str, float, bool]:
    layout = str(o.binding.outputs[0]) if o.binding.outputs else ""
    return o.kernel.name if o.kernel else "view", layout, hint_of(o.seconds), o.measured


def _report(e: Emitter, node: Node, launches: int, index: int) -> NodeReport:
    choice = node.chosen
    kernel = choice.kernel
    setting = e.settings.get(node)
    target = "host" if choice.host_reason else "opencl" if launches else "view"
    if isinstance(node.op, PlaceCast) and kernel is None:
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
    if waves := sorted({asked_wave(x) for x in e.launches.get(node, ())} - {""}):
        why += f"; asks for {' and '.join(waves)} waves"
    if words := _nesting_words(e, node):
        why = f"{why}; {words}" if launches else words
    cost = _cost(e, node)
    return NodeReport(
        index,
        node.name,
        node.op.name,
        node.kind,
        target,
        kernel.name if kernel is not None and (launches or target != "view") else "",
        tuple(_type_text(o) for o in node.outputs),
        tuple(str(o.type.place) for o in node.outputs),
        dict(setting.params) if setting is not None else {},
        why,
        tuple(map(_candidate, choice.options)),
        dict(choice.refusals),
        launches,
        cost.flops,
        cost.bytes,
        str(node.epilogue) if node.epilogue is not None else "",
        hint_of(choice.option.seconds * _moved_share(e, node)),
        choice.option.measured,
        setting.group if setting is not None else None,
        tuple((o.op_type, o.name) for o in node.origin),
    )
