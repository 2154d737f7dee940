"""verify_model: compares every node of a model on the device with the operators' NumPy references.

Each node runs alone on the reference's inputs, so that an error does not spread to other nodes. Errors of rewrites are
found by evaluating the graph before and after them with the references, errors of planning and execution by a run
of the whole model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...cl.runtime import find_runtime
from ...errors import DeviceError, InputError
from ...importer import ImportRun, ModelImporter
from ...importer.walk.constant_evaluation import evaluate_graph
from ...importer.walk.segments import Segment
from ...ir.dtype import DType
from ...ir.graph import Graph, Node, Value
from ...ir.precision import PrecisionPolicy
from ...ir.tolerances import Column, column, largest_difference, magnitude, tolerance
from ...ops.elementwise import Elementwise, PlaceCast, run_reference
from ...ops.quantized_matmul import may_round
from ...passes.pipeline import place
from ...plan.bundle.bundle import is_bundle
from ...plan.planner import prepare
from ..execute.host_operators import on_host
from ..execute.single_node_executable import SingleNodeExecutable
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions, parse_precision
from ..model.imported_model import ImportedModel
from ..model.onnx_model import OnnxModel
from ..precision.auto_model import choose_precision

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Check:
    """One comparison. difference: the largest absolute error, infinite if an element is finite on one side only."""

    what: str
    kernel: str
    output: str
    difference: float
    allowed: float
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether the difference is within the tolerance."""
        return not self.problem and self.difference <= self.allowed


@dataclass
class Verification:
    """All comparisons: of nodes in execution order, of graph rewrites, and of the model's outputs."""

    device: str
    nodes: list[Check] = field(default_factory=list)
    rewrites: list[Check] = field(default_factory=list)
    outputs: list[Check] = field(default_factory=list)

    @property
    def first_failure(self) -> Check | None:
        """The first comparison that failed, nodes first, because their errors cause the others."""
        return next((c for c in (*self.nodes, *self.rewrites, *self.outputs) if not c.passed), None)


@dataclass(frozen=True)
class Tolerance:
    """An error bound: `absolute` plus `relative` times the largest magnitude; None takes `relative` from the table."""

    absolute: float = 0.0
    relative: float | None = None

    def allowed(self, want: Array, what: str, stored: Column) -> float:
        """The error bound for the expected array `want`. what, stored: row and column of the table of tolerances."""
        relative = tolerance(what, stored) if self.relative is None else self.relative
        return self.absolute + relative * magnitude(want)


def verify_model(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    precision: str | PrecisionPolicy | None = None,
    memory: str = "auto",
    allowed: Tolerance | None = None,
) -> Verification:
    """Compare all nodes and outputs of an ONNX `model` on `feeds` with the references.

    precision: 'auto' is decided on `feeds`. Raises InputError for a bundle, which has no ONNX nodes.
    """
    if not isinstance(model, bytes) and is_bundle(model):
        raise InputError(f"{os.fspath(model)} is a bundle, which has no ONNX nodes; verify the .onnx file")
    precision = parse_precision(precision)
    if precision == "auto":
        precision, _ = choose_precision(model, feeds, device=device, memory=memory)
    compiler = Compiler(find_runtime(device), CompileOptions(precision, memory))
    verifier = _Verifier(compiler, allowed or Tolerance())
    imported = ImportedModel(model)
    wanted = verifier.evaluate(imported.importer, imported.check_feeds(feeds))
    whole = OnnxModel(model, compiler)
    got, _ = whole.run(whole.check_feeds(feeds))
    base = compiler.policy.precision
    for arg, w, g in zip(imported.outputs, wanted, map(on_host, got), strict=True):
        if isinstance(w, np.ndarray) and isinstance(g, np.ndarray) and w.dtype.kind != "O":
            stored = column(base, DType.of(w))
            row = "quantised model" if verifier.rounds else "model"
            verifier.found.outputs.append(verifier.check(f"output '{arg.name}'", "", g, w, row, stored))
    return verifier.found


class _Verifier:
    def __init__(self, compiler: Compiler, tolerance: Tolerance) -> None:
        self.rt = compiler.rt
        self.found = Verification(compiler.rt.info.title)
        self.rounds = False  # whether matmuls quantize activations to 8 bits
        self._compiler = compiler
        self._tolerance = tolerance
        self._placed: dict[tuple[Segment, tuple[int, ...]], Graph] = {}  # rewritten graphs by segment and symbol values

    def evaluate(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Compute the outputs by references, and verify each segment once. Also runs the bodies of ONNX loops."""
        run = ImportRun(importer, feeds, self.evaluate)
        while run.segment is not None:
            segment = run.segment
            inputs = [np.asarray(a) for a in run.feeds]
            graph = self._placed.get((segment, run.sizes))
            if graph is None:
                outputs = self._verify_segment(segment, run.sizes, inputs)
            else:
                outputs = self._run_references(graph, inputs, compare=False)
            run.advance(outputs)
        return run.outputs

    def _verify_segment(self, segment: Segment, sizes: tuple[int, ...], inputs: Sequence[Array]) -> list[Array]:
        """Verify a segment for the symbol values `sizes`; returns the outputs of the graph before rewrites."""
        graph = segment.graph_at(sizes)
        names = [v.name for v in graph.outputs]
        before = evaluate_graph(graph, inputs)
        options = self._compiler.plan_options()
        prepare(graph, options, self.rt.info)
        place(graph, self.rt.info, memory=options.held_in(self.rt.info))
        self._placed[segment, sizes] = graph
        after = self._run_references(graph, inputs, compare=True)
        for name, want, got in zip(names, before, after, strict=True):
            if want.dtype.kind != "O":
                what = f"rewriting, seen at '{name}'"
                self.found.rewrites.append(self.check(what, "", got, want, "node", DType.of(want)))
        return before

    def _run_references(self, graph: Graph, inputs: Sequence[Array], compare: bool) -> list[Array]:
        """Compute the outputs of a rewritten graph by references. compare: also run every node on the device."""
        known: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))

        def array(v: Value) -> Array:
            return known[v] if v.data is None else v.data

        for node in graph.nodes:
            arrays = [None if v is None else array(v) for v in node.inputs]
            outs = _reference(node, arrays)
            self.rounds |= may_round(node.op)
            if compare and node.chosen.kernel is not None and any(o.type.count for o in node.outputs):
                self._compare(node, arrays, outs)
            known.update(zip(node.outputs, outs, strict=False))
        return [array(v) for v in graph.outputs]

    def _compare(self, node: Node, arrays: Sequence[Array | None], outs: Sequence[Array]) -> None:
        stored = [
            None if a is None or v is None else _as_stored(a, v) for a, v in zip(arrays, node.inputs, strict=True)
        ]
        wanted = outs if all(s is a for s, a in zip(stored, arrays, strict=True)) else _reference(node, stored)
        kernel = node.chosen.kernel
        assert kernel is not None
        try:
            got = SingleNodeExecutable(self.rt, node, stored).prepare(kernel).run()
        except DeviceError as e:
            self.found.nodes.append(Check(node.label, kernel.name, str(node.y.type), np.inf, 0.0, str(e)))
            return
        for v, w, g in zip(node.outputs, wanted, got, strict=True):
            held = v.type.storage if isinstance(node.op, PlaceCast) else column(node.precision, v.dtype)
            row = "rounded node" if may_round(node.op) else "node"
            check = self.check(node.label, kernel.name, g, w, row, held, _rounds(node, v))
            self.found.nodes.append(check)

    def check(
        self, what: str, kernel: str, got: Array, want: Array, row: str, stored: Column, rounds: int = 0
    ) -> Check:
        """Compare two arrays with the bound of `row` and `stored` in the table; integers may differ by `rounds`."""
        text = f"{DType.of(want).short}{list(want.shape)}"
        if got.shape != want.shape or got.dtype != want.dtype:
            problem = f"got {got.dtype.name}{list(got.shape)}"
            return Check(what, kernel, text, np.inf, 0.0, problem)
        allowed = self._tolerance.allowed(want, row, stored) + rounds
        return Check(what, kernel, text, largest_difference(got, want), allowed)


def _reference(node: Node, arrays: Sequence[Array | None]) -> list[Array]:
    if isinstance(node.op, PlaceCast):
        assert arrays[0] is not None
        return [arrays[0]]
    outs = run_reference(node.op, node.epilogue, arrays)
    return [np.asarray(a).astype(v.dtype.np, copy=False) for a, v in zip(outs, node.outputs, strict=False)]


def _as_stored(array: Array, v: Value) -> Array:
    """`array` rounded to the type in which the value is stored."""
    if v.type.storage is v.dtype:
        return array
    with np.errstate(over="ignore"):  # what overflows is infinite on the device, too, and is reported so
        return array.astype(v.type.storage.np).astype(v.dtype.np)


def _rounds(node: Node, v: Value) -> int:
    """The error allowed in integers: 1 if they are rounded floats, because floats near .5 may round either way."""
    from_float = any(i is not None and i.dtype.is_float for i in node.inputs)
    rounding = isinstance(node.op, Elementwise) or node.epilogue is not None
    return int(v.dtype.is_int and from_float and rounding)
