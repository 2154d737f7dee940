"""GraphRecord: the placed graph behind a Program, as plain data.

A bundle stores the record together with the Program, so that a reader that does not trust the bundle can emit the
Program again (reemit_program.py). Small constants are recorded by contents; weights are recorded in their packed forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...ir.constants.lazy_array import Array, LazyArray
from ...ir.graph import Node, Value
from ...ir.symbols import Guard, Trace, is_symbolic_int, read_expression
from ...ir.tensor_type import TensorType
from ...lazy_dataclass import dataclass
from ..program import Port, Program
from ..template.program_template import Template
from ..template.shape_tensors import ShapeTensors

if TYPE_CHECKING:
    from ..emit_program import Emitter


KEPT = 1 << 14
"""Most bytes of a constant recorded by contents: scalars and zero points, which programs depend on."""


@dataclass(frozen=True)
class ValueRecord:
    """A tensor. data: the contents of a constant, None if not recorded."""

    name: str
    type: TensorType
    is_const: bool
    data: Array | LazyArray | None


@dataclass(frozen=True)
class NodeRecord:
    """A node by numbers of values, -1 for an absent input.

    kernel: its name, '' for none; params and group: tuning parameters and work-group of its launches.
    """

    op: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    epilogue: Any
    name: str
    origin: tuple[tuple[str, str], ...]
    precision: str
    host_reason: str
    kernel: str
    params: dict[str, Any]
    group: tuple[int, ...] | None


@dataclass(frozen=True)
class FormRecord:
    """A packed weight: the number of a constant, and a kernel's form, '' for the form of its place."""

    value: int
    form: str
    array: Array | LazyArray


@dataclass(frozen=True)
class ResultRecord:
    """A model output: the number of a graph output or input, or a constant."""

    name: str
    source: str  # output, input or constant
    number: int
    constant: Array | LazyArray | None


@dataclass(frozen=True)
class TraceRecord:
    """The symbols of a graph, their hints and guards."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    guards: tuple[Guard, ...]


@dataclass(frozen=True)
class GraphRecord:
    """A placed graph. inputs, outputs: numbers of values.

    feeds: the model's names of the inputs. results: the model's outputs, in order. given: the Template's shape tensors.
    """

    name: str
    values: tuple[ValueRecord, ...]
    nodes: tuple[NodeRecord, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    forms: tuple[FormRecord, ...]
    feeds: tuple[str, ...]
    results: tuple[ResultRecord, ...]
    given: ShapeTensors | None


def read_trace(record: TraceRecord) -> Trace:
    """The Trace of a recorded graph, with its guards. ValueError or ArithmeticError if it is invalid."""
    trace = Trace()
    for name, size in zip(record.names, record.sizes, strict=True):
        if type(size) is not int or not is_symbolic_int(trace.symbol(size, str(name))):
            raise ValueError(f"size {size!r} of '{name}' is invalid for a symbol")
    for guard in record.guards:
        if read_expression(guard.text, trace) is not True:
            raise ValueError(f"{guard.text} does not hold for the sizes {record.sizes}")
        trace.guard(guard.text, fixes=bool(guard.fixes), where=str(guard.where))
    return trace


def record_graph(emitted: Emitter, content: Program | Template) -> tuple[TraceRecord | None, GraphRecord]:
    """(record of the trace, record of the emitted graph); `content` is the program with the model's own ports.

    Read the trace before the graph.
    """
    graph = emitted.graph
    numbers = {v: i for i, v in enumerate(graph.values())}
    program = content.program if isinstance(content, Template) else content
    forms = _forms(emitted, numbers)
    trace = None
    if isinstance(content, Template):
        trace = TraceRecord(content.names, content.sizes, content.guards)
    placed = {f.value: f.array for f in forms if not f.form}
    record = GraphRecord(
        graph.name,
        tuple(_value(v, emitted, placed.get(i)) for v, i in numbers.items()),
        tuple(_node(n, emitted, numbers) for n in graph.nodes),
        tuple(numbers[v] for v in graph.inputs),
        tuple(numbers[v] for v in graph.outputs),
        tuple(forms),
        tuple(port.name for port in program.inputs),
        tuple(_result(port, emitted.program, program) for port in program.outputs),
        content.given if isinstance(content, Template) else None,
    )
    return trace, record


def _forms(emitted: Emitter, numbers: Mapping[Value, int]) -> list[FormRecord]:
    found = []
    for key, slot in emitted.slots.items():
        value, form = key if isinstance(key, tuple) else (key, "")
        if isinstance(value, Value) and value.is_const and slot in emitted.program.weights:
            found.append(FormRecord(numbers[value], form, emitted.program.weights[slot]))
    return found


def _value(v: Value, emitted: Emitter, placed: Array | LazyArray | None) -> ValueRecord:
    held = v.lazy_data
    data: Array | LazyArray | None = None
    if held is not None and (v in emitted.hosts or held.nbytes <= KEPT):
        data = v.data
    elif held is not None and placed is not None and (placed.dtype, placed.shape) == (held.dtype, v.shape):
        data = placed
    return ValueRecord(v.name, v.type, v.is_const, data)


def _node(node: Node, emitted: Emitter, numbers: Mapping[Value, int]) -> NodeRecord:
    setting, kernel = emitted.settings.get(node), node.chosen.kernel
    return NodeRecord(
        node.op,
        tuple(-1 if v is None else numbers[v] for v in node.inputs),
        tuple(numbers[v] for v in node.outputs),
        node.epilogue,
        node.name,
        tuple((o.op_type, o.name) for o in node.origin),
        node.precision.value,
        node.chosen.host_reason,
        "" if kernel is None else kernel.name,
        {} if setting is None else dict(setting.params),
        None if setting is None else setting.group,
    )


def _result(port: Port, emitted: Program, completed: Program) -> ResultRecord:
    for source, ports in (("output", emitted.outputs), ("input", emitted.inputs)):
        for number, other in enumerate(ports):
            if other.host == port.host:
                return ResultRecord(port.name, source, number, None)
    return ResultRecord(port.name, "constant", -1, completed.host_consts[port.host])
