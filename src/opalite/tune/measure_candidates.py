"""Measures trials of one node on a device: equal inputs for all, outputs compared before a time counts."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..cl.queue.event_times import read_times, wait_for
from ..cl.queue.prepared_launch import PreparedLaunch
from ..cl.runtime import Runtime
from ..errors import DeviceError
from ..ir.device.device_family import FEW_EVENTS, TIMER_OUTLIERS
from ..ir.device.device_info import DeviceInfo
from ..ir.dtype import DType
from ..ir.graph import Node
from ..ir.tolerances import column, tolerance
from ..kernels.kernel import Binding
from ..kernels.node_in_layouts import place_node
from ..kernels.node_launches import barrier_refusal
from ..ops.elementwise import PlaceCast
from ..ops.quantized_matmul import may_round
from ..run.execute.single_node_executable import NodeRun, SingleNodeExecutable
from .tuning_levels import Trial

Array = np.ndarray[Any, Any]

ROUNDED = 1e-3  # share of integers that may differ by one if they were rounded from floats
_READY = 2  # trials kept prepared, each with its outputs, for alternating measurement


class WrongResultError(DeviceError):
    """A trial whose output differs from the untuned kernel's."""


class NodeBench:
    """Measures a Trial: least device seconds, or another result of `Measure` with the cause in `reasons`.

    The first trial is the untuned one; its outputs are the reference. Inputs are seeded random, constants the node's
    own.
    """

    def __init__(self, rt: Runtime, node: Node) -> None:
        self.rt = rt
        self.node = node
        self.reasons: dict[Trial, str] = {}
        self._failed: dict[Trial, float | None] = {}
        self._arrays: list[Array | None] | None = None
        self._placed: dict[Binding, SingleNodeExecutable] = {}
        self._ready: OrderedDict[Trial, NodeRun] = OrderedDict()
        self._checked: set[Trial] = set()
        self._expected: list[Array] | None = None
        self._best_s = float("inf")

    def __call__(self, trial: Trial) -> float | None:
        """Seconds of `trial`; infinite if its output is wrong, None if it fails to build or to run."""
        if trial in self._failed:
            return self._failed[trial]
        try:
            run = self._prepared(trial)
            if trial not in self._checked:
                self._check(trial, run)
            seconds = time_launches(run.launches, self.rt.profiling_queue, self.rt.info, best_s=self._best_s)
        except DeviceError as e:
            self.reasons[trial] = str(e)
            self._ready.pop(trial, None)
            self._failed[trial] = math.inf if isinstance(e, WrongResultError) else None
            return self._failed[trial]
        if FEW_EVENTS in self.rt.info.quirks:  # Mali frees the memory of a kernel's events with the kernel
            self._ready.pop(trial, None)
        self._best_s = min(self._best_s, seconds)
        return seconds

    def group_limit(self, trial: Trial) -> int | None:
        """The most work-items per group of `trial`'s launch without a work-group; None if it fails to build.

        The prepared program stays cached, so that measuring the trial uploads no weight again.
        """
        try:
            return self._prepared(trial).group_limit()
        except DeviceError:
            return None  # measuring the trial reports the cause

    def _prepared(self, trial: Trial) -> NodeRun:
        run = self._ready.get(trial)
        if run is None:
            one = self._one_node(trial.binding)
            if why := barrier_refusal(trial.kernel, trial.kernel.problem(one.node, self.rt.info), trial.settings):
                raise DeviceError(why)
            run = self._ready[trial] = one.prepare(trial.kernel, trial.settings, trial.group)
            if len(self._ready) > _READY:
                self._ready.popitem(last=False)
        self._ready.move_to_end(trial)
        return run

    def _one_node(self, binding: Binding) -> SingleNodeExecutable:
        if binding not in self._placed:
            if self._arrays is None:
                rng = np.random.default_rng(0)
                self._arrays = [
                    None if v is None else v.data if v.data is not None else random_array(v.dtype, v.shape, rng)
                    for v in self.node.inputs
                ]
            node = place_node(self.node, binding)
            # Constants that a kernel packs are uploaded on demand.
            arrays = [
                None if layout is None else array for array, layout in zip(self._arrays, binding.inputs, strict=True)
            ]
            self._placed[binding] = SingleNodeExecutable(self.rt, node, arrays)
        return self._placed[binding]

    def _check(self, trial: Trial, run: NodeRun) -> None:
        """Runs a just prepared trial once, with outputs prefilled by a pattern.

        WrongResultError unless the outputs equal the first trial's and nothing else was written.
        """
        for event in [launch.enqueue(self.rt.profiling_queue) for launch in run.launches]:
            wait_for(event, self.rt.info.title)
        try:
            found = run.results()
        except DeviceError as e:  # write past an output's end, or to lanes past C
            raise WrongResultError(str(e)) from e
        if self._expected is None:
            self._expected = found
        rounded = any(v is not None and v.dtype.is_float for v in self.node.inputs)
        for v, got, want in zip(self.node.outputs, found, self._expected, strict=True):
            stored = v.type.storage if isinstance(self.node.op, PlaceCast) else column(self.node.precision, v.dtype)
            what = "rounded node" if may_round(self.node.op) else "tuning"
            why = difference(got, want, tolerance(what, stored), rounded)
            if why:
                raise WrongResultError(f"{trial} gives another output {v.name} than the untuned kernel: {why}")
        self._checked.add(trial)


def random_array(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Floats in [-1, 1), small non-negative integers, fair booleans."""
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_float:
        return (2 * rng.random(shape, np.float32) - 1).astype(dtype.np)
    return rng.integers(0, 8, shape).astype(dtype.np)


def difference(got: Array, want: Array, tolerance: float, rounded: bool = True) -> str | None:
    """A description of where `got` differs from `want` by more than rounding explains; None if nowhere.

    tolerance: share of the largest magnitude, for floats. rounded: integers were rounded from floats, so that a few may
    differ by one.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"expected {want.dtype} {want.shape}, got {got.dtype} {got.shape}"
    if not want.size:
        return None
    if want.dtype.kind in "iub":
        wrong = got != want
        allowed = ROUNDED * want.size if rounded else 0
        if wrong.sum() > allowed or (wrong.any() and np.abs(got.astype(float) - want.astype(float)).max() > 1):
            return f"{int(wrong.sum())} of {want.size} integers differ"
        return None
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "infinities or NaNs are elsewhere"
    if not finite.any():
        return None
    worst = float(np.abs(a[finite] - b[finite]).max())
    scale = float(np.abs(b[finite]).max()) or 1.0
    return (
        f"the largest difference is {worst / scale:.2g} of the largest magnitude" if worst > tolerance * scale else None
    )


SLICE_S = 0.012  # total duration of a trial, about
FEWEST, MOST = 3, 40  # runs of a trial
HOPELESS = 2.0  # a trial whose first run takes so many times the best seconds is not repeated
EVENTS = 8  # on Mali, the most outstanding events


def time_launches(
    launches: Sequence[PreparedLaunch],
    queue: Any,
    device: DeviceInfo,
    *,
    best_s: float = float("inf"),
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Least device seconds of one run of all `launches`, which have run once; `best_s`: the time to beat.

    A run includes the launch overhead between launches. If a driver's events have no times, the host clock is used.
    """
    if not launches:
        return 0.0
    least, once = _timed_runs(launches, queue, device, 1, clock)
    if least > HOPELESS * best_s:
        return least
    runs = min(MOST, max(FEWEST, int(SLICE_S / max(once, 1e-7))))
    again, _ = _timed_runs(launches, queue, device, runs, clock)
    return min(least, again)


def _timed_runs(
    launches: Sequence[PreparedLaunch], queue: Any, device: DeviceInfo, runs: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """(least device seconds of a run, mean host seconds of a run)."""
    started = clock()
    events = _enqueue([*launches] * runs, queue, device)
    wait_for(events[-1], device.title)
    host_s = (clock() - started) / runs
    count = len(launches)
    seconds = [read_times(e, device.title).seconds for e in events]
    sums = [sum(seconds[i : i + count]) for i in range(0, len(seconds), count)]
    least = min(sums)
    return (least + (count - 1) * device.launch_s if least > 0 else host_s), host_s


def _enqueue(launches: Sequence[PreparedLaunch], queue: Any, device: DeviceInfo) -> list[Any]:
    """Events of the launches. Mali leaks memory with many outstanding events; Adreno 3xx times better one by one."""
    events: list[Any] = []
    for i, launch in enumerate(launches):
        events.append(launch.enqueue(queue))
        if FEW_EVENTS in device.quirks and i % EVENTS == EVENTS - 1:
            wait_for(events[i - EVENTS + 1], device.title)
        if TIMER_OUTLIERS in device.quirks:
            wait_for(events[i], device.title)
    return events
