"""IoTransfer: uploads and downloads of one program, and the binding of the caller's tensors to its slots.

An input or output that is a DeviceTensor is not copied: its buffer is bound to the slot, and strategies have launches
access it there. State that lasts from run to run is bound likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.inline_upload import InlineUpload
from ....cl.memory.pinned_arrays import LEAST_BYTES
from ....cl.memory.staging_buffer import StagingBuffer
from ....cl.runtime import Runtime
from ....plan.program import DownloadStep, Port, Program, UploadStep
from ..step_schedule import StepSchedule

Target = Callable[[Port], DeviceTensor]
"""Returns the tensor for an output of the port's dtype and shape; InputError if there is none."""
Bindings: TypeAlias = Mapping[int, StagingBuffer]
"""Buffers by slot, in place of the program's own. Never changed: other bindings are another mapping."""
UNBOUND: Bindings = {}
MOST_PINNED = 1 << 20
"""Bytes of an input that is copied to pinned memory first: an H200 takes 0.06 ms for 0.5 MB, else 0.08."""
_ALIGNED = 64


class IoTransfer:
    """The transfers of one program, and the buffers that are bound to its slots.

    bound: the bindings of the run. has_tensors: they are more than the state. shapes: of outputs by host slot, if they
    differ from the program's. bytes_up, bytes_down: bytes transferred since the last reset to 0.
    """

    def __init__(self, rt: Runtime, program: Program, own: Mapping[int, StagingBuffer], schedule: StepSchedule) -> None:
        """own: buffer of each slot of an upload or a download. schedule: of the program."""
        self._rt = rt
        self._program = program
        self._nbytes = {i: program.slots[i].nbytes for i in own}
        self._own = own
        self.bound, self.has_tensors = UNBOUND, False
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.bytes_up = self.bytes_down = 0
        self._is_pinned = rt.copies_memory
        steps: list[Any] = program.steps
        self._bindable: dict[int, DownloadStep] = {steps[i].host: steps[i] for i in schedule.bindable}
        self._uploads: dict[int, UploadStep] = {steps[i].host: steps[i] for i in schedule.uploads}
        inputs = {p.host for p in program.inputs}
        self._inputs = [s for s in map(steps.__getitem__, schedule.first) if isinstance(s, UploadStep)]
        self._inputs = [s for s in self._inputs if s.host in inputs]

    def bind(
        self, host_values: Sequence[Any], targets: Mapping[int, Target], views: Iterable[int], state: Bindings
    ) -> dict[int, DeviceTensor]:
        """Bind inputs and outputs that stay on the device. Returns the tensors of outputs by host slot.

        host_values: of the run, by host slot. targets, views: outputs by number, as in `Executable.run`. state: bound
        in any case. An output that other steps than launches write is left out: it is returned as an array or as the
        tensor that was fed.
        """
        bound = dict(state)
        fed: set[int] = set()
        for taken in self._inputs:
            value = host_values[taken.host]
            if isinstance(value, DeviceTensor):
                fed.add(id(value.staging))
                if value.rt is self._rt and value.dtype == taken.dtype.np and value.nbytes:
                    bound[taken.slot] = value.staging
        on_device: dict[int, DeviceTensor] = {}
        for number, target in targets.items():
            port = self._program.outputs[number]
            step = self._bindable.get(port.host)
            if step is None or port.host in on_device or 0 in port.shape:
                continue
            tensor = on_device[port.host] = target(port)
            if id(tensor.staging) not in fed:  # else a launch may read the input after the output is written
                bound[step.slot] = tensor.staging
        for number in views:
            port = self._program.outputs[number]
            if port.host not in on_device and (view := self._output_view(port)) is not None:
                on_device[port.host] = view
        self.has_tensors = bound != state
        if bound != self.bound:
            self.bound = bound if self.has_tensors else state
        return on_device

    def copy_unbound(self, on_device: Mapping[int, DeviceTensor]) -> bool:
        """Enqueue copies of outputs to those tensors that are not bound. Returns whether there are any."""
        copied = False
        for host, tensor in on_device.items():
            slot = self._bindable[host].slot
            own = self._own[slot]
            if slot not in self.bound and tensor.staging is not own:
                self._rt.copy(own.buffer, tensor.buffer, tensor.nbytes)
                copied = True
        return copied

    def upload(
        self, step: UploadStep, value: Any, uploads: InlineUpload | None = None, *, is_alone: bool = False
    ) -> Any:
        """Copy `value` to the step's slot, unless it is bound.

        Returns an object that must stay alive until the queue has finished. uploads: uploads small arrays with a
        launch, if given. is_alone: no other run is in flight, which may use the same pinned memory.
        """
        if step.slot in self.bound:
            return None
        array = value.numpy() if isinstance(value, DeviceTensor) else value
        self.bytes_up += array.nbytes
        through = self._pinned.get(step.slot) if is_alone and self._is_pinned else None
        return self._own[step.slot].write(array, step.dtype.np, uploads=uploads, through=through)

    def download(
        self, step: DownloadStep, array: np.ndarray[Any, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Copy the slot to an array, a new one by default.

        Returns the array, and an object that must stay alive until the queue has finished.
        """
        if array is None:
            shape, dtype = self.shapes.get(step.host, step.shape), step.dtype.np
            array = self._rt.pinned_arrays.empty(shape, dtype) if self._is_pinned else np.empty(shape, dtype)
        self.bytes_down += array.nbytes
        return array, self._own[step.slot].read(array)

    def download_small(self, step: DownloadStep) -> np.ndarray[Any, Any] | None:
        """Copy the slot to pinned memory that the next run overwrites; None for large outputs and shared memory.

        The caller copies the array once the queue has finished. A read to a new array takes 10 us longer on an H200.
        """
        memory = self._pinned.get(step.slot) if self._is_pinned else None
        if memory is None:
            return None
        shape, dtype = self.shapes.get(step.host, step.shape), step.dtype.np
        array: np.ndarray[Any, Any] = memory[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        self.bytes_down += array.nbytes
        self._own[step.slot].read(array)
        return array

    @cached_property
    def _pinned(self) -> dict[int, np.ndarray[Any, Any]]:
        """Pinned memory by slot, of inputs up to MOST_PINNED bytes, and of outputs that get no pinned array."""
        most = dict.fromkeys((s.slot for s in self._uploads.values()), MOST_PINNED)
        most |= dict.fromkeys((s.slot for s in self._bindable.values()), LEAST_BYTES - 1)
        sizes = {n: -(-self._nbytes[n] // _ALIGNED) * _ALIGNED for n in most if 0 < self._nbytes[n] <= most[n]}
        memory = self._rt.pinned_arrays.empty((max(LEAST_BYTES, sum(sizes.values())),), np.dtype(np.uint8))
        places = zip(sizes, accumulate(sizes.values(), initial=0), strict=False)
        return {slot: memory[first : first + sizes[slot]] for slot, first in places}

    def download_inline(self, step: DownloadStep, uploads: InlineUpload, target: Any, offset: int, nbytes: int) -> None:
        """Add a copy of the step's slot to byte `offset` of device buffer `target` to the next launch of `uploads`."""
        self.bytes_down += nbytes
        uploads.add_device(self._own[step.slot].buffer, target, nbytes, offset)

    def memory(self, slot: int) -> StagingBuffer:
        """The slot's own buffer."""
        return self._own[slot]

    def _output_view(self, port: Port) -> DeviceTensor | None:
        """A tensor over the output's own buffer, valid until the next run; None if other steps write it, too."""
        step = self._bindable.get(port.host)
        if step is None or 0 in port.shape:
            return None
        shape = self.shapes.get(port.host, port.shape)
        return DeviceTensor.view_of(self._rt, self._own[step.slot], shape, port.dtype.np)

    def input_views(self, feeds: Iterable[Any]) -> list[DeviceTensor | None]:
        """Views of the uploaded arrays among `feeds`, valid until the next run; None for other inputs."""
        ports = zip(self._program.inputs, feeds, strict=True)
        return [self._input_view(port) if isinstance(array, np.ndarray) else None for port, array in ports]

    def _input_view(self, port: Port) -> DeviceTensor | None:
        """A tensor on the input's own buffer, which only uploads write; None if the stored type differs."""
        step = self._uploads.get(port.host)
        if step is None or step.dtype is not port.dtype or 0 in port.shape:
            return None
        return DeviceTensor.view_of(self._rt, self._own[step.slot], port.shape, port.dtype.np)

    def can_chain(self, source: Port, target: Port) -> bool:
        """Whether `chain` can copy a run's output `source` to the input `target` of the next run."""
        made, taken = self._bindable.get(source.host), self._uploads.get(target.host)
        if made is None or taken is None or self._rt.shares_memory:
            return False
        return made.dtype is taken.dtype is source.dtype is target.dtype and source.shape == target.shape

    def chain(self, source: int, target: int, uploads: InlineUpload | None = None) -> None:
        """Copy the output in host slot `source` to the input in host slot `target`, on the device.

        uploads: if given, copies small values by a launch.
        """
        made, taken = self._bindable[source], self._uploads[target]
        self._own[taken.slot].copy_from(self._own[made.slot], self._nbytes[taken.slot], uploads)
