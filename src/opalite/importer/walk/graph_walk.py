"""GraphWalk: visits the remaining nodes of a model once and imports them into one Graph for known input shapes.

A node is deferred if it needs contents that are unknown so far, or if its output types depend on data. All nodes that
depend on a deferred node are deferred too and form a later segment.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from ...errors import ModelError, OpaliteError, ShapeError
from ...ir import Array, Value
from ...ir.feeds import dtype_of, is_tensor
from ...ir.graph import Origin
from ...ir.symbols import with_plain_sizes
from ..host.onnx_reference import NeedTask, emit_host
from ..proto.constants import Constants, held_by
from ..proto.functions import expand_schema
from ..proto.graphdef import DOMAIN, GraphDef, NodeDef
from ..proto.op_schemas import TFLITE, check_form, check_types, find_schema
from .graph_builder import GraphBuilder
from .host_tasks import STRING_OPERATORS, STRING_RESHAPES, NodeTask, PackTask, Task, TrimTask
from .internal_ops import internal_node
from .name_scopes import ROOT, Item, Scope, make_item
from .node_context import Handler, NeedValue, NodeContext, Trimmed, find_handler
from .segments import Stage
from .symbolic_dims import InputSignature, as_array

Results = Sequence[Value | Trimmed | None]
Control = Callable[["GraphWalk", Item], None]
"""Importer of an operator with inner graphs (control_flow.py) or on sequences (static_sequences.py)."""


class GraphWalk:
    """State of one pass over the nodes.

    env: Values by global name. objects: names of host lists and of None. deferred: names that a later segment defines;
    late: those of them that a task of this segment computes. pending: deferred nodes in order. needs: names whose
    contents an operator asked for. sequences: element names of each known sequence.
    """

    def __init__(
        self,
        stage: Stage,
        values: Mapping[str, Any],
        signature: InputSignature,
        control: Callable[[NodeDef], Control | None],
    ) -> None:
        importer = stage.importer
        self.builder = GraphBuilder(importer.name)
        self.shape_inputs: dict[Value, str] = {}  # shape-dependent values by their names in the run
        self._symbols = signature.symbols(self.builder.trace)
        self.signature = signature
        self._inlined_constants = Constants()  # of inlined graphs
        self.constants: ChainMap[str, Array] = ChainMap(self._inlined_constants, *stage.constants.maps)
        self.folded = stage.folded
        self.known_contents = stage.known_contents
        self.env: dict[str, Value] = {}
        self.sequences = dict(stage.sequences)
        self.sources: dict[Value, str] = {}  # graph inputs, with the name of the incoming value
        self.objects = {n for n, v in values.items() if not is_tensor(v)}
        self.deferred: set[str] = set()
        self.made_by_tasks: set[str] = set()
        self.pending: list[Item] = []
        self.tasks: list[Task] = []
        self.needed_contents: dict[str, None] = {}
        self.string_names: set[str] = set()  # task outputs that hold strings
        self.nested = importer.nested
        self._named: set[Value] = set()
        self._values = values
        self._fixed = stage.fixed | stage.dims.contents  # names with known contents, never bound again
        self._functions = importer.functions
        self.separator = importer.separator
        self._control = control

    # Names ------------------------------------------------------------------------------------------------------

    def lookup(self, name: str) -> Value | None:
        """Return the Value called `name`; None if it is no tensor or unknown in this segment."""
        found = self.env.get(name)
        if found is None and name not in self.deferred:
            found = self._incoming(name)
            if found is not None:
                self.env[name] = found
        return found

    def _incoming(self, name: str) -> Value | None:
        for known in (self.constants, self.folded, self.known_contents):
            if name in known:
                return self.builder.constant(held_by(known, name), name)
        if name not in self._values or name in self.objects:
            return None
        held, symbols = self._values[name], self._symbols
        if name in self._fixed and name not in self.signature.contents:
            return self.builder.constant(as_array(name, held), name)
        if name in self.signature.contents:
            flat = as_array(name, held).reshape(-1).tolist()
            elements = zip(flat, self.signature.contents[name], strict=True)
            numbers = np.empty(len(flat), object)
            numbers[:] = [v if k is None else symbols[k] for v, k in elements]
            value = self.builder.shape_tensor(numbers.reshape(held.shape), dtype_of(held), name)
            self.sources[value] = name
            return value
        axes = zip(held.shape, self.signature.shapes[name], strict=True)
        value = self.builder.input(name, dtype_of(held), [d if k is None else symbols[k] for d, k in axes])
        self.sources[value] = name
        if name in self.signature.reserved and self.signature.reserved[name].grows:
            self.builder.growable.add(value)
        return value

    def static_contents(self, name: str) -> Array | None:
        """Return the contents of `name` if the model alone determines them."""
        return self.constants[name] if name in self.constants else self.folded.get(name)

    def is_static(self, name: str) -> bool:
        """Whether the model alone determines the contents of `name`."""
        return name in self.constants or name in self.folded

    def is_incoming(self, name: str) -> bool:
        """Whether `name` is an incoming value of the segment."""
        return name in self._values and (name not in self.env or self.sources.get(self.env[name]) == name)

    def shape_input_name(self, value: Value) -> str:
        """Return the name under which a run stores the contents of a value that depends on sizes only."""
        if value not in self.shape_inputs:
            self.shape_inputs[value] = f"{value.name}{self.separator}given"
        return self.shape_inputs[value]

    def bind(self, name: str, value: Value) -> None:
        """Bind `name` to `value`; a value without a model name is renamed to `name`."""
        if name and name not in self._fixed:
            self.env[name] = value
            if value.producer is not None and value not in self._named:
                self.builder.rename(value, name)
                self._named.add(value)

    # Nodes ------------------------------------------------------------------------------------------------------

    def visit(self, item: Item) -> None:
        """Import one node, or defer it."""
        if all(not n or n in self._fixed or n in self.folded for n in item.outputs):
            return
        node = item.node
        self.builder.trace.node = node.label
        function = self._functions.get((node.domain, node.op_type, node.overload)) if self._functions else None
        control = self._control(node) if function is None else None
        if control is not None:
            try:
                control(self, item)
            except _BAD_INPUT as e:
                raise ModelError(f"{node.label}: {type(e).__name__}: {e}") from e
        elif function is not None:
            self._inline_function(function.instantiate(node), item)
        else:
            self.visit_operator(item)

    def visit_operator(self, item: Item) -> None:
        """Import a node as one operator on tensors or on host lists."""
        if any(n in self.deferred for n in item.inputs):
            self._visit_incomplete(item)
        elif any(n in self.objects or n in self.sequences for n in item.inputs):
            self._visit_objects(item)
        else:
            self._visit_tensors(item)

    def _visit_tensors(self, item: Item) -> None:
        node = item.node
        inputs = [self._read(item, n) if n else None for n in item.inputs]
        handler = find_handler(node.op_type, node.domain, node.version)
        if handler is None:
            body = expand_schema(node, inputs)
            if body is not None:
                self._inline_function(body, item)
                return
        mark = self.builder.mark()
        try:
            results = self._import(node, handler, inputs)
        except NeedValue as e:
            self.builder.rollback(mark)
            self.await_contents(item, item.inputs[e.index])
        except NeedTask:
            self.builder.rollback(mark)
            self.add_task(item, NodeTask(item))
        else:
            self._bind_all(item, results)
            self._record_folded(item, results)

    def _import(self, node: NodeDef, handler: Handler | None, inputs: Sequence[Value | None]) -> Results:
        try:
            check_form(node)
            check_types(node, inputs)
            if handler is None:
                return emit_host(self.builder, node, inputs)
            found = handler(NodeContext(self.builder, node, inputs))
        except OpaliteError as e:
            e.message = with_plain_sizes(e.message)
            e.add_context(_importing(node, inputs))
            raise
        except _BAD_INPUT as e:
            raise ModelError(f"{node.label}: {type(e).__name__}: {e}").add_context(_importing(node, inputs)) from e
        return [found] if isinstance(found, (Value, Trimmed)) else list(found)

    def _bind_all(self, item: Item, results: Results) -> None:
        for i, name in enumerate(item.outputs):
            result = results[i] if i < len(results) else None
            if not name:
                continue
            if isinstance(result, Trimmed):
                padded, count = f"{name}{self.separator}padded", f"{name}{self.separator}count"
                self.bind(padded, result.value)
                self.bind(count, result.count)
                self.add_task(item, TrimTask(item, padded, count, name))
            elif result is not None:
                self.bind(name, result)
            elif item.node.used and item.node.used[i]:
                raise ModelError(f"{item.node.label}: output '{name}' is read, but the operator's importer gives none")

    def _record_folded(self, item: Item, results: Results) -> None:
        """Record results that depend on model constants only: one array serves all input shapes."""
        top = item.scope is ROOT and item.node.domain != DOMAIN
        if not top or not all(self.is_static(n) for n in item.inputs if n):
            return
        arrays = [v.data if isinstance(v, Value) else None for v in results]
        if len(arrays) == len(item.outputs) and all(a is not None for a in arrays):
            self.folded.update((n, a) for n, a in zip(item.outputs, arrays, strict=True) if n and a is not None)

    def _read(self, item: Item, name: str) -> Value:
        value = self.lookup(name)
        if value is None:
            raise ModelError(f"{item.node.label} reads '{name}', which has no value at this point")
        return value

    def _visit_objects(self, item: Item) -> None:
        """Import a node that reads host lists, as a task unless its result is known already."""
        source, op_type = item.inputs[0], item.node.op_type
        if op_type == "OptionalHasElement":
            there = source in self.sequences or self._values[source] is not None
            self.bind(item.outputs[0], self.builder.constant(np.asarray(there), item.outputs[0]))
        elif source in self.sequences and op_type in _SAME:
            self.sequences[item.outputs[0]] = self.sequences[source]
        else:
            self.add_task(item, NodeTask(item))

    def _visit_incomplete(self, item: Item) -> None:
        """Import a node with deferred inputs as a task if tasks compute them and the host runs it; else defer it."""
        made_here = all(n in self.made_by_tasks for n in item.inputs if n in self.deferred)
        if made_here and (_is_host_only(item.node) or self._handles_strings(item)):
            self.add_task(item, NodeTask(item))
        else:
            self.postpone(item)

    def _handles_strings(self, item: Item) -> bool:
        """Whether the node handles strings made by tasks; a task of its own lets later nodes see its result's shape."""
        node = item.node
        made_by_tasks = [n for n in item.inputs if n in self.deferred]
        return node.op_type in STRING_RESHAPES | STRING_OPERATORS and all(n in self.string_names for n in made_by_tasks)

    # Interface of control-flow importers ----------------------------------------------------------------------------

    def postpone(self, item: Item) -> None:
        """Defer the node, and with it all nodes that depend on it, to a later segment."""
        self.pending.append(item)
        self.deferred.update(n for n in item.outputs if n and n not in self._fixed)

    def await_contents(self, item: Item, name: str) -> None:
        """Defer the node until the contents of `name` are known."""
        self.needed_contents[name] = None
        self.postpone(item)

    def add_task(self, item: Item, task: Task) -> None:
        """Run the node on the host after this segment, or later if a sequence that it reads is incomplete."""
        if all(self.pack_sequence(n) for n in task.inputs if n in self.sequences):
            self._append(task)
        else:
            self.postpone(item)

    def pack_sequence(self, sequence: str) -> bool:
        """Convert a known sequence to a host list after this segment; False if elements are missing then."""
        elements = self.sequences[sequence]
        if sequence in self.made_by_tasks:
            return True
        if any(n in self.deferred and n not in self.made_by_tasks for n in elements):
            return False
        self._append(PackTask(sequence, elements))
        return True

    def _append(self, task: Task) -> None:
        self.tasks.append(task)
        made = [n for n in task.outputs if n]
        if isinstance(task, NodeTask) and task.outputs_strings(self.string_names):
            self.string_names.add(task.outputs[0])
        self.made_by_tasks.update(made)
        self.deferred.update(n for n in made if n not in self.sequences)

    def inline(
        self, graph: GraphDef, item: Item, tag: str, inputs: Sequence[str], outputs: Sequence[str] | None
    ) -> list[str]:
        """Import an inner graph in place; `inputs` are global names for its inputs ('' if absent).

        The outputs get the global names `outputs`, if given. Returns the names of the outputs. `tag` distinguishes
        several copies that are inlined for one item.
        """
        prefix = f"{next(n for n in item.outputs if n)}{self.separator}{tag}/"
        given = dict(zip_longest((v.name for v in graph.inputs), inputs[: len(graph.inputs)], fillvalue=""))
        made = [n for node in graph.nodes for n in node.outputs if n]
        names = {n: prefix + n for n in (*graph.constants, *made)}
        names.update((n, outer) for n, outer in given.items() if outer or n not in graph.constants)
        for name in graph.constants:
            self._inlined_constants[prefix + name] = graph.constants.held(name)
        if any(n for n in (outputs or ())[len(graph.outputs) :]):
            raise ShapeError(
                f"{item.node.label} has {len(outputs or ())} outputs, but '{graph.name}' gives {len(graph.outputs)}"
            )
        renamed: set[str] = set()
        scope = Scope(names, item.scope)
        same: list[tuple[str, str]] = []
        for info, wanted in zip(graph.outputs, outputs or (), strict=False):
            if wanted and info.name in made and info.name not in renamed:
                names[info.name] = wanted
                renamed.add(info.name)
            elif wanted:
                same.append((info.name, wanted))
        for node in graph.nodes:
            self.visit(make_item(node, scope))
        for name, wanted in same:
            self.visit(make_item(internal_node("PassThrough", item.node.name, (scope.resolve(name),), wanted, {})))
        return [scope.resolve(v.name) for v in graph.outputs]

    def _inline_function(self, body: GraphDef, item: Item) -> None:
        """Import the body of a function in place of its call, whose name precedes those of the nodes."""
        start = self.builder.mark()
        self.inline(body, item, "f", item.inputs, item.outputs)
        call = item.node.name or next((o for o in item.node.outputs if o), "")
        for made in self.builder.graph.nodes[start:]:
            made.name = f"{call}/{made.name}"
            made.origin = tuple(Origin(o.op_type, f"{call}/{o.name}") for o in made.origin)

    def find_contents(self, item: Item, name: str) -> Array | None:
        """Return the contents of tensor `name` if they are known."""
        return self.builder.contents(self._read(item, name))

    def mark(self) -> tuple[Any, ...]:
        """Return the state, for `rollback`."""
        return (
            self.builder.mark(),
            len(self.pending),
            len(self.tasks),
            set(self.deferred),
            set(self.made_by_tasks),
            dict(self.needed_contents),
        )

    def rollback(self, mark: tuple[Any, ...]) -> None:
        """Undo all visits since `mark`; names bound since then remain, but nothing else uses them."""
        nodes, pending, tasks, self.deferred, self.made_by_tasks, self.needed_contents = mark
        self.builder.rollback(nodes)
        del self.pending[pending:]
        del self.tasks[tasks:]


_SAME = frozenset(("PassThrough", "Identity", "Optional", "OptionalGetElement"))
"""Operators that return their input sequence unchanged."""


_BAD_INPUT = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(NotImplementedError, MemoryError),
)
"""Exceptions of importer functions for attributes that no valid model has."""


def _is_host_only(node: NodeDef) -> bool:
    """Whether the operator has neither an importer function nor a function body."""
    if find_handler(node.op_type, node.domain, node.version) is not None:
        return False
    schema = find_schema(node)
    return schema is None or not (schema.has_function or schema.has_context_dependent_function)


def _importing(node: NodeDef, inputs: Sequence[Value | None]) -> str:
    types = ", ".join("absent" if v is None else str(v.type) for v in inputs)
    version = f"{'version' if node.domain == TFLITE else 'opset'} {node.version}"
    return f"while importing {node.label} ({version}) with inputs {types or 'none'}"
