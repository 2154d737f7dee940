"""Plans a graph with what tuning found, and tunes it first where a session asks for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...cl.runtime import Runtime
from ...ir.graph import Graph
from ...place.options import Measured
from ...plan.emit import emit
from ...plan.program import LaunchStep, Program
from ...tune.database import TuningDatabase, Verdict, open_database
from ...tune.levels import Level
from ...tune.lookup import Lookup, find_settings
from ...tune.measure import NodeBench
from ...tune.report import GraphTuning, State
from ...tune.signature import graph_signature
from ...tune.tuner import Progress, Tuner
from ..execute.executable import HostRunner
from .side_by_side import compare_programs


@dataclass
class TunedPlanner:
    """Plans graphs for one runtime, tensors in `memory`.

    lay_out: places a graph, given measured times if there are any. `reports` gets one entry for each graph tuned.
    """

    rt: Runtime
    memory: str
    lay_out: Callable[[Graph, Measured | None], None]
    host_runner: HostRunner
    watch: Callable[[Progress], None] | None = None
    reports: list[GraphTuning] = field(default_factory=list)
    database: TuningDatabase = field(default_factory=open_database)

    def __post_init__(self) -> None:
        self.lookup = Lookup(self.database, self.rt.info)

    def plan_known(self, graph: Graph) -> tuple[Program, str]:
        """The Program of `graph` with everything that is known already, and a note where that is set aside."""
        verdict = self._verdict(graph_signature(graph.nodes, self.memory))
        if verdict is not None and not verdict.tuned:
            return self._untuned(graph), str(verdict)
        return self._tuned(graph), ""

    def is_tuned(self, graph: Graph, level_name: str) -> bool:
        """Whether `graph` was tuned at that level or a higher one, be it that the budget left something out."""
        verdict = self._verdict(graph_signature(graph.nodes, self.memory))
        return verdict is not None and verdict.level >= Level.parse(level_name)

    def plan_searched(self, graph: Graph, level_name: str) -> Program:
        """The Program of `graph` after searching what is not known at that level.

        Tuned and untuned programs are run in turn, and the tuned one is kept if it is faster.
        """
        level = Level.parse(level_name)
        report = GraphTuning(self.rt.info.name, level)
        self.reports.append(report)
        key = graph_signature(graph.nodes, self.memory)
        other = graph.copy()
        untuned = self._untuned(graph)
        launched = [n for n, r in zip(graph.nodes, untuned.placement, strict=True) if r.launches]
        tuner = Tuner(self.lookup, level, lambda n: NodeBench(self.rt, n), watch=self.watch)
        report.layers = tuner.layers
        tuner.tune(launched)
        tuned = self._tuned(other)
        verdict = self._verdict(key)
        if _launches(tuned) == _launches(untuned):
            verdict = Verdict(True, 0.0, 0.0, level)
        elif verdict is None or verdict.level < level or any(x.state is State.MEASURED for x in report.layers):
            verdict = self._compare(untuned, tuned, level, report)
        self.database.put_verdict(self.lookup.device_key, key, verdict)
        report.verdict = verdict
        return tuned if verdict.tuned else untuned

    def _compare(self, untuned: Program, tuned: Program, level: Level, report: GraphTuning) -> Verdict:
        try:
            untuned_s, tuned_s, share = compare_programs(self.rt, untuned, tuned, self.host_runner)
        except Exception as e:  # a host operator may refuse random inputs in any way; memory may not hold both
            report.note = f"the comparison failed: {e}"
            return Verdict(False, 0.0, 0.0, level)
        return Verdict(share < 1.0, untuned_s, tuned_s, level)

    def _verdict(self, key: str) -> Verdict | None:
        return self.database.verdict(self.lookup.device_key, key)

    def _untuned(self, graph: Graph) -> Program:
        self.lay_out(graph, None)
        return emit(graph, self.rt.info)

    def _tuned(self, graph: Graph) -> Program:
        self.lay_out(graph, self.lookup.seconds)
        return emit(graph, self.rt.info, settings=find_settings(self.lookup, graph.nodes))


def _launches(program: Program) -> tuple[object, ...]:
    """Everything in which two plans of one graph can differ."""
    return (program.sources, [s for s in program.steps if isinstance(s, LaunchStep)])
