"""RunCapture: the programs of a run or of a plan, with the graphs that they were planned from, for `opalite lens`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...importer.walk.loop_body_tasks import BodyTask
from ...ir.device.device_info import DeviceInfo
from .profile import Profile, Recorder

if TYPE_CHECKING:
    from ...importer import Segment, Task
    from ...ir.graph import Graph
    from ...plan.planner import PlanOptions
    from ...plan.program import NodeReport, Program


@dataclass(frozen=True)
class Part:
    """One program. graph: as imported, before any pass; None for a bundle. sizes: of its symbols.

    loop: the label of the loop whose body it is; '' outside of loops.
    """

    program: Program
    graph: Graph | None = None
    sizes: tuple[int, ...] = ()
    loop: str = ""


@dataclass
class RunCapture:
    """The parts of a model on a device, in the order of their first run.

    options: by which they were planned; None for a bundle. tasks: host operators between them. probes: graphs that the
    host evaluates, because a branch or a shape depends on their results. profile: of the runs; None for a plan, whose
    times are estimates. notes: sentences on tier, strategy, precision and memory.
    """

    device: DeviceInfo
    precision: str
    parts: list[Part] = field(default_factory=list)
    options: PlanOptions | None = None
    tasks: list[NodeReport] = field(default_factory=list)
    probes: list[Graph] = field(default_factory=list)
    profile: Profile | None = None
    notes: list[str] = field(default_factory=list)


class PartObserver:
    """Adds the programs of a run to a capture, and host tasks to a profile."""

    def __init__(self, capture: RunCapture, recorder: Recorder) -> None:
        self._capture, self._recorder = capture, recorder
        self._seen: set[int] = set()

    def segment(self, segment: Segment, sizes: tuple[int, ...], program: Program, loop: str) -> None:
        """Add the program of a segment, once."""
        if id(program) not in self._seen:
            self._seen.add(id(program))
            self._capture.parts.append(Part(program, segment.graph, sizes, loop))

    def probe(self, segment: Segment) -> None:
        """Add a graph that the host evaluates, once."""
        if segment.graph not in self._capture.probes:
            self._capture.probes.append(segment.graph)

    def task(self, task: Task, begin: float, end: float) -> None:
        """Record a task of the host."""
        self._recorder.task(task.label, isinstance(task, BodyTask), begin, end)
