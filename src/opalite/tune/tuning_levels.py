"""Tuning levels: nested sets of trials, each with a time budget.

FAST tries every kernel that accepts the node in its layouts: the untuned parameters with the work-groups of TensorFlow
Lite's GPU delegate (workgroup_candidates.py), and the parameters next to them. NORMAL adds parameters that differ from
the untuned ones in one value, and a few work-groups that divide the grid. WIDE adds a sample of all parameters and
work-groups, and other layouts. EXHAUSTIVE tries everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..errors import InputError
from ..ir.device.default_workgroups import default_group
from ..ir.device.device_info import DeviceInfo
from ..ir.graph import Node
from ..ir.place import Layout
from ..kernels.kernel import Binding, Kernel
from ..kernels.launch import Grid
from ..kernels.launch_workgroups import launch_with_open_group
from ..kernels.node_launches import launches_of
from . import workgroup_candidates as wg

SEED = 20240229


class Level(IntEnum):
    """The extent of a search."""

    NONE = 0
    FAST = 1
    NORMAL = 2
    WIDE = 3
    EXHAUSTIVE = 4

    @classmethod
    def parse(cls, name: str) -> Level:
        """The level called `name`; InputError lists the names."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise InputError(
                f"tuning level {name!r} is not known; choose {', '.join(v.name.lower() for v in cls)}"
            ) from None

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Budget:
    """Seconds for one distinct node in one set of layouts, and for a model."""

    node_s: float
    model_s: float


BUDGETS = {
    Level.NONE: Budget(0.0, 0.0),
    Level.FAST: Budget(2.0, 60.0),
    Level.NORMAL: Budget(6.0, 240.0),
    Level.WIDE: Budget(30.0, 1800.0),
    Level.EXHAUSTIVE: Budget(300.0, 36000.0),
}
WIDE_POINTS = 64
WIDE_GROUPS = 24
NORMAL_GROUPS = 8


@dataclass(frozen=True)
class Trial:
    """One measurement: a kernel with a binding, parameters, and a work-group for the launch that leaves it open."""

    kernel: Kernel
    binding: Binding
    params: tuple[tuple[str, Any], ...]
    group: Grid | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters as a mapping."""
        return dict(self.params)

    def __str__(self) -> str:
        params = ",".join(f"{k}={v}" for k, v in self.params)
        return f"{self.kernel.name}[{params}]" + (f"@{'x'.join(map(str, self.group))}" if self.group else "")


@dataclass(frozen=True, eq=False)
class KernelCandidate:
    """One way to compute a node, with the node in its layouts."""

    kernel: Kernel
    binding: Binding
    node: Node


def visible_layouts(node: Node, binding: Binding) -> tuple[Layout | None, ...]:
    """The layouts of `binding` that other nodes see; constants are converted for free."""
    pairs = zip(node.inputs, binding.inputs, strict=True)
    return (*(None if v is None or v.is_const else layout for v, layout in pairs), *binding.outputs)


Point = Mapping[str, Any]
_Points = Callable[[KernelCandidate, DeviceInfo], Sequence[Point]]
_Groups = Callable[[Grid, wg.Limits, DeviceInfo], Sequence[wg.Group]]

GroupLimit = Callable[[Trial], int | None]
"""Most work-items in a group of a trial's kernel (CL_KERNEL_WORK_GROUP_SIZE); None leaves it to the device's limit."""


def make_trials(
    candidates: Sequence[KernelCandidate],
    device: DeviceInfo,
    level: Level,
    group_limit: GroupLimit = lambda trial: None,
) -> Iterator[Trial]:
    """Trials of `level` in measuring order, without duplicates. The first is the untuned first candidate.

    Those of lower levels come first. Within a level they are shuffled, so that an exhausted budget leaves an even
    sample. group_limit: called once per set of parameters whose work-groups are searched.
    """
    limits: dict[Trial, wg.Limits] = {}

    def limits_of(trial: Trial) -> wg.Limits:
        if trial not in limits:
            limits[trial] = wg.Limits.of(device, group_limit(trial))
        return limits[trial]

    seen: set[Trial] = set()
    rng = random.Random(SEED)
    for c in candidates:
        yield from _fresh(_trial(c, c.kernel.defaults(c.kernel.problem(c.node, device)), None), seen)
    for stage in range(1, level + 1):
        for points_of, groups_of in _PASSES[Level(stage)]:
            points = [(c, p) for c in candidates for p in points_of(c, device)]
            rng.shuffle(points)
            for c, params in points:
                for group in _own(c, params, device, groups_of, limits_of):
                    yield from _fresh(_trial(c, params, group), seen)


def _trial(c: KernelCandidate, params: Point, group: Grid | None) -> Trial:
    return Trial(c.kernel, c.binding, tuple(sorted(params.items())), group)


def _fresh(trial: Trial, seen: set[Trial]) -> Iterator[Trial]:
    if trial not in seen:
        seen.add(trial)
        yield trial


def _own(
    c: KernelCandidate,
    params: Point,
    device: DeviceInfo,
    groups_of: _Groups | None,
    limits_of: Callable[[Trial], wg.Limits],
) -> Iterator[Grid | None]:
    """Work-groups for the launch without one of its own; [None], the default, if there is no choice."""
    if groups_of is None:
        yield None
        return
    launch = launch_with_open_group(launches_of(c.kernel, c.kernel.problem(c.node, device), params))
    if launch is None:
        return
    rank = len(launch.grid)
    untuned = default_group(launch.grid, device)
    limits = limits_of(_trial(c, params, None))
    for group in dict.fromkeys(g[:rank] for g in groups_of(launch.grid, limits, device)):
        if group != untuned:
            yield group


def _untuned(c: KernelCandidate, device: DeviceInfo) -> Sequence[Point]:
    return [c.kernel.defaults(c.kernel.problem(c.node, device))]


def _next_to(c: KernelCandidate, device: DeviceInfo) -> Sequence[Point]:
    """Untuned parameters with one value moved to the next smaller or larger one; names and flags take any other."""
    found = []
    for name, value in c.kernel.defaults(c.kernel.problem(c.node, device)).items():
        values = c.kernel.space.get(name, ())
        if _are_numbers(values) and _are_numbers((value,)):
            below = [v for v in values if v < value]
            above = [v for v in values if v > value]
            values = (*([max(below)] if below else []), *([min(above)] if above else []))
        found += _changed(c, device, name, values)
    return found


def _one_changed(c: KernelCandidate, device: DeviceInfo) -> Sequence[Point]:
    return [p for name, values in c.kernel.space.items() for p in _changed(c, device, name, values)]


def _changed(c: KernelCandidate, device: DeviceInfo, name: str, values: Sequence[Any]) -> list[Point]:
    points = [{**c.kernel.defaults(c.kernel.problem(c.node, device)), name: value} for value in values]
    return [p for p in points if c.kernel.illegal(c.kernel.problem(c.node, device), p) is None]


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _every(c: KernelCandidate, device: DeviceInfo) -> Sequence[Point]:
    return list(c.kernel.points(c.kernel.problem(c.node, device)))


def _sample(c: KernelCandidate, device: DeviceInfo) -> Sequence[Point]:
    points = _every(c, device)
    return points if len(points) <= WIDE_POINTS else random.Random(SEED).sample(points, WIDE_POINTS)


def _seeds(grid: Grid, limits: wg.Limits, device: DeviceInfo) -> Sequence[wg.Group]:
    return [*wg.fast(grid, limits), *wg.fast_conv(grid, limits, device), *wg.default(limits), *wg.paddle(grid, limits)]


def _few_divisors(grid: Grid, limits: wg.Limits, device: DeviceInfo) -> Sequence[wg.Group]:
    return _some(_divisors(grid, limits, device))[:NORMAL_GROUPS]


def _some_groups(grid: Grid, limits: wg.Limits, device: DeviceInfo) -> Sequence[wg.Group]:
    # Prime extents have hardly any divisors; slightly larger extents have many.
    return [*_some(_divisors(grid, limits, device)), *_some(_unaligned(grid, limits, device))]


def _some(groups: Sequence[wg.Group]) -> Sequence[wg.Group]:
    return random.Random(SEED).sample(groups, min(WIDE_GROUPS, len(groups)))


def _divisors(grid: Grid, limits: wg.Limits, device: DeviceInfo) -> Sequence[wg.Group]:
    return wg.exhaustive(grid, limits)


def _unaligned(grid: Grid, limits: wg.Limits, device: DeviceInfo) -> Sequence[wg.Group]:
    return wg.exhaustive(grid, limits, wg.Alignment.NO_ALIGNMENT)


_PASSES: Mapping[Level, Sequence[tuple[_Points, _Groups | None]]] = {
    Level.FAST: ((_next_to, None), (_untuned, _seeds)),
    Level.NORMAL: ((_one_changed, None), (_one_changed, _seeds), (_untuned, _few_divisors)),
    Level.WIDE: ((_sample, None), (_sample, _seeds), (_next_to, _some_groups), (_untuned, _some_groups)),
    Level.EXHAUSTIVE: ((_every, None), (_every, _seeds), (_every, _divisors), (_every, _unaligned)),
}
"""The trials of each level: sets of parameters, with the work-groups to try each with (None: the untuned one)."""
