"""Plans a graph with tuning results, after tuning it if a session asks for that."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from ..cl.runtime import Runtime
from ..ir.shape_hints import hinted
from ..plan.planner import Knowledge, Planned, PlanOptions, Prepared, lay_out
from ..plan.program import LaunchStep, Program
from ..run.execute.executable import Executable
from ..run.execute.host_operators import HostRunner
from .database_keys import graph_signature
from .measure_candidates import NodeBench, random_array
from .tuner import Progress, Tuner
from .tuning_database import TuningDatabase, Verdict, open_database
from .tuning_levels import Level
from .tuning_lookup import Lookup, find_settings
from .tuning_report import GraphTuning, State
from .tuning_search import time_alternately


@dataclass
class TunedPlanner:
    """Lays graphs out for one runtime.

    host_runner: runs host steps while programs are compared. on_trial: called after every trial. on_report: called
    with the report of each tuned graph, before the search fills it.
    """

    rt: Runtime
    options: PlanOptions
    host_runner: HostRunner
    on_trial: Callable[[Progress], None] | None = None
    on_report: Callable[[GraphTuning], None] | None = None
    database: TuningDatabase = field(default_factory=open_database)

    def __post_init__(self) -> None:
        self.lookup = Lookup(self.database, self.rt.info)

    def plan_from_database(self, prepared: Prepared) -> Planned:
        """`prepared` laid out with all tuning results; a note says if they are disregarded."""
        verdict = self._verdict(self._key(prepared))
        if verdict is not None and not verdict.tuned:
            return replace(self._untuned(prepared), notes=(str(verdict),))
        return self._tuned(prepared)

    def is_tuned(self, prepared: Prepared, level_name: str) -> bool:
        """Whether the graph was tuned at that level or a higher one, even if the budget was exhausted."""
        verdict = self._verdict(self._key(prepared))
        return verdict is not None and verdict.level >= Level.parse(level_name)

    def plan_with_search(self, prepared: Prepared, level_name: str) -> Planned:
        """`prepared` laid out after searching the untuned nodes at that level.

        The tuned and untuned programs then run alternately; the tuned one is kept if it is faster.
        """
        level = Level.parse(level_name)
        report = GraphTuning(self.rt.info.title, level)
        if self.on_report is not None:
            self.on_report(report)
        key = self._key(prepared)
        graph, other = prepared.graph, prepared.copy()
        untuned = self._untuned(prepared)
        launched = [n for n, r in zip(graph.nodes, untuned.report, strict=True) if r.launches]
        tuner = Tuner(self.lookup, level, lambda n: NodeBench(self.rt, n), on_trial=self.on_trial)
        report.layers = tuner.layers
        tuner.tune([hinted(node) for node in launched])
        tuned = self._tuned(other)
        verdict = self._verdict(key)
        if _launches(tuned.program) == _launches(untuned.program):
            verdict = Verdict(True, 0.0, 0.0, level)
        elif verdict is None or verdict.level < level or any(x.state is State.MEASURED for x in report.layers):
            verdict = self._compare(untuned.program, tuned.program, level, report)
        self.database.put_verdict(self.lookup.device_key, key, verdict)
        report.verdict = verdict
        return tuned if verdict.tuned else untuned

    def _compare(self, untuned: Program, tuned: Program, level: Level, report: GraphTuning) -> Verdict:
        try:
            untuned_s, tuned_s, share = compare_programs(self.rt, untuned, tuned, self.host_runner)
        except Exception as e:  # host operators may raise anything on random inputs; memory may not suffice for both
            report.note = f"the comparison failed: {e}"
            return Verdict(False, 0.0, 0.0, level)
        return Verdict(share < 1.0, untuned_s, tuned_s, level)

    def _key(self, prepared: Prepared) -> str:
        return graph_signature(prepared.graph.nodes, self.options.memory)

    def _verdict(self, key: str) -> Verdict | None:
        return self.database.verdict(self.lookup.device_key, key)

    def _untuned(self, prepared: Prepared) -> Planned:
        return lay_out(prepared, self.options, Knowledge(self.rt.info))

    def _tuned(self, prepared: Prepared) -> Planned:
        lookup = self.lookup
        known = Knowledge(self.rt.info, lookup.seconds, lambda nodes: find_settings(lookup, nodes))
        return lay_out(prepared, self.options, known)


def _launches(program: Program) -> tuple[object, ...]:
    """Everything in which two plans of one graph can differ."""
    return (program.sources, [s for s in program.steps if isinstance(s, LaunchStep)])


ROUNDS = 15
FEWEST_ROUNDS = 5  # fewest rounds, for models that take seconds
TURN_S = 0.05
MOST_S = 20.0  # most seconds for all rounds, beyond the fewest


def compare_programs(rt: Runtime, a: Program, b: Program, host_runner: HostRunner) -> tuple[float, float, float]:
    """(seconds of `a`, seconds of `b`, b's share of a's) with seeded random inputs, as medians over rounds.

    In each round both run, and the least time counts, because other load of the machine only adds time. The programs
    remain usable. Errors of building and running propagate.
    """
    rng = np.random.default_rng(0)
    feeds = [random_array(p.dtype, p.shape, rng) for p in a.inputs]
    # An Executable consumes a program's weights, so each gets its own list. Megakernels are disabled, since one of the
    # two would get its megakernel before the other.
    both = [Executable(rt, replace(p, weights=dict(p.weights)), host_runner, is_trial=True) for p in (a, b)]

    def run(executable: Executable) -> float:
        started = time.perf_counter()
        executable.run(feeds)
        return time.perf_counter() - started

    for executable in both:
        run(executable)
    once = max(map(run, both))
    runs = max(1, int(TURN_S / once))
    rounds = max(FEWEST_ROUNDS, min(ROUNDS, int(MOST_S / (2 * runs * once))))

    def turns(executable: Executable) -> Callable[[], float]:
        return lambda: min(run(executable) for _ in range(runs))

    pairs = time_alternately(turns(both[0]), turns(both[1]), rounds)
    assert pairs is not None
    return median(x for x, _ in pairs), median(y for _, y in pairs), median(y / x for x, y in pairs)
