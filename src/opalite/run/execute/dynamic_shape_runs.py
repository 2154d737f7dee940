"""DynamicShapeRuns: runs of an Executable whose sizes change in every run, in buffers of the largest sizes.

Between two runs only numbers are set (plan/template/dynamic_parameters.py): in the tables of a megakernel, in the
launch parameter buffer of linked kernels, or as arguments of launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...cl.memory.inline_upload import InlineUpload
from ...cl.memory.staging_buffer import StagingBuffer
from ...plan.program import DownloadStep, LaunchStep, UploadStep
from ...plan.template.dynamic_parameters import DynamicParameters, Values
from .memory.io_transfer import Target
from .memory.output_ring_buffer import OutputRingBuffer
from .run_trace import RunTrace
from .strategies.inflight_runs import InflightRuns

if TYPE_CHECKING:
    from .executable import Executable


class DynamicShapeRuns:
    """Runs of one program with dynamic parameters. Not thread-safe: the caller holds the executable's lock.

    dynamic: the parameters.
    """

    def __init__(self, executable: Executable, dynamic: DynamicParameters) -> None:
        """ValueError if the program has host operators."""
        for step in dynamic.program.steps:
            if not isinstance(step, LaunchStep | UploadStep | DownloadStep):
                raise ValueError(f"{step.node} runs on the host")
        self._executable, self.dynamic = executable, dynamic
        self._tables = {n: StagingBuffer(executable.rt, dynamic.program.slots[n].nbytes) for n in dynamic.tables}
        steps: Sequence[Any] = dynamic.program.steps
        self._shapes = {steps[i].host: made for i, made in dynamic.shapes.items()}
        self._changing = {k for k, p in enumerate(dynamic.program.outputs) if p.host in self._shapes}
        self._ring: OutputRingBuffer | None = None  # of runs in flight

    def run(
        self,
        values: Values,
        feeds: Sequence[Any],
        targets: Mapping[int, Target] | None = None,
        meanwhile: Callable[[], None] | None = None,
        views: Iterable[int] = (),
    ) -> tuple[list[Any], RunTrace]:
        """Run on `feeds`. Returns the outputs in order, and the trace. values: `dynamic.at` of the sizes of `feeds`.

        targets: outputs, by number, that stay on the device if their shape is constant. meanwhile: called while the
        device computes. views: outputs returned as views of their buffers, valid until the next run.
        """
        executable, changing = self._executable, self._changing
        if executable.program is not self.dynamic.program:
            executable.resize(self.dynamic.program, self.dynamic, self._tables)
        self._prepare(values)
        still = {k: t for k, t in targets.items() if k not in changing} if targets else None
        return executable.run(feeds, still, tuple(views), values=values, meanwhile=meanwhile)

    def inflight(self, links: Mapping[int, int], views: Iterable[int]) -> InflightRuns | None:
        """An object that keeps several runs on the queue; None if the strategy cannot, or is not chosen yet.

        links: by number of an input, the output of the previous run that it is copied from. views: as in `run`.
        """
        executable, program = self._executable, self.dynamic.program
        instance = executable.current
        if instance.program is not program or (queue := instance.selector.settled()) is None:
            return None
        if not all(instance.io.can_chain(program.outputs[o], program.inputs[i]) for i, o in links.items()):
            return None
        if self._ring is None:
            still = (p for k, p in enumerate(program.outputs) if k not in self._changing)
            self._ring = OutputRingBuffer(executable.rt, still)
        chained = {program.inputs[i].host: program.outputs[o].host for i, o in links.items()}
        seen = [k for k in views if k not in self._changing]
        on_device = instance.io.bind(instance.host_values, {}, seen, executable.state)
        return InflightRuns(instance, queue, chained, on_device, self._prepare, self._ring)

    def _prepare(self, values: Values, uploads: InlineUpload | None = None) -> list[Any]:
        """Set what depends on sizes besides launches: shapes of outputs, and contents of constants.

        Returns objects that must stay alive until the queue has finished.
        """
        shapes = self._executable.io.shapes
        for host, shape in self._shapes.items():
            shapes[host] = shape(values)
        arrays = ((slot, made(values)) for slot, made in self.dynamic.tables.items())
        return [self._tables[slot].write(array, array.dtype, uploads=uploads) for slot, array in arrays]
