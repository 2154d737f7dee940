"""The search for a mixed-precision policy: the fewest nodes in float32 with which half storage is accurate enough.

Nodes whose values leave half's range, as the references show, come first. If the outputs still differ too much from
those in float32, the nodes are divided into groups of neighbours. Each group is run in half by itself, all others in
float32. Groups then move to float32 in the order of the error that they cause. In the end parts of them are tried in
half again. Neighbours stay together because every change of precision costs a cast.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ...cl.runtime import find_runtime
from ...errors import InputError
from ...importer import ImportRun, ModelImporter
from ...ir.dtype import DType
from ...ir.graph import Graph, Node, Value
from ...ir.precision import HALF_MAX, HALF_TINY, Precision, PrecisionPolicy
from ...ir.tolerances import SAFETY, magnitude, relative_difference, tolerance
from ...ops.elementwise import run_reference
from ...passes.pipeline import optimise
from ...plan.bundle.bundle import is_bundle
from ..execute.host_operators import on_host
from ..model.background.graph_compiler import Compiler
from ..model.compile_options import CompileOptions
from ..model.imported_model import ImportedModel
from ..model.run_request import RunRequest
from ..model.segment_runs import SegmentRuns

Array = np.ndarray[Any, Any]
Names = tuple[str, ...]

HEADROOM = 4.0
"""Factor by which values must stay inside half's range: other inputs have larger ones."""
GROUPS = 16
SMALLEST = 4  # nodes of a group that is divided again
MOST_TRIALS = 48


@dataclass(frozen=True)
class MixedPrecision:
    """A policy and its accuracy: largest differences of the outputs from float32's, as shares of their magnitude."""

    policy: PrecisionPolicy
    difference: float
    plain: float  # without the policy
    allowed: float
    nodes: int  # of the model, with float32 values
    trials: int

    @property
    def good(self) -> bool:
        """Whether the outputs are within the tolerance."""
        return self.difference <= self.allowed


def find_policy(
    model: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    *,
    device: str | None = None,
    memory: str = "auto",
    precision: Precision = Precision.FP16,
    allowed: float | None = None,
    on_step: Callable[[str], None] | None = None,
) -> MixedPrecision:
    """The policy with which the outputs on `feeds` differ from float32's by at most `allowed` (None: the table's).

    on_step: called with a description of every step. InputError for a bundle, whose nodes are not known, and for
    precision fp32.
    """
    if not isinstance(model, bytes) and is_bundle(model):
        raise InputError(f"{os.fspath(model)} is a bundle, whose nodes are no longer known; give the .onnx file")
    if precision is Precision.FP32:
        raise InputError("a policy says which nodes keep fp32 in fp16 or fp16_fast; choose one of these")
    limit = tolerance("model", precision) if allowed is None else allowed
    compiler = Compiler(find_runtime(device), CompileOptions(memory=memory))
    return find_policy_on(compiler, ImportedModel(model), feeds, PrecisionPolicy(precision), limit, on_step)


def find_policy_on(
    compiler: Compiler,
    imported: ImportedModel,
    feeds: Mapping[str, Any],
    start: PrecisionPolicy,
    limit: float,
    on_step: Callable[[str], None] | None = None,
) -> MixedPrecision:
    """`find_policy` with a given compiler and model. Nodes that `start` has in float32 stay there.

    on_step: called with a description of every step; an exception that it raises ends the search.
    """
    on_step = on_step or (lambda text: None)
    checked = imported.check_feeds(feeds)
    names, beyond = _ranges(imported, checked, on_step)
    trials = _ModelTrials(imported, checked, compiler, start.precision, names, on_step)
    plain = trials.difference({})
    kept = {**beyond, **start.fp32}
    found = trials.difference(kept) if kept else plain
    if found > SAFETY * limit:
        kept = search(trials, kept, SAFETY * limit)
        found = trials.difference(kept)
    return MixedPrecision(PrecisionPolicy(start.precision, kept), found, plain, limit, len(names), trials.count)


def ranked_policies(
    compiler: Compiler,
    imported: ImportedModel,
    feeds: Mapping[str, Any],
    precision: Precision,
    groups: int,
    on_step: Callable[[str], None] | None = None,
) -> list[tuple[PrecisionPolicy, float]]:
    """Policies from all nodes in half to all in float32, and the error of each.

    Nodes beyond half's range come first, then one group of neighbours after the other, the most harmful first.
    """
    on_step = on_step or (lambda text: None)
    checked = imported.check_feeds(feeds)
    names, beyond = _ranges(imported, checked, on_step)
    trials = _ModelTrials(imported, checked, compiler, precision, names, on_step)
    found = [(PrecisionPolicy(precision), trials.difference({}))]
    kept = dict(beyond)
    if kept:
        found.append((PrecisionPolicy(precision, dict(kept)), trials.difference(kept)))
    for alone, group in _by_harm(trials, [n for n in names if n not in kept], groups)[:-1]:
        kept |= {n: f"these {len(group)} nodes in half change the outputs by {alone:.2g}" for n in group}
        found.append((PrecisionPolicy(precision, dict(kept)), trials.difference(kept)))
    return [*found, (PrecisionPolicy(Precision.FP32), 0.0)]


def _by_harm(trials: Trials, free: Sequence[str], groups: int) -> list[tuple[float, Names]]:
    """Groups of neighbours among `free` with the error of each alone in half, the largest first."""
    harm = [(trials.difference({n: "" for n in trials.names if n not in g}), g) for g in _split(free, groups)]
    return sorted(harm, key=lambda pair: -pair[0])


class Trials(Protocol):
    """The interface of a search: the error of the outputs with some of the nodes `names` in float32."""

    names: Names
    count: int

    def difference(self, kept: Mapping[str, str]) -> float:
        """Largest relative difference of an output with the nodes `kept` in float32."""


class _ModelTrials:
    """Runs the model with policies and compares with its outputs in float32; each policy once."""

    def __init__(
        self,
        imported: ImportedModel,
        feeds: Mapping[str, Any],
        compiler: Compiler,
        precision: Precision,
        names: Names,
        on_step: Callable[[str], None],
    ) -> None:
        self.names = names
        self.count = 0
        self._imported, self._feeds, self._compiler = imported, feeds, compiler
        self._precision = precision
        self._on_step = on_step
        self._want = self._run(PrecisionPolicy(Precision.FP32))
        self._known: dict[frozenset[str], float] = {}

    def difference(self, kept: Mapping[str, str]) -> float:
        """Largest relative difference of an output with the nodes `kept` in float32; infinite where half overflows."""
        key = frozenset(kept)
        if key not in self._known:
            self.count += 1
            got = self._run(PrecisionPolicy(self._precision, kept))
            pairs = zip(got, self._want, strict=True)
            self._known[key] = max((relative_difference(g, w) for g, w in pairs), default=0.0)
            half = len(self.names) - len(kept)
            self._on_step(f"{half} of {len(self.names)} nodes in half: outputs differ by {self._known[key]:.2g}")
        return self._known[key]

    def _run(self, policy: PrecisionPolicy) -> list[Array]:
        """The model's tensors; NaN for outputs that half cannot represent."""
        model = SegmentRuns(self._imported.fresh(), self._compiler.by(policy))
        outputs, trace = model.run(self._feeds, RunRequest(is_trial=True))
        found = [a for a in map(on_host, outputs) if isinstance(a, np.ndarray) and a.dtype.kind != "O"]
        return [np.full_like(a, np.nan) if a.dtype.kind == "f" else a for a in found] if trace.overflowed else found


def search(trials: Trials, start: Mapping[str, str], target: float) -> dict[str, str]:
    """`start` and the groups that must be added for a difference of at most `target`."""
    kept = dict(start)
    added: list[tuple[float, Names]] = []
    for alone, group in _by_harm(trials, [n for n in trials.names if n not in start], GROUPS):
        if trials.difference(kept) <= target:
            break
        kept |= {n: f"these {len(group)} nodes in half change the outputs by {alone:.2g}" for n in group}
        added.append((alone, group))
    for _, group in reversed(added):
        _release(trials, kept, group, target)
    return kept


def _release(trials: Trials, kept: dict[str, str], group: Names, target: float) -> None:
    """Move parts of `group` back to half if the difference stays at most `target`."""
    if len(group) < SMALLEST:
        return
    for part in _split(group, 2):
        if trials.count >= MOST_TRIALS:
            return
        fewer = {n: why for n, why in kept.items() if n not in part}
        if trials.difference(fewer) <= target:
            for n in part:
                del kept[n]
        else:
            _release(trials, kept, part, target)


def _split(names: Sequence[str], parts: int) -> list[Names]:
    """`names` in up to `parts` sequences of about equal length."""
    return [tuple(map(str, part)) for part in np.array_split(np.array(names, object), parts) if len(part)]


def _ranges(
    imported: ImportedModel, feeds: Mapping[str, Any], on_step: Callable[[str], None]
) -> tuple[Names, dict[str, str]]:
    """(names of the nodes with float32 values, in order; why some must keep float32), by the references on `feeds`."""
    names: dict[str, None] = {}
    beyond: dict[str, str] = {}
    optimised: dict[Any, Graph] = {}

    def run_on_host(importer: ModelImporter, values: Mapping[str, Any]) -> Sequence[Any]:
        run = ImportRun(importer, values, run_on_host)
        while run.segment is not None:
            key = run.segment, run.sizes
            if key not in optimised:
                graph = optimised[key] = run.segment.graph_at(run.sizes)
                optimise(graph)
            graph = optimised[key]
            known: dict[Value, Array] = dict(zip(graph.inputs, map(np.asarray, run.feeds), strict=True))
            for node, arrays in _evaluate(graph, known):
                on_step(f"ranges: {node.name}")
                if arrays:
                    names.setdefault(node.name)
                    why = _out_of_range(arrays)
                    if why:
                        beyond.setdefault(node.name, why)
            run.advance([known[v] if v.data is None else v.data for v in graph.outputs])
        return run.outputs

    run_on_host(imported.importer, feeds)
    return tuple(names), beyond


def _evaluate(graph: Graph, known: dict[Value, Array]) -> Iterator[tuple[Node, list[Array]]]:
    """Every node with the float32 arrays that it reads and computes. The results are added to `known`."""
    for node in graph.nodes:
        ins = [None if v is None else known[v] if v.data is None else v.data for v in node.inputs]
        outs = run_reference(node.op, node.epilogue, ins)
        for v, a in zip(node.outputs, outs, strict=False):
            known[v] = np.asarray(a).astype(v.dtype.np, copy=False).reshape(v.shape)
        values = [*node.inputs, *node.outputs]
        floats = [v for v in values if v is not None and v.data is None and v.dtype is DType.FLOAT32 and v in known]
        yield node, [known[v] for v in floats]


def _out_of_range(arrays: Sequence[Array]) -> str:
    sizes = [magnitude(a) for a in arrays]
    largest = max(sizes)
    if largest > HALF_MAX / HEADROOM:
        return f"its values reach {largest:.3g}"
    tiny = [s for s in sizes if 0.0 < s < HALF_TINY]
    return f"its values end at {min(tiny):.3g}" if tiny else ""
