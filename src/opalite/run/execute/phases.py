"""Phases: the steps of a Program in the order they are run, all launches between two of another kind put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...cl.events import LaunchTimes
from ...cl.launch import PreparedLaunch, Recording
from ...cl.runtime import Runtime
from ...plan.program import DownloadStep, HostStep, LaunchStep, Program, ReferenceStep, UploadStep
from ...pocl.loop.host_loop import HostLoop
from .exchange import Exchange, steps_outside

Phase: TypeAlias = "Recording | HostLoop | UploadStep | DownloadStep | HostStep | ReferenceStep"
"""A step, or all the launches between two steps of another kind."""

Recorder: TypeAlias = Callable[[LaunchStep, LaunchTimes], None]
"""Called with the LaunchStep and the times of each launch of a profiled run."""


@dataclass(frozen=True)
class Prepared:
    """A Program with its memory and launches on a device: what every strategy runs.

    launches: by number of their step, arguments set. run_on_host: runs one operator on what the host has by slot.
    """

    rt: Runtime
    program: Program
    exchange: Exchange
    launches: Mapping[int, PreparedLaunch]
    run_on_host: Callable[[HostStep | ReferenceStep, list[Any]], None]

    @property
    def launch_count(self) -> int:
        """Launches that compute anything."""
        return sum(isinstance(s, LaunchStep) and all(s.grid) for s in self.program.steps)


def make_phases(
    prepared: Prepared,
    joined: Mapping[int, Sequence[PreparedLaunch]] | None = None,
    loop: HostLoop | None = None,
    replay: bool = False,
) -> list[Phase]:
    """Steps in order. What needs no launch goes before all, and what no launch needs after all.

    joined: what is launched for a step in place of its own launch. loop: stands for all launches. replay: whether
    recordings are replayed from the second run on.
    """
    program = prepared.program
    instead = joined or {}
    first, last = steps_outside(program)
    moved = {id(s) for s in (*first, *last)}
    phases: list[Phase] = [s for s in first if not isinstance(s, LaunchStep)]
    waiting: list[PreparedLaunch] = []

    def add_waiting() -> None:
        if waiting and loop is not None:
            phases.append(loop)
        elif waiting:
            recording = prepared.rt.record(list(waiting), replay=replay)
            prepared.exchange.recordings.append(recording)
            phases.append(recording)
        waiting.clear()

    for i, step in enumerate(program.steps):
        if isinstance(step, LaunchStep):
            waiting.extend(instead[i] if i in instead else [prepared.launches[i]])
        elif id(step) not in moved:
            add_waiting()
            phases.append(step)
    add_waiting()
    return phases + [s for s in last if not isinstance(s, LaunchStep)]
