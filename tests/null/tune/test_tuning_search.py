"""The search and the tuner, replayed: times come from formulas, and no clock runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opalite.cl.queue.event_times import LaunchTimes
from opalite.ir import DeviceInfo, Graph
from opalite.plan.planner import Planned, PlanOptions, Prepared, prepare
from opalite.tune import measure_candidates, tuned_planning
from opalite.tune.measure_candidates import difference
from opalite.tune.tuner import Tuner
from opalite.tune.tuning_database import TuningDatabase
from opalite.tune.tuning_levels import BUDGETS, Level, Trial, make_trials
from opalite.tune.tuning_lookup import Lookup
from opalite.tune.tuning_report import GraphTuning, State
from opalite.tune.tuning_search import CONFIRM_ROUNDS, drop_outliers, search

from ...helpers.tuning import CPU, Replay, Ticks, candidates_of, conv_graph, fixture_device, no_time, placed_nodes


def trials_of(level: Level = Level.NORMAL) -> list[Trial]:
    lookup = Lookup(TuningDatabase(None), CPU)
    return list(make_trials(candidates_of(conv_graph(), "Conv", CPU, lookup), CPU, level))


TRIALS = trials_of()
DEFAULT, FASTEST, WRONG, SLOW = TRIALS[0], TRIALS[-1], TRIALS[-2], TRIALS[-3]
TIMES = {DEFAULT: 10.0, FASTEST: 5.0}


def run_search(formula: Callable[[Trial], float | None], device: DeviceInfo = CPU, **options: Any) -> Any:
    replay = Replay(formula)
    return search(TRIALS, replay, device, **{"budget_s": 1.0, "clock": no_time, **options}), replay


def test_the_fastest_wins_after_it_was_confirmed() -> None:
    found, replay = run_search(lambda t: TIMES.get(t, 20.0))
    assert found.best == FASTEST
    assert (found.default_seconds, found.seconds, found.gain) == (10.0, 5.0, 2.0)
    assert replay.asked[: len(TRIALS)] == TRIALS
    assert replay.asked[len(TRIALS) :].count(FASTEST) == CONFIRM_ROUNDS


def test_a_winner_that_is_not_faster_in_turn_is_not_kept() -> None:
    lucky = iter([5.0])
    found, _ = run_search(lambda t: next(lucky, 10.0) if t == FASTEST else 10.0 if t == DEFAULT else 20.0)
    assert found.best == DEFAULT
    assert found.gain == 1.0


def test_one_percent_is_noise() -> None:
    found, _ = run_search(lambda t: {DEFAULT: 10.0, FASTEST: 9.9}.get(t, 20.0))
    assert found.best == DEFAULT


def test_wrong_outputs_never_win() -> None:
    found, _ = run_search(lambda t: math.inf if t == WRONG else TIMES.get(t, 20.0))
    assert found.best == FASTEST
    assert (found.wrong, found.refused) == ([WRONG], [])
    assert WRONG not in found.times


def test_a_refusal_is_not_a_wrong_output() -> None:
    found, _ = run_search(lambda t: {WRONG: math.inf, SLOW: None}.get(t, TIMES.get(t, 20.0)))
    assert (found.wrong, found.refused) == ([WRONG], [SLOW])
    assert found.best == FASTEST


@pytest.mark.parametrize("failure", [None, math.inf])
def test_a_default_that_fails_ends_the_search(failure: float | None) -> None:
    found, replay = run_search(lambda t: failure)
    assert (found.best, replay.asked) == (None, [DEFAULT])


def test_nothing_is_compared_with_an_untuned_choice_that_does_not_run() -> None:
    found, replay = run_search(lambda t: None if t == DEFAULT else 1.0)
    assert found.best is None
    assert replay.asked == [DEFAULT]


def test_a_winner_that_fails_when_confirmed_is_not_kept() -> None:
    first = iter([5.0])
    found, _ = run_search(lambda t: next(first, None) if t == FASTEST else 10.0)
    assert found.best == DEFAULT


def test_the_budget_ends_a_search_but_never_before_the_untuned_choice() -> None:
    found, replay = run_search(lambda t: 10.0, budget_s=4.0, clock=Ticks())
    assert not found.complete
    assert 1 < len(replay.asked) < len(TRIALS)
    found, replay = run_search(lambda t: 10.0, budget_s=0.0, clock=Ticks())
    assert replay.asked == [DEFAULT]
    assert found.best == DEFAULT


def test_known_times_are_not_measured_again() -> None:
    known: dict[Trial, float | None] = dict.fromkeys(TRIALS, 20.0) | {FASTEST: 5.0, WRONG: None}
    told: list[Trial] = []
    found, replay = run_search(lambda t: TIMES.get(t, 20.0), known=known, on_trial=lambda t, _: told.append(t))
    assert set(replay.asked) == {DEFAULT, FASTEST}, "the untuned choice, and the winner to confirm it"
    assert told == [DEFAULT]
    assert (found.best, found.refused) == (FASTEST, [WRONG])


@pytest.mark.parametrize("lie", [150.0, 0.5])
def test_adreno_3xx_times_over_100_s_or_under_a_tenth_of_the_mean_are_dropped(lie: float) -> None:
    times = {DEFAULT: 10.0, FASTEST: 8.0, SLOW: lie}
    assert drop_outliers(times, fixture_device("adreno_330")) == {DEFAULT: 10.0, FASTEST: 8.0}
    assert drop_outliers(times, fixture_device("adreno_640")) == times


def test_a_lying_event_does_not_win_on_adreno_3xx() -> None:
    found, _ = run_search(lambda t: 1e-6 if t == SLOW else TIMES.get(t, 20.0), fixture_device("adreno_330"))
    assert found.best == FASTEST


class FakeEvent:
    def __init__(self, number: int, waits: list[int]) -> None:
        self.number, self._waits = number, waits

    def wait(self) -> None:
        self._waits.append(self.number)


@pytest.mark.parametrize(
    "device, waits", [("mali_g76", [0, 8, 19]), ("adreno_640", [19]), ("adreno_330", [*range(20), 19])]
)
def test_mali_waits_for_every_eighth_event(device: str, waits: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    numbers = iter(range(1000))
    launch = SimpleNamespace(enqueue=lambda queue: FakeEvent(next(numbers), waited))
    monkeypatch.setattr(measure_candidates, "read_times", lambda e, name: LaunchTimes(0, 0, 0, 1e-3 + 1e-6 * e.number))
    launches: Any = [launch]
    least, _ = measure_candidates._timed_runs(launches, None, fixture_device(device), 20, no_time)
    assert waited == waits
    assert least == pytest.approx(1e-3)


def test_several_launches_count_with_the_gaps_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = SimpleNamespace(enqueue=lambda queue: FakeEvent(0, []))
    monkeypatch.setattr(measure_candidates, "read_times", lambda e, name: LaunchTimes(0, 0, 0, 1e-3))
    launches: Any = [launch] * 3
    assert measure_candidates.time_launches(launches, None, CPU, clock=no_time) == pytest.approx(
        3e-3 + 2 * CPU.launch_s
    )


def test_outputs_are_compared_by_type() -> None:
    want = np.linspace(-2, 2, 1000, dtype=np.float32)
    assert difference(want * (1 + 1e-5), want, 1e-3) is None
    assert "largest difference" in str(difference(want + np.float32(0.01), want, 1e-3))
    assert "NaN" in str(difference(np.where(want > 1, np.nan, want).astype(np.float32), want, 1e-3))
    whole = np.arange(2000)
    near = whole.copy()
    near[7] += 1
    assert difference(near, whole, 0.0, rounded=True) is None
    assert "1 of 2000" in str(difference(near, whole, 0.0, rounded=False))
    assert "expected" in str(difference(whole[:3], whole, 0.0))


# The tuner, over a placed graph


def formula(trial: Trial) -> float:
    """The more columns a tile has, the faster it is."""
    return 1.0 / dict(trial.params).get("TW", 1)


def make_tuner(
    database: TuningDatabase, measure: Replay, level: Level = Level.FAST, device: DeviceInfo = CPU
) -> tuple[Tuner, Lookup]:
    lookup = Lookup(database, device)
    return Tuner(lookup, level, lambda node: measure, clock=no_time), lookup


def test_equal_nodes_are_tuned_once() -> None:
    database, replay = TuningDatabase(None), Replay(formula)
    tuner, lookup = make_tuner(database, replay)
    nodes = placed_nodes(conv_graph(more=("second", "third")), CPU)
    layers = tuner.tune(nodes)
    conv = next(x for x in layers if x.op == "Conv" and len(x.names) > 1)
    assert conv.names == ("second", "third")
    convs = [n for n in nodes if n.name in conv.names and n.op.name == "Conv"]
    settings = [lookup.setting(n, n.chosen.kernel, n.chosen.option.binding) for n in convs]
    assert settings[0] == settings[1]
    assert settings[0] is not None
    assert settings[0].origin == "measured"
    assert conv.gain > 1


def test_a_second_tuner_measures_nothing() -> None:
    database = TuningDatabase(None)
    make_tuner(database, Replay(formula))[0].tune(placed_nodes(conv_graph(), CPU))
    again = Replay(formula)
    layers = make_tuner(database, again)[0].tune(placed_nodes(conv_graph(), CPU))
    assert again.asked == []
    assert {x.state for x in layers} == {State.KNOWN}
    assert next(x for x in layers if x.op == "Conv").gain > 1


def test_an_interrupted_search_goes_on_where_it_stopped() -> None:
    database = TuningDatabase(None)
    whole = Replay(formula)
    make_tuner(TuningDatabase(None), whole)[0].tune(placed_nodes(conv_graph(), CPU))

    def stop_after(count: int) -> Callable[[Trial], float]:
        def measure(trial: Trial) -> float:
            if len(stopped.asked) > count:
                raise KeyboardInterrupt
            return formula(trial)

        return measure

    stopped = Replay(stop_after(4))
    with pytest.raises(KeyboardInterrupt):
        make_tuner(database, stopped)[0].tune(placed_nodes(conv_graph(), CPU))
    resumed = Replay(formula)
    layers = make_tuner(database, resumed)[0].tune(placed_nodes(conv_graph(), CPU))
    measured_before = set(stopped.asked[1:4])
    known = [t for t in resumed.asked[:-CONFIRM_ROUNDS] if t in measured_before]
    assert len(resumed.asked) < len(whole.asked)
    assert set(known) <= {max(known, key=lambda t: -formula(t), default=None)}, "only a winner, to confirm it"
    assert all(x.state is State.MEASURED for x in layers)


def test_a_higher_level_takes_the_lower_ones_times_over() -> None:
    database, low, high = TuningDatabase(None), Replay(formula), Replay(formula)
    make_tuner(database, low)[0].tune(placed_nodes(conv_graph(), CPU))
    make_tuner(database, high, Level.NORMAL)[0].tune(placed_nodes(conv_graph(), CPU))
    again = [t for t in set(high.asked) if t in set(low.asked)]
    defaults = 3  # the untuned choice of each layer is measured again, as what others are compared with
    assert len(again) <= defaults
    fresh = Replay(formula)
    layers = make_tuner(database, fresh, Level.FAST)[0].tune(placed_nodes(conv_graph(), CPU))
    assert {x.state for x in layers} == {State.KNOWN}


def test_the_models_budget_leaves_layers_for_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUDGETS, Level.FAST, type(BUDGETS[Level.FAST])(1.0, 3.0))
    database = TuningDatabase(None)
    lookup = Lookup(database, CPU)
    tuner = Tuner(lookup, Level.FAST, lambda node: Replay(formula), clock=Ticks())
    layers = tuner.tune(placed_nodes(conv_graph(), CPU))
    assert layers[-1].state is State.NOT_REACHED
    assert not layers[0].complete
    later = make_tuner(database, Replay(formula))[0].tune(placed_nodes(conv_graph(), CPU))
    assert {x.state for x in later} == {State.MEASURED}, "neither the cut search nor the rest counts as done"


def test_wide_measures_other_layouts_apart() -> None:
    nodes = placed_nodes(conv_graph(), CPU)
    fast = make_tuner(TuningDatabase(None), Replay(formula))[0].tune(nodes)
    database = TuningDatabase(None)
    wide = make_tuner(database, Replay(formula), Level.WIDE)[0].tune(nodes)
    assert all(x.chosen for x in fast)
    assert {x.layout for x in wide if x.op == "Conv"} > {x.layout for x in fast if x.op == "Conv"}
    assert len({e.binding for e in database.entries()}) > len({x.layout for x in fast})


def test_work_groups_stay_within_what_each_kernel_runs_with() -> None:
    """Generators are given CL_KERNEL_WORK_GROUP_SIZE of the built kernel, not the device's limit alone."""
    groups = {}
    for most in (None, 48):
        replay = Replay(lambda trial: 1.0, most_items=most)
        make_tuner(TuningDatabase(None), replay, Level.WIDE)[0].tune(placed_nodes(conv_graph(), CPU))
        groups[most] = {t.group for t in replay.asked if t.group is not None}
    assert max(math.prod(g) for g in groups[None]) > 48
    assert 1 < max(math.prod(g) for g in groups[48]) <= 48


def test_the_report_tells_refusals_from_wrong_outputs() -> None:
    replay = Replay(lambda t: 1.0 if t.group is None else None if math.prod(t.group) > 48 else math.inf)
    layers = make_tuner(TuningDatabase(None), replay)[0].tune(placed_nodes(conv_graph(), CPU))
    groups = [t.group for t in set(replay.asked) if t.group is not None]
    assert sum(x.refused for x in layers) == sum(math.prod(g) > 48 for g in groups) > 0
    assert sum(x.wrong for x in layers) == sum(math.prod(g) <= 48 for g in groups) > 0


def test_an_untuned_choice_that_fails_leaves_no_entry() -> None:
    database = TuningDatabase(None)
    layers = make_tuner(database, Replay(lambda t: None))[0].tune(placed_nodes(conv_graph(), CPU))
    assert {x.state for x in layers} == {State.FAILED}
    assert list(database.entries()) == []


def test_no_kernel_is_stored_as_faster_than_the_confirmed_choice() -> None:
    """Another kernel's lucky time must not win in picking when the confirmation kept the untuned choice."""
    database = TuningDatabase(None)
    seen: dict[Trial, int] = {}

    def lucky(trial: Trial) -> float:
        seen[trial] = seen.get(trial, 0) + 1
        return 10.0 if seen[trial] > 1 or trial.settings.get("TW") != 5 else 1.0

    make_tuner(database, Replay(lucky), Level.NORMAL)[0].tune(placed_nodes(conv_graph(), CPU))
    assert {e.seconds for e in database.entries() if e.node.startswith("Conv")} == {10.0}


# The verdict on a whole graph


REPORTS: list[GraphTuning] = []


def make_planner(database: TuningDatabase) -> tuned_planning.TunedPlanner:
    """Plans for CPU data; nothing runs."""
    REPORTS.clear()
    rt: Any = SimpleNamespace(info=CPU)
    return tuned_planning.TunedPlanner(rt, PlanOptions(), lambda s, i: [], on_report=REPORTS.append, database=database)


def prepared(graph: Graph) -> Prepared:
    return prepare(graph, PlanOptions(), CPU)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> TuningDatabase:
    monkeypatch.setattr(tuned_planning, "NodeBench", lambda rt, node: Replay(formula))
    return TuningDatabase(None)


def tile_width(planned: Planned) -> Any:
    return next(r.params["TW"] for r in planned.report if r.op == "Conv")


def test_the_tuned_program_is_kept_when_it_is_faster(database: TuningDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned_planning, "compare_programs", lambda *a: (2.0, 1.0, 0.5))
    untuned = make_planner(TuningDatabase(None)).plan_from_database(prepared(conv_graph()))
    planner = make_planner(database)
    tuned = planner.plan_with_search(prepared(conv_graph()), "fast")
    assert tile_width(tuned) > tile_width(untuned)
    assert "2.00 times as fast" in REPORTS[0].summary()
    again = make_planner(database).plan_from_database(prepared(conv_graph()))
    assert tile_width(again) == tile_width(tuned)
    assert not again.notes
    report = next(r for r in again.report if r.op == "Conv")
    assert report.measured
    assert "measured" in report.why
    assert report.seconds == 1.0 / tile_width(again)


def test_the_untuned_program_is_kept_when_tuning_is_not_faster(
    database: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_planning, "compare_programs", lambda *a: (1.0, 1.1, 1.1))
    untuned = make_planner(TuningDatabase(None)).plan_from_database(prepared(conv_graph()))
    planner = make_planner(database)
    kept = planner.plan_with_search(prepared(conv_graph()), "fast")
    assert tile_width(kept) == tile_width(untuned)
    assert "set aside" in REPORTS[0].summary()
    later = make_planner(database).plan_from_database(prepared(conv_graph()))
    assert tile_width(later) == tile_width(untuned)
    assert "set aside" in later.notes[0]


def test_a_comparison_that_fails_keeps_the_untuned_program(
    database: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise ValueError("no such index")

    monkeypatch.setattr(tuned_planning, "compare_programs", fail)
    planner = make_planner(database)
    planner.plan_with_search(prepared(conv_graph()), "fast")
    assert "no such index" in REPORTS[0].summary()
    assert "could not be compared" in make_planner(database).plan_from_database(prepared(conv_graph())).notes[0]


def test_a_tuned_graph_is_not_tuned_or_compared_again(
    database: TuningDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuned_planning, "compare_programs", lambda *a: (2.0, 1.0, 0.5))
    planner = make_planner(database)
    assert not planner.is_tuned(prepared(conv_graph()), "fast")
    planner.plan_with_search(prepared(conv_graph()), "fast")
    assert planner.is_tuned(prepared(conv_graph()), "fast")
    assert not planner.is_tuned(prepared(conv_graph()), "normal")
    monkeypatch.setattr(tuned_planning, "compare_programs", lambda *a: pytest.fail("compared again"))
    make_planner(database).plan_with_search(prepared(conv_graph()), "fast")
