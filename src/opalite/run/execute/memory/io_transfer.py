"""IoTransfer: uploads and downloads of one Executable, and the binding of the caller's tensors to its slots.

An input or output that is a DeviceTensor is not copied: the launches that use its slot get the tensor's buffer as
argument, which is set only when another tensor comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....cl.memory.device_tensor import DeviceTensor
from ....cl.memory.inline_upload import InlineUpload
from ....cl.memory.staging_buffer import StagingBuffer
from ....cl.queue.launch_sequence import LaunchSequence
from ....cl.queue.prepared_launch import PreparedLaunch
from ....cl.runtime import Runtime
from ....plan.program import DownloadStep, Port, Program, SlotArg, UploadStep
from ..step_schedule import StepSchedule

Target = Callable[[Port], DeviceTensor]
"""Returns the tensor for an output of the port's dtype and shape; InputError if there is none."""
MAX_COPIED_BYTES = 1 << 20
"""Bytes of an output that stays on the device, up to which it is copied and not bound if launches are linked: linked
kernels contain addresses.
"""


class IoTransfer:
    """The transfers of one program, and the buffers that are bound to its input and output slots.

    has_bindings: other buffers than the program's own may be bound, or outputs must be copied. is_rebound: other
    buffers may be bound. was_rebound: launches may have had other buffers at some time. bytes_up, bytes_down: bytes
    transferred since the last reset to 0. recordings: to be invalidated when arguments are set.
    """

    def __init__(
        self,
        rt: Runtime,
        program: Program,
        own: Mapping[int, StagingBuffer],
        launches: Mapping[int, PreparedLaunch],
        schedule: StepSchedule,
        ready: Callable[[], None],
    ) -> None:
        """Bind the program's own buffers.

        own: buffer of each slot of an upload or a download. launches: by number of their step. schedule: of the
        program. ready: sets the program's arguments on the launches; called before another buffer is bound.
        """
        self._rt = rt
        self._program = program
        self._ready = ready
        self._nbytes = {i: program.slots[i].nbytes for i in own}
        self._own = dict(own)
        self._bound = dict(own)
        self._launches = launches
        self._frozen: dict[int, StagingBuffer] = {}  # by slot, for the megakernel and linked kernels
        self._uses: dict[int, list[tuple[PreparedLaunch, int]]] | None = None  # arguments by slot, once one is bound
        self.recordings: list[LaunchSequence] = []
        steps: list[Any] = program.steps
        self._bindable: dict[int, DownloadStep] = {steps[i].host: steps[i] for i in schedule.bindable}
        self._uploads: dict[int, UploadStep] = {steps[i].host: steps[i] for i in schedule.uploads}
        self._copies: list[tuple[int, DeviceTensor]] = []
        self.has_bindings = (
            False  # whether something else than the program's own memory may be bound, or must be copied
        )
        self.is_rebound = False  # whether something else may be bound
        self.was_rebound = False  # whether launches may have been given something else
        self.bytes_up = self.bytes_down = 0
        self._io_steps: list[UploadStep | DownloadStep] = [steps[i] for i in schedule.io_steps]

    def upload(self, step: UploadStep, value: Any, uploads: InlineUpload | None = None) -> Any:
        """Copy `value` to the step's slot, or bind its buffer.

        Returns an object that must stay alive until the queue has finished. uploads: uploads small arrays with a
        launch, if given.
        """
        own, staging = self._own[step.slot], self._staging_buffer_of(step, value)
        self._bind(step.slot, staging)
        if staging is not own:
            self.has_bindings = self.is_rebound = True
            return None
        self.bytes_up += self._nbytes[step.slot]
        array = value.numpy() if isinstance(value, DeviceTensor) else value
        return own.write(array, step.dtype.np, uploads=uploads)

    def _staging_buffer_of(self, step: UploadStep, value: Any) -> StagingBuffer:
        """The buffer that the step's launches read: the slot's own, or the tensor's."""
        if isinstance(value, DeviceTensor) and value.rt is self._rt and value.dtype == step.dtype.np and value.nbytes:
            return value.staging
        return self._own[step.slot]

    def download(
        self, step: DownloadStep, array: np.ndarray[Any, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Copy the slot to an array, a new one by default.

        Returns the array, and an object that must stay alive until the queue has finished.
        """
        if array is None:
            array = np.empty(step.shape, step.dtype.np)
        self.bytes_down += array.nbytes
        return array, self._bound[step.slot].read(array)

    def download_inline(self, step: DownloadStep, uploads: InlineUpload, target: Any, offset: int, nbytes: int) -> None:
        """Copy the slot to byte `offset` of the device buffer `target`, with the next launch of `uploads`."""
        self.bytes_down += nbytes
        uploads.add_device(self._bound[step.slot].buffer, target, nbytes, offset)

    def memory(self, slot: int) -> StagingBuffer:
        """The slot's own buffer."""
        return self._own[slot]

    def unbind(self) -> None:
        """Bind the program's own buffers again. The launches get their arguments anew afterwards."""
        if self._bound == self._own:
            return
        self._bound = dict(self._own)
        for recording in self.recordings:
            recording.invalidate()

    def shared_array(self, slot: int, dtype: np.dtype[Any], shape: Sequence[int]) -> np.ndarray[Any, Any] | None:
        """The slot's own buffer as a row-major array; None unless the host shares it and the megakernel uses it."""
        own = self._own[slot]
        return own.shared(dtype, shape) if self._frozen.get(slot) is own else None

    def output_view(self, port: Port) -> DeviceTensor | None:
        """A tensor over the output's own buffer, valid until the next run; None if other steps write it, too."""
        step = self._bindable.get(port.host)
        if step is None or 0 in port.shape:
            return None
        return DeviceTensor.view_of(self._rt, self._own[step.slot], port.shape, port.dtype.np)

    def input_view(self, port: Port) -> DeviceTensor | None:
        """A tensor over the input's own buffer, which only uploads write; None if it is stored in another type."""
        step = self._uploads.get(port.host)
        if step is None or step.dtype is not port.dtype or 0 in port.shape:
            return None
        return DeviceTensor.view_of(self._rt, self._own[step.slot], port.shape, port.dtype.np)

    def freeze_bindings(self) -> dict[int, StagingBuffer]:
        """Record the present bindings, by slot. The megakernel and linked kernels contain their addresses."""
        self._frozen = dict(self._bound)
        return self._frozen

    def bindings_match(self, host_values: Sequence[Any]) -> bool:
        """Whether this run's inputs and outputs have the frozen bindings; after `bind_outputs`."""
        held = self._frozen
        return all(
            self._bound[s.slot] is held[s.slot]
            if isinstance(s, DownloadStep)
            else self._staging_buffer_of(s, host_values[s.host]) is held[s.slot]
            for s in self._io_steps
        )

    def can_chain(self, source: Port, target: Port) -> bool:
        """Whether `chain` can copy a run's output `source` to the input `target` of the next run."""
        made, taken = self._bindable.get(source.host), self._uploads.get(target.host)
        if made is None or taken is None or self._rt.shares_memory:
            return False
        return made.dtype is taken.dtype is source.dtype is target.dtype and source.shape == target.shape

    def chain(self, source: int, target: int, uploads: InlineUpload | None = None) -> None:
        """Copy the output in host slot `source` to the input in host slot `target`, on the device.

        uploads: copies small values with a launch, if given.
        """
        made, taken = self._bindable[source], self._uploads[target]
        self._own[taken.slot].copy_from(self._own[made.slot], self._nbytes[taken.slot], uploads)

    def bind_outputs(
        self, targets: Mapping[int, Target], feeds: Sequence[Any], copies: bool = False
    ) -> dict[int, DeviceTensor]:
        """Bind the outputs, by number, that stay on the device. Returns their tensors by host slot.

        copies: small outputs stay in the program's own buffers, and are copied after the launches. An output that other
        steps than launches write is left out: it is returned as an array or as the tensor that was fed.
        """
        fed = {id(f.staging) for f in feeds if isinstance(f, DeviceTensor)}
        on_device: dict[int, DeviceTensor] = {}
        self._copies = []
        for number, target in targets.items():
            port = self._program.outputs[number]
            step = self._bindable.get(port.host)
            if step is None or port.host in on_device or 0 in port.shape:
                continue
            tensor = on_device[port.host] = target(port)
            # A launch may read a fed input after the output is written.
            if id(tensor.staging) in fed or (copies and tensor.nbytes <= MAX_COPIED_BYTES):
                self._copies.append((step.slot, tensor))
                self._bind(step.slot, self._own[step.slot])
            else:
                self._bind(step.slot, tensor.staging)
        for host, step in self._bindable.items():
            if host not in on_device:
                self._bind(step.slot, self._own[step.slot])
        self.is_rebound = any(self._bound[s.slot] is not self._own[s.slot] for s in self._io_steps)
        self.has_bindings = bool(on_device) or self.is_rebound
        return on_device

    def copy_inplace_outputs(self) -> bool:
        """Enqueue the copies to tensors that were not bound. Returns whether there were any."""
        for slot, tensor in self._copies:
            self._rt.copy(self._own[slot].buffer, tensor.buffer, tensor.nbytes)
        return bool(self._copies)

    def _bind(self, slot: int, staging: StagingBuffer) -> None:
        if self._bound[slot] is staging:
            return
        self._ready()
        self.was_rebound = True
        self._bound[slot] = staging
        if self._uses is None:
            self._uses = {}
            for i, launch in self._launches.items():
                for index, a in enumerate(self._program.steps[i].args):  # type: ignore[union-attr]
                    if isinstance(a, SlotArg) and a.slot in self._own:
                        self._uses.setdefault(a.slot, []).append((launch, index))
        for launch, index in self._uses.get(slot, ()):
            launch.set_arg(index, staging.buffer)
        for recording in self.recordings:
            recording.invalidate()
