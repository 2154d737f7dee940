"""Drift of a run on the device away from float64, node by node along the graph.

verify_nodes.py gives each node exact inputs, so that errors do not spread. Here each node gets what the device has
computed before it, and a float64 evaluation of the same graph goes along, as does one of each node alone on the
device's inputs: this tells the error that a node inherits from the one that it adds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...cl.runtime import find_runtime
from ...errors import DeviceError, InputError
from ...importer import ImportRun, ModelImporter
from ...importer.walk.segments import GraphOutput, Segment
from ...ir.dtype import DType
from ...ir.graph import Graph, Node, Value
from ...ir.precision import HALF_MAX, HALF_TINY, PrecisionPolicy
from ...ir.tolerances import largest_difference, magnitude, tolerance
from ...ops.elementwise import PlaceCast, run_reference
from ...passes.pipeline import place
from ...plan.bundle.bundle import is_bundle
from ...plan.planner import prepare
from ..execute.host_operators import on_host
from ..execute.single_node_executable import SingleNodeExecutable
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions
from ..model.imported_model import ImportedModel
from ..model.onnx_model import OnnxModel

Array = np.ndarray[Any, Any]
OnValue = Callable[["DriftPoint", Array, Array], None]
"""Called with each point, the device's array and float64's."""

_WIDENED = (DType.FLOAT32, DType.FLOAT16)
_COMPARED = (*_WIDENED, DType.INT8, DType.UINT8)
"""Element types whose values drift; bytes are quantized numbers, and compared as numbers."""
_BYTES = (DType.INT8.short, DType.UINT8.short)
NEAR_MAX = HALF_MAX / 4
"""Magnitude from which a value is counted as near the end of half's range."""


@dataclass(frozen=True)
class DriftPoint:
    """One value on the device against float64.

    nodes: names of the model's nodes that the kernel computes. stored: its element type in memory. error: the largest
    absolute one; relative, own, inherited: as shares of the largest magnitude: of the value, what this node adds to it
    on the device's inputs, and the largest of its inputs. snr_db: signal to noise; None without noise. near_overflow,
    subnormal, lost: shares of elements beyond a quarter of half's range, below its normal numbers, and not finite.
    """

    index: int
    node: str
    operators: str
    nodes: tuple[str, ...]
    value: str
    kernel: str
    stored: str
    shape: tuple[int, ...]
    error: float
    relative: float
    own: float
    inherited: float
    snr_db: float | None
    smallest: float
    largest: float
    near_overflow: float
    subnormal: float
    lost: float


@dataclass(frozen=True)
class OutputDrift:
    """An output of the model against float64 of the model as it is in the file."""

    name: str
    error: float
    relative: float
    snr_db: float | None
    allowed: float

    @property
    def passed(self) -> bool:
        """Whether the relative error is within the tolerance."""
        return self.relative <= self.allowed


@dataclass
class Drift:
    """The points of one configuration in order of execution. allowed: the tolerance, as a share of the magnitude."""

    device: str
    precision: str
    memory: str
    allowed: float
    points: list[DriftPoint] = field(default_factory=list)
    outputs: list[OutputDrift] = field(default_factory=list)

    @property
    def start(self) -> DriftPoint | None:
        """The first value that is further off than allowed."""
        return next((p for p in self.points if p.relative > self.allowed), None)

    @property
    def passed(self) -> bool:
        """Whether all outputs are within the tolerance."""
        return all(o.passed for o in self.outputs)

    def sources(self, count: int) -> list[DriftPoint]:
        """The values whose nodes add most error by themselves."""
        return sorted((p for p in self.points if p.own > 0), key=lambda p: -p.own)[:count]


def record_drift(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    precision: str | PrecisionPolicy = "fp16",
    memory: str = "auto",
    allowed: float | None = None,
    on_value: OnValue | None = None,
) -> Drift:
    """Run `model` on `feeds` node by node on the device, and compare each value with float64.

    allowed: the tolerance; None takes the table's for outputs of models. Raises InputError for a bundle.
    """
    if not isinstance(model, bytes) and is_bundle(model):
        raise InputError(f"{os.fspath(model)} is a bundle, which has no ONNX nodes; verify the model's own file")
    compiler = Compiler(find_runtime(device), CompileOptions(precision, memory))
    imported = ImportedModel(model)
    policy = compiler.policy
    limit = tolerance("model", policy.precision) if allowed is None else allowed
    named = policy.word + (f" with {len(policy.fp32)} nodes in fp32" if policy.fp32 else "")
    found = Drift(compiler.rt.info.title, named, memory, limit)
    walk = _Walk(compiler, found, on_value)
    _, exact, got = walk.run(imported.importer, imported.check_feeds(feeds))
    if walk.has_loops or any(value is None for value in got):
        # Errors do not leave a loop here, nor pass through the host: a run of the whole model has them.
        whole = OnnxModel(model, compiler)
        got = [on_host(value) for value in whole.run(whole.check_feeds(feeds))[0]]
    if allowed is None and any(p.stored in _BYTES for p in found.points):
        limit = found.allowed = tolerance("quantised model", policy.precision)
    for port, want, value in zip(imported.outputs, exact, got, strict=True):
        if isinstance(want, np.ndarray) and isinstance(value, np.ndarray) and want.dtype.kind == "f":
            error, share = _errors(value, want)
            found.outputs.append(OutputDrift(port.name, error, share, _snr_db(value, want), limit))
    return found


class _Walk:
    """A run of a model, segment by segment: by float64, and node by node on the device.

    float64 decides which segments run, and gives the values of operators on the host between segments.
    """

    def __init__(self, compiler: Compiler, found: Drift, on_value: OnValue | None) -> None:
        self._compiler, self._found, self._on_value = compiler, found, on_value
        self.has_loops = False  # whose bodies ran step by step
        self._graphs: dict[tuple[Segment, tuple[int, ...]], tuple[Graph, Graph]] = {}

    def run(self, importer: ModelImporter, feeds: Mapping[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """The outputs in their own types, by float64 and by the device, where None stands for one that it has not.

        Bodies of loops get and give exact values in their own types.
        """
        run = ImportRun(importer, feeds, self._run_body)
        exact: dict[str, Any] = {}  # float64 and the device's values by name
        drifted: dict[str, Any] = {}
        known: dict[int, tuple[Any, Any, Any]] = {}  # what later parts get, float64 and the device's, by identity
        while run.segment is not None:
            segment, given = run.segment, [np.asarray(a) for a in run.feeds]
            original, placed = self._graphs_of(segment, run.sizes)
            inputs = [drifted.get(n, a) for n, a in zip(segment.inputs, given, strict=True)]
            inputs = [i if np.shape(i) == a.shape else a for i, a in zip(inputs, given, strict=True)]
            wide = [exact.get(n, a) for n, a in zip(segment.inputs, given, strict=True)]
            wanted = _evaluate(original, wide)
            got = self._on_device(placed, wide, inputs)
            for name, source in segment.exports.items():
                if isinstance(source, GraphOutput):
                    exact[name], drifted[name] = wanted[source.index], got[source.index]
            passed = [a.astype(v.dtype.np, copy=False) for a, v in zip(wanted, original.outputs, strict=True)]
            # A branch passes a value on under another name.
            known.update((id(a), (a, w, g)) for a, w, g in zip(passed, wanted, got, strict=True))
            run.advance(passed)
        ends = []
        for name, a in zip(importer.outputs, run.outputs, strict=True):
            found = known.get(id(a), (a, a, None))[1:]
            ends.append((exact[name], drifted[name]) if name in exact else found)
        return list(run.outputs), [want for want, _ in ends], [got for _, got in ends]

    def _run_body(self, body: ModelImporter, values: Mapping[str, Any]) -> Sequence[Any]:
        self.has_loops = True
        return self.run(body, values)[0]

    def _graphs_of(self, segment: Segment, sizes: tuple[int, ...]) -> tuple[Graph, Graph]:
        """A segment's graph as imported, and as planned for the device."""
        found = self._graphs.get((segment, sizes))
        if found is None:
            original = segment.graph_at(sizes)
            placed, options, info = original.copy(), self._compiler.plan_options(), self._compiler.rt.info
            prepare(placed, options, info)
            place(placed, info, memory=options.held_in(info))
            found = self._graphs[segment, sizes] = original, placed
        return found

    def _on_device(self, graph: Graph, exact: Sequence[Array], inputs: Sequence[Array]) -> list[Array]:
        """The outputs of a planned graph, each node by its kernel on what the device has computed so far."""
        wanted = _Values(graph, exact)
        got = _Values(graph, inputs)
        shares: dict[Value, float] = {}  # relative errors
        for node in graph.nodes:
            want = _compute(node, wanted.inputs(node), wide=True)
            arrays = got.inputs(node)
            outs = self._run_node(node, arrays)
            inherited = max((shares.get(v, 0.0) for v in node.inputs if v is not None), default=0.0)
            for number, (v, w, g) in enumerate(zip(node.outputs, want, outs, strict=False)):
                if v.dtype not in _COMPARED or not g.size:
                    continue
                error, shares[v] = _errors(g, w)
                if node.chosen.kernel is None or isinstance(node.op, PlaceCast):
                    continue
                alone = _compute(node, arrays, wide=True)[number]
                self._add(node, v, w, g, error, shares[v], _errors(g, alone)[1], inherited)
            wanted.add(node, want)
            got.add(node, outs)
        return got.outputs()

    def _run_node(self, node: Node, arrays: Sequence[Array | None]) -> list[Array]:
        kernel = node.chosen.kernel
        if kernel is None or not any(o.type.count for o in node.outputs):
            return _compute(node, arrays, wide=False)
        try:
            return SingleNodeExecutable(self._compiler.rt, node, arrays).prepare(kernel).run()
        except DeviceError as e:
            raise e.add_context(f"while running {node.label} by {kernel.name}") from None

    def _add(
        self, node: Node, v: Value, want: Array, got: Array, error: float, relative: float, own: float, inherited: float
    ) -> None:
        size = np.abs(got)
        point = DriftPoint(
            index=len(self._found.points),
            node=node.label,
            operators=node.kind,
            nodes=tuple(o.name for o in node.origin),
            value=v.name.partition("~")[0],
            kernel=node.chosen.kernel.name if node.chosen.kernel is not None else "",
            stored=str(v.type.storage),
            shape=tuple(map(int, v.shape)),
            error=error,
            relative=relative,
            own=own,
            inherited=inherited,
            snr_db=_snr_db(got, want),
            smallest=float(got.min()),
            largest=float(got.max()),
            near_overflow=float(np.mean((size > NEAR_MAX) & np.isfinite(got))),
            subnormal=float(np.mean((size > 0) & (size < HALF_TINY))),
            lost=float(np.mean(~np.isfinite(got))),
        )
        self._found.points.append(point)
        if self._on_value is not None:
            self._on_value(point, got, want)


class _Values:
    """Arrays of a graph's values, which are dropped after their last reader."""

    def __init__(self, graph: Graph, inputs: Sequence[Array]) -> None:
        self._outputs = graph.outputs
        self._known: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
        self._left = Counter(v for node in graph.nodes for v in node.inputs if v is not None)
        self._left.update(graph.outputs)

    def _array(self, v: Value) -> Array:
        return self._known[v] if v.data is None else v.data

    def inputs(self, node: Node) -> list[Array | None]:
        """The arrays that a node reads."""
        return [None if v is None else self._array(v) for v in node.inputs]

    def add(self, node: Node, arrays: Sequence[Array]) -> None:
        """Keep a node's outputs, and drop what it was the last to read."""
        self._known.update(zip(node.outputs, arrays, strict=False))
        for v in node.inputs:
            if v is not None:
                self._left[v] -= 1
                if not self._left[v]:
                    self._known.pop(v, None)

    def outputs(self) -> list[Array]:
        """The graph's outputs."""
        return [self._array(v) for v in self._outputs]


def _evaluate(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a graph by its references in float64."""
    values = _Values(graph, inputs)
    for node in graph.nodes:
        values.add(node, _compute(node, values.inputs(node), wide=True))
    return values.outputs()


def _compute(node: Node, arrays: Sequence[Array | None], wide: bool) -> list[Array]:
    """A node's outputs by its reference. wide: in float64, where it takes that."""
    if isinstance(node.op, PlaceCast):
        assert arrays[0] is not None
        return [arrays[0]]
    try:
        given = [_wide(a) if wide else _narrow(a, v) for a, v in zip(arrays, node.inputs, strict=True)]
        outs = run_reference(node.op, node.epilogue, given)
    except Exception:  # some references take the element types of their operator alone
        if not wide:
            raise
        given = [_narrow(a, v) for a, v in zip(arrays, node.inputs, strict=True)]
        outs = run_reference(node.op, node.epilogue, given)
    return [
        np.asarray(a).astype(np.float64 if wide and v.dtype in _WIDENED else v.dtype.np, copy=False).reshape(v.shape)
        for a, v in zip(outs, node.outputs, strict=False)
    ]


def _wide(a: Array | None) -> Array | None:
    return a.astype(np.float64) if a is not None and a.dtype in (np.float32, np.float16) else a


def _narrow(a: Array | None, v: Value | None) -> Array | None:
    """`a` in the element type of its value."""
    return a if a is None or v is None or v.dtype not in _WIDENED else a.astype(v.dtype.np, copy=False)


def _errors(got: Array, want: Array) -> tuple[float, float]:
    """(largest absolute error, as a share of the largest magnitude)."""
    g, w = got.astype(np.float64), want.astype(np.float64)
    error = largest_difference(g, w)
    return error, error / (magnitude(w) or 1.0)


def _snr_db(got: Array, want: Array) -> float | None:
    """Signal to noise in decibels; None without noise, minus infinity where a value is lost."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if not np.all(np.isfinite(got[finite])):
        return -np.inf
    noise = float(np.square(got[finite] - want[finite]).sum())
    signal = float(np.square(want[finite]).sum())
    if not noise:
        return None
    return float(10 * np.log10(signal / noise)) if signal else -np.inf
