"""Graphs with symbols, and what their templates have to agree with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opalite.ir import DeviceInfo, Graph, Node, TensorType, Value
from opalite.ir.map_record import map_record
from opalite.ir.precision import Precision, PrecisionPolicy
from opalite.ir.shape_hints import hinted
from opalite.ir.symbols import FUNCTIONS, SymbolicFloat, SymbolicInt, Trace, symbolic_max, symbolic_min
from opalite.kernels.kernel import LaunchConfig
from opalite.layout.assign_precision import set_precision
from opalite.passes.pipeline import optimise, place
from opalite.passes.rewrite_driver import Context
from opalite.plan import emit_program as emission
from opalite.plan.emit_program import emit, emit_template
from opalite.plan.memory.buffer_aliasing import is_alias
from opalite.plan.memory.verify_memory_plan import verify_contents
from opalite.plan.planner import PlanOptions
from opalite.plan.program import LaunchStep, Program
from opalite.plan.template.program_template import Template

from .device_programs import NotHere, run_here
from .replay import Choices

_SAME = ("inputs", "outputs", "host_slots", "sources", "stores_halves")


class Traced:
    """A graph with symbols planned for `device`, whose template is compared with plain emissions.

    The graph is consumed. trace: whose symbols the graph has.
    """

    def __init__(self, graph: Graph, device: DeviceInfo, precision: Precision = Precision.FP32) -> None:
        self.device = device
        self.graph = graph
        ctx, policy = Context(check=True), PrecisionPolicy(precision)
        optimise(graph, ctx, device, policy)
        set_precision(graph, policy)
        place(graph, device, memory=PlanOptions(policy).held_in(device), ctx=ctx)
        self._choices = Choices()
        with self._choices.recorded():
            self.template: Template = emit_template(graph, device)
        self._emitted = emission._emit(graph, device, None)

    def check(self, sizes: Sequence[int], inputs: Sequence[Any] | None = None) -> Graph | None:
        """AssertionError if the Program for `sizes` is not what emitting the graph of these sizes gives, or if its
        memory is not sound.

        Returns that graph, placed, to be computed by references; None where a guard fails. inputs: of the graph. Then a
        Program that is another one is judged by what both compute from them, if a device here runs them.
        """
        program = self.template.at(sizes)
        if program is None:
            assert self.template.failing(sizes)
            return None
        assert not self.template.failing(sizes)
        self._check_memory(sizes, program)
        plain, settings = self._at(sizes)
        other = emit(plain, self.device, settings=settings)
        try:
            self._check_same(sizes, program, other)
        except (AssertionError, KeyError) as difference:  # KeyError: the answers of the trace do not fit this graph
            if inputs is None:
                raise
            self._check_numbers(program, other, inputs, difference)
        return plain

    def _check_numbers(self, program: Program, other: Program, inputs: Sequence[Any], difference: Exception) -> None:
        """AssertionError unless both compute the same."""
        try:
            found, want = run_here(program, inputs), run_here(other, inputs)
        except NotHere:
            raise difference from None
        for i, (a, b) in enumerate(zip(found, want, strict=True)):
            assert a.shape == b.shape, f"output {i} is {a.shape}, expected {b.shape}, as {difference!r}"
            close = is_close(a, b, 1e-2 if program.stores_halves else 1e-4)
            bad = f"{int((~close).sum())} of {close.size} elements of output {i} are"
            assert close.all(), f"{bad} not those of a plain emission, as {difference!r}"

    def _check_same(self, sizes: Sequence[int], program: Program, other: Program) -> None:
        """AssertionError unless the two are equal, but for what the trace chose otherwise: that proves the one."""
        if program.sources != other.sources:  # axes that are neighbours in memory at these sizes alone are not joined
            other = self._traced_at(sizes)
        if program.sources != other.sources or program.steps != other.steps:  # nor what this trace did not find out
            plain, settings = self._at(sizes)
            scope = _scope(sizes)
            with self._choices.replayed(lambda x: eval(x.text, {}, scope) if type(x) is SymbolicInt else x):
                other = emit(plain, self.device, settings=settings)
        for name in _SAME:
            assert getattr(program, name) == getattr(other, name), name
        partitions: dict[int, int] = {}  # numbers of work partitions in `program` -> in `other`, which may join some
        for a, b in zip(program.steps, other.steps, strict=True):
            if isinstance(a, LaunchStep) and isinstance(b, LaunchStep):
                assert a.walk < 0 or partitions.setdefault(a.walk, b.walk) == b.walk
                b = replace(b, walk=a.walk)
            assert a == b
            if isinstance(a, LaunchStep):
                assert [type(getattr(x, "value", None)) for x in a.args] == [
                    type(getattr(x, "value", None)) for x in b.args
                ]
        for a, b in zip(program.slots, other.slots, strict=True):
            assert (a.nbytes, a.storage, a.image, a.within) == (b.nbytes, b.storage, b.image, b.within)
        assert [str(o) for r in program.placement for o in r.outputs] == [o for r in other.placement for o in r.outputs]
        assert program.arena_bytes <= 1.3 * other.arena_bytes + 4096

    def _traced_at(self, sizes: Sequence[int]) -> Program:
        """What tracing with `sizes` at hand gives for them, with the same choices."""
        trace = Trace()
        symbols = [trace.symbol(size) for size in sizes]
        graph, made = graph_at(self.graph, symbols)
        graph.trace = trace
        program = emit_template(graph, self.device, settings=self._settings(made)).at(sizes)
        assert program is not None
        return program

    def _check_memory(self, sizes: Sequence[int], program: Program) -> None:
        """What each node reads is there, in the memory that the program has for `sizes`."""
        e, scope = self._emitted, _scope(sizes)
        verify_contents(
            self.graph,
            e.launches,
            e.nesting.copied,
            e.slots,
            program.slots,
            lambda x: eval(x.text, {}, scope) if type(x) is SymbolicInt else x,
        )

    def _at(self, sizes: Sequence[int]) -> tuple[Graph, dict[Node, LaunchConfig]]:
        """The placed graph at `sizes`, with the settings that were chosen for the sizes of the trace."""
        plain, made = graph_at(self.graph, sizes)
        return plain, self._settings(made)

    def _settings(self, made: Mapping[Node, Node]) -> dict[Node, LaunchConfig]:
        settings = {}
        for node in self.graph.nodes:
            kernel = node.chosen.kernel
            if kernel is not None and any(o.type.count for o in node.outputs) and not is_alias(node):
                settings[made[node]] = LaunchConfig(kernel.defaults(kernel.problem(hinted(node), self.device)))
        return settings


def is_close(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], part: float) -> np.ndarray[Any, Any]:
    """By element: equal, or within a part of it and of the largest number."""
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    top = float(np.abs(b[np.isfinite(b)]).max(initial=0))
    return np.asarray(np.isclose(a, b, rtol=part, atol=part * top, equal_nan=True))


def _scope(sizes: Sequence[int]) -> dict[str, Any]:
    """What texts of expressions mean at `sizes`."""
    return {**FUNCTIONS, **{f"s{i}": size for i, size in enumerate(sizes)}}


_SYMBOLIC: Mapping[str, Callable[..., Any]] = {
    "min": lambda *numbers: symbolic_min(numbers),
    "max": lambda *numbers: symbolic_max(numbers),
    "float32": lambda x: x.float32() if type(x) is SymbolicFloat else FUNCTIONS["float32"](x),
}


def graph_at(graph: Graph, sizes: Sequence[int]) -> tuple[Graph, dict[Node, Node]]:
    """`graph` with `sizes`, plain or of another trace, for its symbols, and its nodes by those of `graph`.

    Choices are kept.
    """
    scope = {**FUNCTIONS, **_SYMBOLIC, **{f"s{i}": size for i, size in enumerate(sizes)}}

    def number(x: Any) -> Any:
        return eval(x.text, {}, scope) if type(x) in (SymbolicInt, SymbolicFloat) else x

    values: dict[Value, Value] = {}

    def at(v: Value) -> Value:
        if v not in values:
            type_ = TensorType(v.type.dtype, map_record(v.shape, number), v.type.place)
            values[v] = Value(v.name, type_, v.data, quantized=v.quantized)
        return values[v]

    plain, made = Graph(graph.name), {}
    plain.inputs = [at(v) for v in graph.inputs]
    for n in graph.nodes:
        made[n] = Node(
            map_record(n.op, number),
            [None if v is None else at(v) for v in n.inputs],
            [at(v) for v in n.outputs],
            map_record(n.epilogue, number),
            n.name,
            n.origin,
            n.choice,
            n.precision,
            n.precision_reason,
        )
    plain.nodes = list(made.values())
    plain.outputs = [at(v) for v in graph.outputs]
    return plain, made
