"""Emit a Program again from the graph that an untrusted bundle records, with this version's kernels.

No part of the record is trusted. Types are inferred anew, operators check their attributes, and kernels check the node,
its layouts and parameters. Emission computes sources, arguments, grids and offsets as for any model. Packed weights are
checked by type and shape, and by contents if kernels use them as positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ...errors import BundleError, OpaliteError
from ...expr.expression import In, Tmp
from ...expr.function_table import find_function
from ...ir.check_graph import check_graph
from ...ir.constants.lazy_array import Array, LazyArray
from ...ir.device.device_info import DeviceInfo
from ...ir.dtype import DType
from ...ir.graph import Graph, Node, Origin, Value
from ...ir.place import OPENCL, Layout, LayoutKind, Place, Target
from ...ir.precision import Precision
from ...ir.shape_hints import hinted
from ...ir.symbols import Trace, equal_guarded, hint_of, is_symbolic_int
from ...ir.tensor_type import TensorType
from ...kernels.kernel import Binding, Kernel, LaunchConfig, kernels_for
from ...kernels.launch import Weight
from ...layout.kernel_candidates import Choice, Option, unsupported, view_options
from ...ops.data_movement import Reshape
from ...ops.elementwise import PlaceCast
from ...ops.host import HostOp
from ...ops.operator import Op, broadcast_shape
from ...ops.permute_rows import PermuteRows, table_of
from ..emit_program import Emitter, emit, emit_template
from ..memory.buffer_aliasing import is_alias
from ..memory.memory_limits import check_sizes
from ..program import Port, Program
from ..template.program_template import Template
from ..template.shape_tensors import ShapeTensors
from ..weights.packed_weights import weight_form
from .graph_record import FormRecord, GraphRecord, NodeRecord, ResultRecord, ValueRecord

_MOST_RANK = 64
_CHECKED = "rebuild"  # name of this step in errors of the graph checker


class _RefusedError(ValueError):
    """The record does not fit this version."""


@dataclass(frozen=True)
class Rebuilt:
    """The emitted content, with the model's own ports.

    exact: arrays of the record whose contents were checked and must be equal at each use.
    """

    content: Program | Template
    exact: tuple[Array | LazyArray, ...]


def rebuild(trace: Trace | None, record: GraphRecord, device: DeviceInfo) -> Rebuilt:
    """Emit `record` for `device`. BundleError states the fault.

    trace: of the numbers in `record`, from `read_trace`.
    """
    try:
        return _rebuilt(trace, record, device)
    except Exception as e:  # an untrusted record may fail anywhere in planning
        text = str(e).splitlines()[0] if str(e) else ""
        raise BundleError(text if isinstance(e, OpaliteError | _RefusedError) else f"{type(e).__name__}: {text}") from e


def _rebuilt(trace: Trace | None, record: GraphRecord, device: DeviceInfo) -> Rebuilt:
    graph, values = _graph(trace, record)
    _need(isinstance(record.given, ShapeTensors | None), "the shape tensors are missing")
    settings = {n: _setting(r) for n, r in zip(graph.nodes, record.nodes, strict=True) if r.kernel}
    check_graph(graph, _CHECKED)
    check_sizes(graph, device)
    exact: list[Array | LazyArray] = []
    for node in graph.nodes:
        try:
            exact += _check_node(node, settings.get(node), device)
        except Exception as e:
            raise _RefusedError(f"{node.label}: {e}") from e
    ends = (*graph.inputs, *graph.outputs)
    _need(all(v.type.place.target is Target.HOST or v.is_const for v in ends), "inputs and outputs are on the host")
    forms = {(values[f.value], f.form): f for f in record.forms}

    start = partial(_Emitter, given=forms)
    if trace is None:
        program = emit(graph, device, settings=settings, start=start)
        program.placement = ()
        return Rebuilt(_with_ports(program, record), tuple(exact))
    template = emit_template(graph, device, settings=settings, start=start)
    template.program.placement = ()
    named = replace(template, program=_with_ports(template.program, record), given=record.given)
    return Rebuilt(named, tuple(exact))


def _need(condition: object, expected: str) -> None:
    if not condition:
        raise _RefusedError(expected)


# The graph


def _graph(trace: Trace | None, record: GraphRecord) -> tuple[Graph, list[Value]]:
    graph = Graph(str(record.name))
    graph.trace = trace
    values = [_value(v) for v in record.values]
    graph.nodes = [_node(n, values) for n in record.nodes]
    graph.inputs = [_at(values, i) for i in record.inputs]
    graph.outputs = [_at(values, i) for i in record.outputs]
    _need(not any(v.is_const or v.producer is not None for v in graph.inputs), "an input is computed or a constant")
    return graph, values


def _at(values: Sequence[Value], number: Any) -> Value:
    _need(type(number) is int and 0 <= number < len(values), f"there is no value number {number!r}")
    found: Value = values[number]
    return found


def _value(record: ValueRecord) -> Value:
    type_, data = record.type, record.data
    place, layout = type_.place, type_.place.layout
    typed = isinstance(type_, TensorType) and isinstance(type_.dtype, DType) and isinstance(place, Place)
    typed = typed and isinstance(place.target, Target) and isinstance(place.precision, DType | None)
    typed = typed and isinstance(layout, Layout) and isinstance(layout.kind, LayoutKind) and type(layout.block) is int
    _need(typed and isinstance(type_.shape, tuple) and len(type_.shape) <= _MOST_RANK, "a value has no type")
    _need(all(is_symbolic_int(d) or (type(d) is int and d >= 0) for d in type_.shape), f"shape {type_.shape!r} is none")
    if not record.is_const:
        return Value(str(record.name), type_)
    kind = np.dtype(type_.dtype.np)
    if any(type(d) is int and d == 0 for d in type_.shape):  # no elements: its other sizes may be open
        return Value(str(record.name), type_, np.zeros(tuple(map(hint_of, type_.shape)), kind))
    _need(all(type(d) is int for d in type_.shape), f"the constant '{record.name}' has an open size")
    if data is not None:
        _need((data.dtype, data.shape) == (kind, type_.shape), f"the constant '{record.name}' is not of its type")
        return Value(str(record.name), type_, data)
    return Value(str(record.name), type_, LazyArray(kind, type_.shape, lambda: np.zeros(type_.shape, kind)))


def _node(record: NodeRecord, values: Sequence[Value]) -> Node:
    op = record.op
    _need(isinstance(op, Op), "a node has no operator")
    node = Node(
        op,
        [None if i == -1 else _at(values, i) for i in record.inputs],
        [_at(values, i) for i in record.outputs],
        record.epilogue,
        str(record.name),
        tuple(Origin(str(kind), str(name)) for kind, name in record.origin),
        precision=Precision(record.precision),
    )
    kernel = None
    if record.kernel:
        kernel = next((k for k in kernels_for(op.name) if k.name == record.kernel), None)
        _need(kernel is not None, f"{node.label} has a kernel '{record.kernel}', which this version lacks")
    binding = Binding(
        tuple(None if v is None else v.type.layout for v in node.inputs), tuple(v.type.layout for v in node.outputs)
    )
    node.choice = Choice(Option(kernel, binding, 0.0), host_reason=str(record.host_reason))
    return node


def _setting(record: NodeRecord) -> LaunchConfig:
    return LaunchConfig(dict(record.params), None if record.group is None else tuple(record.group))


# Checks of a node


def _check_node(node: Node, setting: LaunchConfig | None, device: DeviceInfo) -> list[Array | LazyArray]:
    """The arrays checked by contents; ValueError or OpaliteError if this version would refuse the recorded node."""
    _need(not node.op.in_place, "it writes to reserved memory, which bundles do not have")
    _check_epilogue(node)
    places = [v.type.place.target for v in (*node.inputs, *node.outputs) if v is not None and not v.is_const]
    kernel = node.chosen.kernel
    if node.chosen.host_reason:
        near = kernel is None and all(t is Target.HOST for t in places)
        _need(near, "it runs on the host, but its values are on the device")
        return []
    if isinstance(node.op, PlaceCast) and kernel is None and not is_alias(node):
        x, y = node.x.type, node.y.type
        _need(sorted(t.value for t in places) == [Target.HOST.value, Target.OPENCL.value], "it moves nothing")
        _need(x.layout.is_row_major and y.layout.is_row_major, "it is transferred in row-major order")
        _need(x.place.target is not Target.OPENCL or x.storage is y.storage, "it converts")
        return []
    _need(all(t is Target.OPENCL for t in places), "its values are not on the device")
    if is_alias(node):
        x, y = node.x.type, node.y.type
        _need(x.storage is y.storage and equal_guarded((x.nbytes,), (y.nbytes,)), f"{x} and {y} are not the same bytes")
        if isinstance(node.op, Reshape):
            known = [o.binding for o in view_options(node, device, None)]
            _need(node.chosen.option.binding in known, "it is no view in its layouts")
        return []
    _need(not isinstance(node.op, HostOp), "the device has no kernel for it")
    if not any(o.type.count for o in node.outputs):
        return []
    if kernel is None or setting is None:
        raise _RefusedError("no kernel computes it")
    _check_kernel(node, kernel, setting, device)
    if type(node.op).check_contents is Op.check_contents:
        return []
    contents = [None if v is None else v.data for v in node.inputs]
    return [a for a in contents if a is not None] if node.op.check_contents(node.input_types(), contents) else []


def _check_epilogue(node: Node) -> None:
    """Check that an epilogue has the operands which its expression names, and that they broadcast to the result."""
    expr = node.epilogue
    if expr is None:
        return
    _need(node.op.takes_epilogue and not node.chosen.host_reason, "it takes no epilogue")
    operands = node.inputs[node.op.arity :]
    inferred = node.op.infer_shape(node.input_types())[0]
    _need(expr.dtypes[0] is (node.op.sums or inferred.dtype), f"its epilogue begins with {expr.dtypes[0]}")
    _need(len(operands) == len(expr.dtypes) - 1, "its epilogue has other operands")
    for v, dtype in zip(operands, expr.dtypes[1:], strict=True):
        if v is None or v.dtype is not dtype:
            raise _RefusedError("an operand of its epilogue is of another type")
        fits = equal_guarded(broadcast_shape([v.shape, node.y.shape]), node.y.shape)
        _need(fits, f"{v!r} does not broadcast to {node.y!r} in its epilogue")
    for k, instr in enumerate(expr.instrs):
        for a in instr.args:
            known = not isinstance(a, In) or 0 <= a.i < len(expr.dtypes)
            _need(known and (not isinstance(a, Tmp) or 0 <= a.k < k), "its epilogue has an undefined reference")
        function = find_function(instr.fn, len(instr.args))
        _need(instr.fn != "coord" and function.takes(expr.ref_dtype(instr.args[0])), f"its epilogue has {instr}")


def _check_kernel(node: Node, kernel: Kernel, setting: LaunchConfig, device: DeviceInfo) -> None:
    """Check that the kernel takes the node in these layouts with these parameters."""
    apart = node if isinstance(node.op, PlaceCast) else _unplaced(node)
    asked = kernel.problem(apart, device)
    why = unsupported(apart, device) or kernel.refusal(asked)
    _need(why is None, f"kernel {kernel.name} refuses it: {why}")
    found = any(_binds(node, b) for b in kernel.bindings(asked))
    _need(found, f"kernel {kernel.name} does not bind these layouts")
    placed = kernel.problem(node, device)
    params = setting.params
    _need(params.keys() == kernel.space.keys(), f"parameters {dict(params)} are not those of {kernel.name}")
    strange = [k for k, values in kernel.space.items() if not _is_among(params[k], values)]
    if strange:
        usual = kernel.defaults(kernel.problem(hinted(node), device))
        known = all(_is_among(params[k], (usual[k],)) for k in strange)
        _need(known, f"parameters {dict(params)} are not in its search space")
    if isinstance(node.op, PermuteRows) and not _is_open(node):
        table = table_of(node.op, node.x.shape)
        _need(table is not None and table.size * node.op.row == node.y.type.count, "its steps give other rows")
    why = kernel.illegal(placed, params)
    _need(why is None or _is_open(node), f"parameters {dict(params)} do not serve: {why}")
    group = setting.group
    if group is not None:
        sizes = all(type(g) is int and 1 <= g <= device.max_work_group_size for g in group)
        _need(sizes and 1 <= len(group) <= 3 and np.prod(group) <= device.max_work_group_size, f"work-group {group}")


def _is_among(value: Any, values: Sequence[Any]) -> bool:
    return any(type(value) is type(v) and value == v for v in values)


def _is_open(node: Node) -> bool:
    """Whether the node has symbolic sizes, for which emission replaces illegal parameters."""
    return any(is_symbolic_int(d) for v in (*node.inputs, *node.outputs) if v is not None for d in v.shape)


def _unplaced(node: Node) -> Node:
    """The node before layout assignment, as kernels expect it."""
    made: dict[Value, Value] = {}
    for v in (*node.inputs, *node.outputs):
        if v is not None and v not in made:
            made[v] = Value(v.name, v.type.with_place(OPENCL), v.lazy_data, v.producer)
    ins = [None if v is None else made[v] for v in node.inputs]
    found = node.with_(inputs=ins, outputs=[made[v] for v in node.outputs])
    for v, old in zip(found.outputs, node.outputs, strict=True):
        v.producer, old.producer = found, node
    return found


def _binds(node: Node, binding: Binding) -> bool:
    inputs = zip(node.inputs, binding.inputs, strict=True)
    fits = all(v is None or (v.is_const if layout is None else v.type.layout == layout) for v, layout in inputs)
    return fits and all(v.type.layout == b for v, b in zip(node.outputs, binding.outputs, strict=True))


# Emission


@dataclass
class _Emitter(Emitter):
    """An emission whose packed weights come from the record."""

    given: Mapping[tuple[Value, str], FormRecord] = field(default_factory=dict)

    def add_constant(self, v: Value, image: bool) -> int:
        shape: tuple[int, ...] = v.type.layout.storage_shape(v.shape)
        if image:
            wide, high = v.type.layout.image_size(v.shape)
            shape = high, wide, v.type.layout.pack
        return self.add_weight(self._find(v, "", (np.dtype(v.type.storage.np), shape)), v.name, image)

    def add_kernel_form(self, weight: Weight, label: str) -> int:
        form = weight_form(weight)
        kind = form.kind
        if kind is None:
            with np.errstate(all="ignore"):
                made = form.make()
            kind = made.dtype, made.shape
        return self.add_weight(self._find(weight.value, weight.form, kind), label, weight.image)

    def _find(self, v: Value, form: str, kind: tuple[np.dtype[Any], tuple[int, ...]]) -> Array | LazyArray:
        record = self.given.get((v, form))
        if record is None:
            raise _RefusedError(f"the constant '{v.name}' is missing in the form '{form}'")
        array = record.array
        dtype, shape = kind
        fits = array.dtype == dtype and (array.shape or (1,)) == (shape or (1,))  # a scalar is stored as a row
        _need(fits, f"'{v.name}' is {array.dtype}{array.shape}, {dtype}{shape} is expected")
        return array


def _with_ports(program: Program, record: GraphRecord) -> Program:
    """The program with the model's own inputs and outputs."""
    computed = list(program.outputs)
    pairs = zip(program.inputs, record.feeds, strict=True)
    made = replace(program, inputs=[replace(p, name=str(n)) for p, n in pairs], host_consts=dict(program.host_consts))
    made.outputs = [_port(made, computed, r) for r in record.results]
    return made


def _port(program: Program, computed: Sequence[Port], result: ResultRecord) -> Port:
    if result.source == "constant":
        array = result.constant
        array = array.read() if isinstance(array, LazyArray) else array
        assert array is not None
        host = program.host_slots
        program.host_slots += 1
        program.host_consts[host] = array
        return Port(str(result.name), DType.of(array), array.shape, host)
    ports = {"output": computed, "input": program.inputs}[result.source]
    _need(type(result.number) is int and 0 <= result.number < len(ports), f"'{result.name}' comes from nowhere")
    return replace(ports[result.number], name=str(result.name))
