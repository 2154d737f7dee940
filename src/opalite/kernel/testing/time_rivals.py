"""Times of a module's kernels beside every other kernel that computes the same node."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...cl.runtime import Runtime
from ...errors import OpaliteError
from ...kernels.kernel import Kernel
from ...kernels.node_in_layouts import place_node
from ...layout.kernel_candidates import Option, find_options
from ...ops.elementwise import run_reference
from ...ops.operator import all_ops
from ...run.execute.single_node_executable import NodeRun, SingleNodeExecutable
from ...tune.measure_candidates import time_launches
from ..case import Array, Case
from .check_kernels import cases_of, compare_outputs, kernels_of

_ROUNDS = 7
_MOST_POINTS = 64  # of a kernel's space


@dataclass(frozen=True)
class Rival:
    """A kernel's least device seconds on a case. problem: why there is no time."""

    kernel: str
    own: bool
    layout: str = ""
    params: str = ""
    seconds: float | None = None
    problem: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class Race:
    """The times of all kernels on one case. reference_s: of the NumPy reference. bytes, flops: of the node's cost."""

    case: Case
    rivals: list[Rival]
    reference_s: float
    bytes: float
    flops: float

    @property
    def best_rival(self) -> Rival | None:
        """The fastest kernel that is not the module's own."""
        return min((r for r in self.rivals if not r.own and r.seconds), key=lambda r: r.seconds or 0.0, default=None)


def time_module(module: ModuleType, rt: Runtime, tune: bool = False) -> Iterator[Race]:
    """The times of each of the module's cases. tune: at the best point of each kernel's space, not the untuned one."""
    kernels = kernels_of(module)
    own, ops = {k.name for k in kernels}, tuple(all_ops()[k.op] for k in kernels)
    for case in cases_of(module):
        if isinstance(case.op, ops):
            yield _time(case, own, rt, tune)


def _time(case: Case, own: set[str], rt: Runtime, tune: bool) -> Race:
    arrays = case.arrays()
    node = case.node(arrays)
    started = time.perf_counter()
    wanted = run_reference(node.op, node.epilogue, arrays)
    reference_s = time.perf_counter() - started
    options, refusals = find_options(node, rt.info, None)
    ready: list[tuple[Kernel, Rival, NodeRun]] = []
    rivals = [Rival(name, name in own, problem=why) for name, why in refusals.items()]
    for option in options:
        kernel = option.kernel
        if kernel is None:
            continue
        layout = str(option.binding.outputs[0])
        try:
            params, run = _prepare(node, option, kernel, arrays, rt, tune)
            _, problem = compare_outputs(node, run.node.outputs, run.run(), wanted)
        except OpaliteError as e:
            rivals.append(Rival(kernel.name, kernel.name in own, layout, problem=str(e), wrong=True))
            continue
        text = ", ".join(f"{k}={v}" for k, v in params.items())
        found = Rival(kernel.name, kernel.name in own, layout, text, problem=problem, wrong=bool(problem))
        if problem:
            rivals.append(found)
        else:
            ready.append((kernel, found, run))
    seconds = _measure([run for _, _, run in ready], rt)
    timed = [Rival(r.kernel, r.own, r.layout, r.params, s) for (_, r, _), s in zip(ready, seconds, strict=True)]
    cost = node.cost()
    return Race(case, [*timed, *rivals], reference_s, cost.bytes, cost.flops)


def _prepare(
    node: Any, option: Option, kernel: Kernel, arrays: Sequence[Array | None], rt: Runtime, tune: bool
) -> tuple[Any, NodeRun]:
    """The kernel's untuned parameters, or the fastest ones, and the node ready to run with them."""
    placed = place_node(node, option.binding)
    given = [None if layout is None else a for a, layout in zip(arrays, option.binding.inputs, strict=True)]
    one = SingleNodeExecutable(rt, placed, given)
    p = kernel.problem(placed, rt.info)
    usual = kernel.defaults(p)
    if not tune:
        return usual, one.prepare(kernel, usual)
    best_s, best = float("inf"), usual
    points = list(kernel.points(p))
    for point in [usual, *points[:: -(-len(points) // _MOST_POINTS)]]:
        run = one.prepare(kernel, point)
        run.run()
        seconds = time_launches(run.launches, rt.profiling_queue, rt.info, best_s=best_s)
        if seconds < best_s:
            best_s, best = seconds, point
    return best, one.prepare(kernel, best)


def _measure(runs: Sequence[NodeRun], rt: Runtime) -> list[float]:
    """Least device seconds of each, all in turns, so that a slow phase of the machine meets all of them."""
    best = [float("inf")] * len(runs)
    for _ in range(_ROUNDS):
        for i, run in enumerate(runs):
            best[i] = min(best[i], time_launches(run.launches, rt.profiling_queue, rt.info))
    return best
