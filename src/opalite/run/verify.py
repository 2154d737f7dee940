"""Verification: every node of a model on the device beside the operators' NumPy references.

Each node is run by itself, on the inputs that the reference gives it, so that a fault shows where it is and nowhere
else. What rewriting changed is found by comparing the graph before with the graph after, by references alone; what
planning and execution changed, by a run of the whole model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..cl.runtime import find_runtime
from ..errors import DeviceError, InputError
from ..importer import ModelImporter
from ..importer.evaluate import evaluate_graph
from ..importer.segments import Segment
from ..ir.dtype import DType
from ..ir.graph import Graph, Node, Value
from ..ops.reference import run_reference
from ..passes.pipeline import optimise, place
from ..plan.bundle import is_bundle
from ..tune.workspace import Workspace
from .compiler import Compiler
from .onnx_source import OnnxSource
from .options import CompileOptions
from .session import InferenceSession

Array = np.ndarray[Any, Any]

RELATIVE = {DType.FLOAT64: 1e-9, DType.FLOAT32: 1e-4, DType.FLOAT16: 1e-2, DType.BFLOAT16: 5e-2}
"""Difference let pass in one node, relative to the output's largest magnitude, by storage; integers are exact."""
WHOLE_MODEL = 10.0
"""How much more is let pass in the model's outputs, to which every node adds its part."""


@dataclass(frozen=True)
class Check:
    """One comparison. `difference` is the largest absolute one, infinite if only one side is finite somewhere."""

    what: str
    kernel: str
    output: str
    difference: float
    allowed: float
    problem: str = ""

    @property
    def good(self) -> bool:
        """Whether the difference is let pass."""
        return not self.problem and self.difference <= self.allowed


@dataclass
class Verification:
    """Every comparison: nodes in execution order, then what rewriting changed, then the model's outputs."""

    device: str
    nodes: list[Check] = field(default_factory=list)
    rewrites: list[Check] = field(default_factory=list)
    outputs: list[Check] = field(default_factory=list)

    @property
    def first_bad(self) -> Check | None:
        """The first comparison that failed, nodes first: their faults explain the others."""
        return next((c for c in (*self.nodes, *self.rewrites, *self.outputs) if not c.good), None)


@dataclass(frozen=True)
class Tolerance:
    """What is let pass: `absolute` plus `relative` times the largest magnitude; None takes RELATIVE."""

    absolute: float = 0.0
    relative: float | None = None

    def allowed(self, want: Array, storage: DType, slack: float = 1.0) -> float:
        """The largest difference that is let pass where `want` is expected."""
        relative = RELATIVE.get(storage, 0.0) if self.relative is None else self.relative
        return self.absolute + slack * relative * _magnitude(want)


def verify_model(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    precision: str = "auto",
    memory: str = "auto",
    tolerance: Tolerance | None = None,
) -> Verification:
    """Compare every node, and the outputs, of an ONNX `model` on `feeds` with the references.

    InputError for a bundle, whose nodes are no longer known.
    """
    if not isinstance(model, bytes) and is_bundle(model):
        raise InputError(f"{os.fspath(model)} is a bundle, whose nodes are no longer known; verify the .onnx file")
    compiler = Compiler(find_runtime(device), CompileOptions(precision, memory))
    verifier = _Verifier(compiler, tolerance or Tolerance())
    source = OnnxSource(model)
    wanted = verifier.walk(source.importer, source.check_feeds(feeds))
    with InferenceSession(model, device=device, precision=precision, memory=memory) as session:
        got = session.run(None, feeds)
    storage = compiler.storage()
    for arg, w, g in zip(source.outputs, wanted, got, strict=True):
        if isinstance(w, np.ndarray) and isinstance(g, np.ndarray) and w.dtype.kind != "O":
            verifier.found.outputs.append(verifier.check(f"output '{arg.name}'", "", g, w, storage, WHOLE_MODEL))
    return verifier.found


class _Verifier:
    def __init__(self, compiler: Compiler, tolerance: Tolerance) -> None:
        self.rt = compiler.rt
        self.found = Verification(compiler.rt.info.name)
        self._compiler = compiler
        self._tolerance = tolerance
        self._placed: dict[Segment, Graph] = {}

    def walk(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs by references; also the Runner of loop bodies. A segment is verified when it is first met."""
        run = importer.begin(feeds, self.walk)
        while run.segment is not None:
            segment = run.segment
            inputs = [np.asarray(a) for a in run.feeds]
            graph = self._placed.get(segment)
            if graph is None:
                outputs = self._first(segment, inputs)
            else:
                outputs = self._outputs(graph, inputs, compare=False)
            run.advance(outputs)
        return run.outputs

    def _first(self, segment: Segment, inputs: Sequence[Array]) -> list[Array]:
        """Verify a segment; its outputs as the imported graph has them, which is consumed."""
        graph = segment.graph
        names = [v.name for v in graph.outputs]
        before = evaluate_graph(graph, inputs)
        optimise(graph)
        place(graph, self.rt.info, precision=self._compiler.storage(), memory=self._compiler.memory())
        self._placed[segment] = graph
        after = self._outputs(graph, inputs, compare=True)
        for name, want, got in zip(names, before, after, strict=True):
            if want.dtype.kind != "O":
                self.found.rewrites.append(self.check(f"rewriting, seen at '{name}'", "", got, want, None))
        return before

    def _outputs(self, graph: Graph, inputs: Sequence[Array], compare: bool) -> list[Array]:
        """Outputs of a placed graph by references; with `compare` every node is run on the device beside them."""
        known: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))

        def array(v: Value) -> Array:
            return known[v] if v.data is None else v.data

        for node in graph.nodes:
            arrays = [None if v is None else array(v) for v in node.inputs]
            outs = _reference(node, arrays)
            if compare and node.choice.kernel is not None and any(o.type.count for o in node.outputs):
                self._compare(node, arrays, outs)
            known.update(zip(node.outputs, outs, strict=False))
        return [array(v) for v in graph.outputs]

    def _compare(self, node: Node, arrays: Sequence[Array | None], outs: Sequence[Array]) -> None:
        stored = [
            None if a is None or v is None else _as_stored(a, v) for a, v in zip(arrays, node.inputs, strict=True)
        ]
        wanted = outs if all(s is a for s, a in zip(stored, arrays, strict=True)) else _reference(node, stored)
        kernel = node.choice.kernel
        try:
            got = self._run(node, stored)
        except DeviceError as e:
            self.found.nodes.append(Check(node.label, kernel.name, str(node.y.type), np.inf, 0.0, str(e)))
            return
        for v, w, g in zip(node.outputs, wanted, got, strict=True):
            check = self.check(node.label, kernel.name, g, w, v.type.storage, rounds=_rounds(node, v))
            self.found.nodes.append(check)

    def _run(self, node: Node, arrays: Sequence[Array | None]) -> list[Array]:
        space = Workspace(self.rt, node, arrays)
        for launch in space.prepare(node.choice.kernel):
            launch.enqueue(self.rt.queue)
        return space.results()

    def check(
        self,
        what: str,
        kernel: str,
        got: Array,
        want: Array,
        storage: DType | None,
        slack: float = 1.0,
        rounds: int = 0,
    ) -> Check:
        """Compare; integers may differ by `rounds`. `storage` is that of float32 values, None for their own."""
        dtype = DType.of(want)
        if storage is not None and (dtype is DType.FLOAT32 or dtype is storage):
            dtype = storage
        text = f"{DType.of(want).short}{list(want.shape)}"
        if got.shape != want.shape or got.dtype != want.dtype:
            problem = f"got {got.dtype.name}{list(got.shape)}"
            return Check(what, kernel, text, np.inf, 0.0, problem)
        allowed = self._tolerance.allowed(want, dtype, slack) + rounds
        return Check(what, kernel, text, largest_difference(got, want), allowed)


def _reference(node: Node, arrays: Sequence[Array | None]) -> list[Array]:
    if node.op.name == "PlaceCast":
        assert arrays[0] is not None
        return [arrays[0]]
    outs = run_reference(node.op, node.attrs, arrays)
    return [np.asarray(a).astype(v.dtype.np, copy=False) for a, v in zip(outs, node.outputs, strict=False)]


def _as_stored(array: Array, v: Value) -> Array:
    """`array` rounded to what the value's place can hold."""
    return array if v.type.storage is v.dtype else array.astype(v.type.storage.np).astype(v.dtype.np)


def _rounds(node: Node, v: Value) -> int:
    """1 where a float becomes an integer: one that falls on the other side of a rounding boundary is no fault."""
    from_float = any(i is not None and i.dtype.is_float for i in node.inputs)
    return int(v.dtype.is_int and from_float and node.op.name == "Elementwise")


def largest_difference(got: Array, want: Array) -> float:
    """The largest absolute difference; infinite if a number is NaN or infinite on one side alone."""
    if got.size == 0:
        return 0.0
    g, w = _wide(got), _wide(want)
    if want.dtype.kind in "biu":
        return max(1.0, float(np.abs(g - w).max())) if np.any(got != want) else 0.0
    finite = np.isfinite(w)
    if not np.array_equal(finite, np.isfinite(g)) or not np.array_equal(g[~finite], w[~finite], equal_nan=True):
        return float("inf")
    return float(np.abs(np.where(finite, g - w, 0)).max())


def _magnitude(array: Array) -> float:
    if array.size == 0 or array.dtype.kind in "biu":
        return 0.0
    return float(np.abs(np.nan_to_num(_wide(array), posinf=0.0, neginf=0.0)).max())


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
