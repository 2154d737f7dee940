"""Levels search different, nested sets, each within its budget, and propose nothing that a device cannot run."""

from __future__ import annotations

import dataclasses
import math
from itertools import islice, pairwise

import pytest

from opalite.errors import InputError
from opalite.ir import DeviceInfo, Graph
from opalite.ir.device.default_workgroups import default_group
from opalite.kernels.launch_workgroups import launch_with_open_group
from opalite.tune.tuning_database import TuningDatabase
from opalite.tune.tuning_levels import BUDGETS, KernelCandidate, Level, Trial, make_trials
from opalite.tune.tuning_lookup import Lookup
from opalite.tune.workgroup_candidates import Limits, default, fast, fast_conv, paddle

from ...helpers.graphs import GraphMaker
from ...helpers.launch_sizes import size_launches
from ...helpers.tuning import CPU, candidates_of, conv_graph, fixture_device

SEARCHED = (Level.FAST, Level.NORMAL, Level.WIDE, Level.EXHAUSTIVE)
GPU = fixture_device("mali_g76")
ONE = dataclasses.replace(GPU, max_work_group_size=1, max_work_item_sizes=(1, 1, 1))
ENOUGH = 3000  # trials of a level that a test looks at


def pool_graph() -> Graph:
    g = GraphMaker()
    attrs = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    x = g.input("x", 1, 29, 31, 37)
    kind = {"kind": "max", "ceil_mode": False, "count_include_pad": False, "p": 2, "with_indices": False}
    return g.done(g.add("pool", "Pool", x, **attrs, **kind, storage_order=0))


def candidates(graph: Graph, op: str, device: DeviceInfo) -> list[KernelCandidate]:
    return candidates_of(graph, op, device, Lookup(TuningDatabase(None), device))


CASES = [(conv_graph, "Conv", CPU), (conv_graph, "Softmax", CPU), (pool_graph, "Pool", GPU), (pool_graph, "Pool", ONE)]


@pytest.mark.parametrize("make, op, device", CASES, ids=["conv-cpu", "softmax-cpu", "pool-gpu", "pool-one"])
def test_each_level_contains_the_one_before(make: object, op: str, device: DeviceInfo) -> None:
    found = candidates(make(), op, device)  # type: ignore[operator]
    sets = [set(make_trials(found, device, level)) for level in SEARCHED]
    for smaller, larger in pairwise(sets):
        assert smaller <= larger


def test_levels_search_different_sets() -> None:
    for found, device in ((candidates(conv_graph(), "Conv", CPU), CPU), (candidates(pool_graph(), "Pool", GPU), GPU)):
        sizes = [len(list(make_trials(found, device, level))) for level in SEARCHED]
        assert sizes == sorted(set(sizes)), sizes
        assert sizes[0] > 1


def test_budgets_grow() -> None:
    budgets = [BUDGETS[level] for level in Level]
    assert [b.node_s for b in budgets] == sorted({b.node_s for b in budgets})
    assert [b.model_s for b in budgets] == sorted({b.model_s for b in budgets})
    assert BUDGETS[Level.NONE].model_s == 0


@pytest.mark.parametrize("make, op, device", CASES, ids=["conv-cpu", "softmax-cpu", "pool-gpu", "pool-one"])
def test_every_trial_can_be_launched(make: object, op: str, device: DeviceInfo) -> None:
    found = candidates(make(), op, device)  # type: ignore[operator]
    by_way = {(c.kernel, c.binding): c for c in found}
    trials = list(islice(make_trials(found, device, Level.EXHAUSTIVE), ENOUGH))
    assert len(trials) == len(set(trials))
    for trial in trials:
        c = by_way[trial.kernel, trial.binding]
        if trial != untuned(c, device):
            assert c.kernel.illegal(c.kernel.problem(c.node, device), trial.settings) is None, trial
        for _, grid, group in size_launches(
            c.kernel.launch(c.kernel.problem(c.node, device), trial.settings), device, trial.group
        ):
            assert math.prod(group) <= device.max_work_group_size
            assert all(g <= most for g, most in zip(group, device.max_work_item_sizes, strict=False))
            assert all(extent % g == 0 for extent, g in zip(grid, group, strict=True))


def untuned(c: KernelCandidate, device: DeviceInfo) -> Trial:
    return Trial(c.kernel, c.binding, tuple(sorted(c.kernel.defaults(c.kernel.problem(c.node, device)).items())))


def test_groups_follow_the_seeds_formulas_under_a_kernels_own_limit() -> None:
    found = candidates(pool_graph(), "Pool", GPU)
    asked: list[Trial] = []

    def group_limit(trial: Trial) -> int:
        asked.append(trial)
        return 24

    trials = list(make_trials(found, GPU, Level.FAST, group_limit))
    groups = {t.group for t in trials if t.group is not None}
    limits = Limits(24, GPU.max_work_item_sizes)
    expected = set()
    for c in found:
        launch = launch_with_open_group(
            c.kernel.launch(c.kernel.problem(c.node, GPU), c.kernel.defaults(c.kernel.problem(c.node, GPU)))
        )
        assert launch is not None
        made = [*fast(launch.grid, limits), *fast_conv(launch.grid, limits, GPU), *default(limits)]
        rank = len(launch.grid)
        expected |= {g[:rank] for g in [*made, *paddle(launch.grid, limits)]} - {default_group(launch.grid, GPU)}
    assert groups == expected
    assert len(asked) == len(set(asked)), "each set of parameters is asked for once"


def test_the_untuned_choice_comes_first_and_the_order_is_the_same_each_time() -> None:
    found = candidates(conv_graph(), "Conv", CPU)
    trials = list(make_trials(found, CPU, Level.WIDE))
    assert trials[: len(found)] == [untuned(c, CPU) for c in found]
    assert trials == list(make_trials(found, CPU, Level.WIDE))


def test_lower_levels_are_measured_first() -> None:
    found = candidates(pool_graph(), "Pool", GPU)
    fast = list(make_trials(found, GPU, Level.FAST))
    assert list(islice(make_trials(found, GPU, Level.EXHAUSTIVE), len(fast))) == fast


def test_work_groups_have_the_rank_of_the_grid_and_differ_from_the_untuned_one() -> None:
    (c, *_) = candidates(pool_graph(), "Pool", GPU)
    for trial in make_trials([c], GPU, Level.WIDE):
        if trial.group is not None:
            (sized,) = size_launches(c.kernel.launch(c.kernel.problem(c.node, GPU), trial.settings), GPU)
            assert len(trial.group) == len(sized[1])
            assert trial.group != sized[2]


def test_a_level_is_parsed_by_name() -> None:
    assert Level.parse("Wide") is Level.WIDE
    assert str(Level.EXHAUSTIVE) == "exhaustive"
    with pytest.raises(InputError, match="none, fast, normal, wide, exhaustive"):
        Level.parse("rapid")
