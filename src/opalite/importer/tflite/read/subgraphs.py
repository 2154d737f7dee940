"""SubgraphReader: subgraphs of the file as GraphDefs.

A subgraph that another one calls becomes a function of the model. IF and WHILE become ONNX's If and Loop, whose bodies
call these functions. Resource variables, and the state tensors of recurrent operators, become values: a subgraph that
uses one gets a further input, and a further output if it writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx import AttributeProto, defs

from ....errors import ModelFormatError, UnsupportedOpError
from ....ir import Array
from ...proto.constants import Constants
from ...proto.decode import ValueInfo
from ...proto.functions import FunctionDef
from ...proto.graphdef import Attr, GraphDef, NodeDef, make_graph
from ...proto.op_schemas import TFLITE
from .bodies import NEXT, PAST, Body, NodeTensors, Variable
from .control_flow import SPECIAL
from .tables import Tables, schema, text
from .tensors import RESOURCE, VARIANT, Buffers, TensorInfo, read_tensor

_FUNCTIONS = "tflite.subgraph"
_KINDS = {GraphDef: AttributeProto.GRAPH, int: AttributeProto.INT, tuple: AttributeProto.INTS}
_STATEFUL = frozenset(
    (
        *("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM", "SVDF"),
        *("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"),
    )
)
"""Operators that write their variable inputs."""


class SubgraphReader:
    """Reads subgraphs of one file; `functions` holds those that others call."""

    def __init__(
        self,
        tables: Tables,
        model: Any,
        buffers: Buffers,
        evaluate: Callable[[GraphDef, dict[Any, FunctionDef]], list[Array]],
    ) -> None:
        """evaluate: computes the outputs of a graph without inputs."""
        self.tables = tables
        self.buffers = buffers
        self.evaluate = evaluate
        self.functions: dict[tuple[str, str, str], FunctionDef] = {}
        self.contents: dict[str, tuple[Array, Array]] = {}  # keys and values of hash tables
        self.codes = [_operator_code(c) for c in tables.tables(model, "OperatorCodes")]
        self.graphs = tables.tables(model, "Subgraphs")
        self.opset = defs.onnx_opset_version()
        self._bodies: dict[tuple[int, tuple[str, ...]], Body | None] = {}

    def read(self, index: int, handles: tuple[str, ...] = ()) -> Body:
        """Read subgraph `index`. handles: what its inputs that are handles stand for, in order."""
        if not 0 <= index < len(self.graphs):
            raise ModelFormatError(f"subgraph {index} is none of the file's {len(self.graphs)}")
        key = (index, handles)
        if key not in self._bodies:
            self._bodies[key] = None
            self._bodies[key] = SubgraphWalk(self, index, handles).body()
        found = self._bodies[key]
        if found is None:
            raise UnsupportedOpError(f"subgraph {index} calls itself")
        return found

    def function(self, index: int, handles: tuple[str, ...]) -> tuple[str, Body]:
        """Return (operator that calls subgraph `index`, the subgraph)."""
        name = f"subgraph {index}{''.join(f' {h}' for h in handles)}"
        body = self.read(index, handles)
        self.functions[_FUNCTIONS, name, ""] = FunctionDef(body.graph)
        return name, body


def _operator_code(code: Any) -> tuple[str, int]:
    """Return (name, version) of an operator; custom ones by their own name."""
    # Numbers up to 126 are in the older field.
    number = max(int(code.BuiltinCode()), int(code.DeprecatedBuiltinCode()))
    if number == schema().BuiltinOperator.CUSTOM:
        return text(code.CustomCode()), int(code.Version())
    names = {n: name for name, n in vars(schema().BuiltinOperator).items() if isinstance(n, int)}
    return names.get(number, f"builtin operator number {number}"), int(code.Version())


@dataclass(eq=False)
class SubgraphWalk:
    """One subgraph being read."""

    reader: SubgraphReader
    index: int
    outer: tuple[str, ...]
    nodes: list[NodeDef] = field(default_factory=list)
    reads: dict[str, Variable] = field(default_factory=dict)
    writes: dict[str, Variable] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)  # value of each variable by its name
    handles: dict[int, str] = field(default_factory=dict)
    initial: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables, graph = self.reader.tables, self.reader.graphs[self.index]
        self.name = text(graph.Name()) or f"subgraph {self.index}"
        found = tables.tables(graph, "Tensors")
        names = _unique([text(t.Name()) or f"tensor {i}" for i, t in enumerate(found)])
        self.tensors = tuple(
            read_tensor(tables, t, i, name) for i, (t, name) in enumerate(zip(found, names, strict=True))
        )
        self.taken = set(names)
        self.values = list(names)
        self.inputs, self.outputs = tables.ints(graph, "Inputs"), tables.ints(graph, "Outputs")
        self.operators = tables.tables(graph, "Operators")

    def body(self) -> Body:
        """Read all operators."""
        outer = iter(self.outer)
        for i in self.inputs:
            if self.tensor(i).type == RESOURCE:
                self.handles[i] = next(outer, "")
        constants = Constants()
        for t in self.tensors:
            if t.index not in self.inputs and (held := self.reader.buffers.constant(t)) is not None:
                constants[t.value] = held
        for operator in self.operators:
            self.visit(operator)
        plain = [i for i in self.inputs if i not in self.handles]
        inputs = [
            *(_info(self.tensor(i), self.tensor(i).value) for i in plain),
            *(ValueInfo(v.name + PAST, "tensor", v.dtype, v.signature) for v in self.reads.values()),
        ]
        outputs = self._outputs()
        made = {o for n in self.nodes for o in n.outputs}
        kept = {n: constants.held(n) for n in constants if n not in made}
        graph = make_graph(self.name, tuple(inputs), tuple(outputs), self.nodes, Constants(kept))
        return Body(
            graph,
            self.tensors,
            tuple(plain),
            tuple(i for i in self.outputs if i not in self.handles),
            tuple(self.reads.values()),
            tuple(self.writes.values()),
            tuple(self.handles[i] for i in self.outputs if i in self.handles),
            self.initial,
        )

    def _outputs(self) -> list[ValueInfo]:
        """Return the outputs, each with a name of its own."""
        used: set[str] = set()
        found = []
        for i in self.outputs:
            if i not in self.handles:
                found.append(_info(self.tensor(i), self._own_name(self.values[i], self.tensor(i).value, used)))
        for v in self.writes.values():
            name = self._own_name(self.current[v.name], v.name + NEXT, used)
            found.append(ValueInfo(name, "tensor", v.dtype, v.signature))
        return found

    def _own_name(self, value: str, wanted: str, used: set[str]) -> str:
        """Return an output's name for `value`: `wanted`, or a further one if that is taken."""
        if value == wanted and wanted not in used:
            used.add(wanted)
            return wanted
        name = self.new_name(wanted) if wanted in self.taken else wanted
        self.taken.add(name)
        used.add(name)
        self.nodes.append(self.onnx_node("Identity", (value,), (name,)))
        return name

    # Names

    def tensor(self, i: int) -> TensorInfo:
        """Return tensor `i`; ModelFormatError if the subgraph lacks it."""
        if not 0 <= i < len(self.tensors):
            raise ModelFormatError(f"'{self.name}' names tensor {i}; it has {len(self.tensors)}")
        return self.tensors[i]

    def value(self, i: int) -> str:
        """Return the name of the value that tensor `i` holds now; '' for an absent one."""
        if i == -1:
            return ""
        return self.values[self.tensor(i).index]

    def new_name(self, stem: str) -> str:
        """Return a name that nothing has."""
        k = 1
        while f"{stem}:{k}" in self.taken:
            k += 1
        self.taken.add(f"{stem}:{k}")
        return f"{stem}:{k}"

    def read_variable(self, variable: Variable) -> str:
        """Return the name of a variable's value now."""
        if variable.name not in self.current:
            self.reads[variable.name] = variable
            self.current[variable.name] = variable.name + PAST
        return self.current[variable.name]

    def write_variable(self, variable: Variable, value: str) -> None:
        """Let `value` be the variable's from now on."""
        self.writes[variable.name] = variable
        self.current[variable.name] = value

    def handle(self, i: int) -> str:
        """Return what the handle in tensor `i` stands for."""
        if i not in self.handles:
            raise UnsupportedOpError(f"'{self.name}': tensor {i} is no handle that the file alone determines")
        return self.handles[i]

    # Operators

    def visit(self, operator: Any) -> None:
        """Add an operator's nodes."""
        tables, codes = self.reader.tables, self.reader.codes
        code = int(operator.OpcodeIndex())
        if not 0 <= code < len(codes):
            raise ModelFormatError(f"an operator has the code number {code}; the file has {len(codes)}")
        name, version = codes[code]
        inputs, outputs = tables.ints(operator, "Inputs"), tables.ints(operator, "Outputs")
        options = {**tables.union(operator, "BuiltinOptions"), **tables.union(operator, "BuiltinOptions2")}
        special = SPECIAL.get(name)
        if special is not None:
            special(self, inputs, outputs, options)
            return
        custom = tables.numbers(operator, "CustomOptions") if operator.CustomOptionsLength() else None
        if custom is not None:
            options["custom_options"] = custom.astype(np.uint8).tobytes()
        ins = tuple(None if i == -1 else self.tensor(i) for i in inputs)
        outs = tuple(self.tensor(i) for i in outputs)
        names = [self.value(i) for i in inputs]
        made = [t.value for t in outs]
        if name in _STATEFUL:
            for k, t in enumerate(ins):
                if t is not None and t.is_variable:
                    variable = self._state(t)
                    names[k] = self.read_variable(variable)
                    made.append(self.new_name(t.value))
                    self.write_variable(variable, made[-1])
        between = tuple(self.tensor(i) for i in tables.ints(operator, "Intermediates"))
        options["tensors"] = NodeTensors(ins, outs, between)
        attributes = {k: Attr(0, v) for k, v in options.items()}
        label = next((t.name for t in outs), "")
        self.nodes.append(NodeDef(name, TFLITE, version, label, tuple(names), tuple(made), attributes))

    def _state(self, t: TensorInfo) -> Variable:
        if t.dtype is None:
            raise ModelFormatError(f"variable '{t.name}' has no element type")
        zero = 0 if t.quantization is None else int(t.quantization.zero_point[0])
        return Variable(t.value, t.dtype, t.signature, zero)

    def onnx_node(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> NodeDef:
        """Make a node of ONNX's own domain."""
        attributes = {k: Attr(_KINDS[type(v)], v) for k, v in attrs.items()}
        opset = self.reader.opset
        label = next(iter(outputs), "")
        return NodeDef(op_type, "", opset, label, tuple(inputs), tuple(outputs), attributes, opsets={"": opset})

    def call(self, op: str, inputs: Sequence[str], outputs: Sequence[str]) -> NodeDef:
        """Make a node that calls a function of the model."""
        return NodeDef(op, _FUNCTIONS, 1, next(iter(outputs), op), tuple(inputs), tuple(outputs))

    def arguments(self, body: Body, inputs: Sequence[int], what: str) -> list[str]:
        """Return the values of a called subgraph's inputs, variables included."""
        plain = [self.value(i) for i in inputs if i not in self.handles]
        if len(plain) != len(body.inputs):
            raise ModelFormatError(
                f"{what} of '{self.name}' gives {len(plain)} inputs; {len(body.inputs)} are expected"
            )
        return [*plain, *(self.read_variable(v) for v in body.reads)]

    def handles_of(self, inputs: Sequence[int]) -> tuple[str, ...]:
        """Return what the handles among `inputs` stand for."""
        return tuple(self.handles[i] for i in inputs if i in self.handles)

    def results(self, outputs: Sequence[int], bodies: Sequence[Body]) -> tuple[list[str], list[Variable]]:
        """Return (names of the results of a call, variables that it writes); handles are bound."""
        first = bodies[0]
        plain = [i for i in outputs if self.tensor(i).type not in (RESOURCE, VARIANT)]
        for i, held in zip([i for i in outputs if self.tensor(i).type == RESOURCE], first.handles, strict=False):
            self.handles[i] = held
        written = {v.name: v for body in bodies for v in body.writes}
        return [self.tensor(i).value for i in plain], list(written.values())


def _info(t: TensorInfo, name: str) -> ValueInfo:
    return ValueInfo(name, "tensor", t.dtype, t.signature)


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names, those that occur twice with a number appended."""
    seen: set[str] = set()
    found = []
    for name in names:
        own, k = name, 1
        while own in seen:
            own = f"{name}:{k}"
            k += 1
        seen.add(own)
        found.append(own)
    return found
