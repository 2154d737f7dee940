"""The tuner: searches each distinct node of a placed graph once, in order of expected time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from ..ir.graph import Node
from ..ir.place import Layout
from ..kernels.kernel import Binding, Kernel
from ..kernels.node_in_layouts import place_node
from .database_keys import binding_signature
from .kernel_digest import kernel_digest
from .tuning_database import Entry, Key, settings_text
from .tuning_levels import BUDGETS, KernelCandidate, Level, Trial, make_trials, visible_layouts
from .tuning_lookup import Lookup
from .tuning_report import LayerTuning, State
from .tuning_search import SearchResult, drop_outliers, search


class Bench(Protocol):
    """Measures trials of one node (`measure_candidates.NodeBench`, or recorded times in tests)."""

    reasons: dict[Trial, str]  # the reasons of trials without a time

    def __call__(self, trial: Trial) -> float | None:
        """See `tuning_search.Measure`."""

    def group_limit(self, trial: Trial) -> int | None:
        """See `tuning_levels.GroupLimit`."""


@dataclass(frozen=True)
class Progress:
    """The tuner's progress: finished and total layers, current layer, its trials so far and their best seconds."""

    done: int
    total: int
    layer: str
    trials: int
    best_s: float


@dataclass
class TuningJob:
    """One distinct node in one set of layouts, with its candidate kernels, the untuned one first."""

    node: Node
    names: list[str]
    candidates: list[KernelCandidate]
    chosen: bool
    expected_s: float = 0.0  # sum over all nodes with this signature

    @property
    def row(self) -> LayerTuning:
        """The report row before any measurement."""
        first = self.candidates[0]
        layout = binding_signature(first.binding)
        return LayerTuning(tuple(self.names), self.node.kind, layout, self.chosen)


class Tuner:
    """Searches nodes without an entry in `lookup` and stores each result at once, so that interruption loses nothing.

    make_bench: makes what measures the trials of a node. on_trial: called after every trial. layers: the report, in
    working order.
    """

    def __init__(
        self,
        lookup: Lookup,
        level: Level,
        make_bench: Callable[[Node], Bench],
        *,
        on_trial: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.lookup = lookup
        self.level = level
        self.layers: list[LayerTuning] = []
        self._make_bench = make_bench
        self._on_trial = on_trial
        self._clock = clock

    def tune(self, nodes: Iterable[Node]) -> list[LayerTuning]:
        """Tunes placed nodes that launch kernels; returns `layers`. Stored results survive an interruption."""
        jobs = find_tuning_jobs(nodes, self.lookup, self.level)
        started = self._clock()
        for i, job in enumerate(jobs):
            left_s = BUDGETS[self.level].model_s - (self._clock() - started)
            self.layers.append(self._known(job) or self._tuned(job, left_s, i, len(jobs)))
        if self._on_trial is not None:
            self._on_trial(Progress(len(jobs), len(jobs), "", 0, 0.0))
        return self.layers

    def _known(self, job: TuningJob) -> LayerTuning | None:
        """The row of a job that a search of this level or a higher one completed."""
        first = job.candidates[0]
        own = self.lookup.entry(job.node, first.kernel, first.binding)
        if own is None or own.level < self.level:
            return None
        entries = [(c, self.lookup.entry(job.node, c.kernel, c.binding)) for c in job.candidates]
        c, best = min(((c, e) for c, e in entries if e is not None), key=lambda pair: pair[1].seconds)
        return replace(
            job.row,
            before=str(self._untuned(job)),
            after=str(Trial(c.kernel, c.binding, tuple(sorted(best.params.items())), best.group)),
            default_s=best.default_seconds,
            seconds=best.seconds,
            state=State.KNOWN,
        )

    def _tuned(self, job: TuningJob, left_s: float, done: int, total: int) -> LayerTuning:
        if left_s <= 0:
            return replace(job.row, state=State.NOT_REACHED, note="the budget ran out; tune again to go on")
        lookup, key = self.lookup, self.lookup.signature(job.node)
        bench = self._make_bench(job.node)
        tried, best_s = 0, float("inf")

        def on_trial(trial: Trial, seconds: float | None) -> None:
            nonlocal tried, best_s
            tried, best_s = tried + 1, min(best_s, seconds if seconds is not None else best_s)
            lookup.database.put_trial(lookup.device_key, key, _trial_key(trial), seconds)
            if self._on_trial is not None:
                self._on_trial(Progress(done, total, job.names[0], tried, best_s))

        found = search(
            make_trials(job.candidates, lookup.device, self.level, bench.group_limit),
            bench,
            lookup.device,
            budget_s=min(BUDGETS[self.level].node_s, left_s),
            clock=self._clock,
            known=self._recalled(job, key),
            on_trial=on_trial,
        )
        row = replace(job.row, wrong=len(found.wrong), refused=len(found.refused))
        if found.best is None:
            reason = next(iter(bench.reasons.values()), "the untuned kernel did not run")
            return replace(row, state=State.FAILED, note=reason)
        self._store(job, key, found)
        return replace(
            row,
            before=str(self._untuned(job)),
            after=str(found.best),
            default_s=found.default_seconds,
            seconds=found.seconds,
            trials=len(found.times),
            complete=found.complete,
        )

    def _untuned(self, job: TuningJob) -> Trial:
        return next(make_trials(job.candidates[:1], self.lookup.device, self.level))

    def _recalled(self, job: TuningJob, key: str) -> dict[Trial, float | None]:
        """Times of earlier searches of this node, for the current candidates."""
        ways = {(kernel_digest(c.kernel), binding_signature(c.binding)): c for c in job.candidates}
        found: dict[Trial, float | None] = {}
        for (kernel, binding, params, group), seconds in self.lookup.database.trials(
            self.lookup.device_key, key
        ).items():
            c = ways.get((kernel, binding))
            if c is not None:
                shape = tuple(json.loads(group)) if group else None
                found[Trial(c.kernel, c.binding, tuple(sorted(json.loads(params).items())), shape)] = seconds
        return found

    def _store(self, job: TuningJob, key: str, found: SearchResult) -> None:
        """Stores one entry per kernel; unconfirmed times are raised to the confirmed winner's."""
        believed = drop_outliers(found.times, self.lookup.device)
        for c in job.candidates:
            own = {t: s for t, s in believed.items() if (t.kernel, t.binding) == (c.kernel, c.binding)}
            best = found.best if found.best in own else min(own, key=lambda t: own[t], default=None)
            if best is None:
                continue
            seconds = found.seconds if best == found.best else max(own[best], found.seconds)
            self.lookup.database.put(
                Entry(
                    self.lookup.device_key,
                    kernel_digest(c.kernel),
                    binding_signature(c.binding),
                    key,
                    best.settings,
                    best.group,
                    seconds,
                    found.default_seconds,
                    self.level if found.complete else Level.NONE,
                )
            )


def find_tuning_jobs(nodes: Iterable[Node], lookup: Lookup, level: Level) -> list[TuningJob]:
    """Distinct nodes of a placed graph in their layouts, the most expensive first; other layouts from WIDE on."""
    jobs: dict[tuple[str, tuple[Layout | None, ...]], TuningJob] = {}
    others: dict[tuple[str, tuple[Layout | None, ...]], TuningJob] = {}
    for node in nodes:
        choice = node.chosen
        key = lookup.signature(node)
        by_layout: dict[tuple[Layout | None, ...], list[tuple[Kernel, Binding, float]]] = {}
        for o in (choice.option, *choice.options):
            if o.kernel is not None and (o.kernel, o.binding) not in {
                (k, b) for k, b, _ in by_layout.get(visible_layouts(node, o.binding), ())
            }:
                by_layout.setdefault(visible_layouts(node, o.binding), []).append((o.kernel, o.binding, o.seconds))
        own = visible_layouts(node, choice.option.binding)
        for layouts, ways in by_layout.items():
            table = jobs if layouts == own else others
            if layouts != own and level < Level.WIDE:
                continue
            job = table.get((key, layouts))
            if job is None:
                candidates = [KernelCandidate(k, b, place_node(node, b)) for k, b, _ in ways]
                job = table[key, layouts] = TuningJob(node, [], candidates, layouts == own)
            job.names.append(node.name)
            job.expected_s += ways[0][2]
    ranked = sorted(jobs.values(), key=lambda j: -j.expected_s)
    rest = [job for key, job in others.items() if key not in jobs]
    return ranked + sorted(rest, key=lambda j: -j.expected_s)


def _trial_key(trial: Trial) -> Key:
    return (kernel_digest(trial.kernel), binding_signature(trial.binding), *settings_text(trial.settings, trial.group))
