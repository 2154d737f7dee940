"""Recordable queues (cl_qcom_recordable_queues): launches recorded once on a queue of their own, replayed on another.

Qualcomm's answer to command buffers, on Adreno from 6xx on. A queue made with one property records what is enqueued on
it and computes nothing; the recording is then enqueued on the usual queue by one call, which may also give arguments
other values. Names and numbers: cl_ext_qcom.h. Tested with a double of the extension over PoCL
(tests/device/cl/test_recordable_queues.py), never run on a device that has it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from ..device.driver_errors import describe_code
from .raw_opencl_calls import arg_bytes, enqueue_args, find_call, find_extension, query_device
from .replay import RecordedLaunches, Replay

if TYPE_CHECKING:
    from .prepared_launch import PreparedLaunch

EXTENSION = "cl_qcom_recordable_queues"
LACKING = f"the device has no {EXTENSION}"
RECORDABLE = 1 << 30  # CL_QUEUE_RECORDABLE_QCOM; drivers refuse it beside any other property
MOST_LAUNCHES = 0x41DE  # CL_DEVICE_RECORDABLE_QUEUE_MAX_SIZE

_POINTER, _INT, _UINT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t
_OF_EXTENSION: dict[str, tuple[Any, ...]] = {  # result, arguments
    "clNewRecordingQCOM": (_POINTER, _POINTER, _POINTER),
    "clEndRecordingQCOM": (_INT, _POINTER),
    "clReleaseRecordingQCOM": (_INT, _POINTER),
    # queue, recording; arguments, offsets, global and local sizes to change, a count of each first; events
    "clEnqueueRecordingQCOM": (
        *(_INT, _POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER),
        *(_UINT, _POINTER, _POINTER),
    ),
}
_OF_LOADER: dict[str, tuple[Any, ...]] = {
    "clCreateCommandQueue": (_POINTER, _POINTER, _POINTER, ctypes.c_uint64, _POINTER),
    "clReleaseCommandQueue": (_INT, _POINTER),
    "clEnqueueNDRangeKernel": (
        *(_INT, _POINTER, _POINTER, _UINT, _POINTER, _POINTER, _POINTER),
        *(_UINT, _POINTER, _POINTER),
    ),
}


class ChangedArgument(ctypes.Structure):
    """cl_array_arg_qcom: argument `index` of launch `dispatch` of a recording becomes the `size` bytes at `value`."""

    _fields_ = (("dispatch", _UINT), ("index", _UINT), ("size", _SIZE), ("value", _POINTER))


class RecordableQueues(Replay):
    """The extension's functions on one device. most: launches that one recording holds."""

    # A public measurement on an Adreno 830: 32 us for a replay of one launch, 9 us for a launch on the queue.
    least = 8
    noun = "recording"

    def __init__(self, most: int, calls: dict[str, Callable[..., Any]]) -> None:
        self.most = most
        self.calls = calls

    def __str__(self) -> str:
        return EXTENSION

    def record(self, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str) -> QueueRecordings:
        """As Replay.record."""
        return QueueRecordings(self, queue, launches, device)


def find_recordable_queues(device: cl.Device) -> RecordableQueues | str:
    """The calls to record and replay with on `device`, or why there are none."""
    try:
        if EXTENSION not in device.extensions.split():
            return LACKING
    except cl.Error:
        return "the driver does not tell its extensions"
    most = query_device(device, MOST_LAUNCHES, _UINT)
    if not most:
        return f"the driver lists {EXTENSION} but records no launch"
    calls: dict[str, Callable[..., Any]] = {}
    for name, (result, *arguments) in _OF_EXTENSION.items():
        found = find_extension(device.platform, name, result, *arguments)
        if found is None:
            return f"the driver lists {EXTENSION} but has no {name}"
        calls[name] = found
    for name, (result, *arguments) in _OF_LOADER.items():
        found = find_call(name, result, *arguments)
        if found is None:
            return f"the OpenCL loader has no {name}"
        calls[name] = found
    return RecordableQueues(most, calls)


class QueueRecordings(RecordedLaunches):
    """Launches recorded with their present arguments, in as many recordings as the device needs for them."""

    can_update = True

    def __init__(
        self, replay: RecordableQueues, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str
    ) -> None:
        """DeviceError if the driver refuses to record one of `launches`, none of which may be empty."""
        self._replay = replay
        self._queue = queue
        self._device = device
        self._launches = tuple(launches)  # what was recorded is kept alive
        self._recorded = [launch.arguments for launch in launches]
        self._held = list(self._recorded)  # those that it has now
        self._changed: dict[tuple[int, int], tuple[int, Any]] = {}  # launch, argument: bytes and memory of its value
        self._updates: list[Any] = []
        self._handles: list[int] = []
        self._recorder = 0  # the queue that records, kept as long as what it recorded
        self._runs = False  # whether it may still be running
        parts = [self._launches[i : i + replay.most] for i in range(0, len(launches), replay.most)]
        self._recorder = self._open()
        try:
            for part in parts:
                self._record(part)
        except BaseException:
            self._release()  # the error may be kept, and this with it
            raise
        self._updates = [None] * len(self._handles)

    def _open(self) -> int:
        code = _INT()
        queue = self._queue
        made = self._replay.calls["clCreateCommandQueue"](
            queue.context.int_ptr, queue.device.int_ptr, RECORDABLE, ctypes.addressof(code)
        )
        self._check(code.value, "clCreateCommandQueue", "Opening a recordable queue")
        return int(made)

    def _record(self, launches: Sequence[PreparedLaunch]) -> None:
        calls, recorder, code = self._replay.calls, self._recorder, _INT()
        handle = calls["clNewRecordingQCOM"](recorder, ctypes.addressof(code))
        self._check(code.value, "clNewRecordingQCOM", "Beginning a recording")
        self._handles.append(handle)
        try:
            for launch in launches:
                found = calls["clEnqueueNDRangeKernel"](
                    recorder, *enqueue_args(self._queue, launch.kernel, launch.grid, launch.group)[1:]
                )
                self._check(found, "clEnqueueNDRangeKernel", f"Recording: {launch.describe()}")
        finally:
            found = calls["clEndRecordingQCOM"](handle)
        self._check(found, "clEndRecordingQCOM", "Ending a recording")

    def update(self) -> bool:
        """As Recorded.update: changed arguments go with every later replay.

        Whether a driver keeps what it was given with an earlier one does not matter so.
        """
        for i, launch in enumerate(self._launches):
            for index, wanted in launch.changed_since(self._held[i]):
                if not isinstance(wanted, np.generic | cl.MemoryObjectHolder):
                    return False
                self._changed[i, index] = arg_bytes(wanted)
            self._held[i] = launch.arguments
        most = self._replay.most
        parts: list[list[ChangedArgument]] = [[] for _ in self._handles]
        for (i, index), (size, memory) in self._changed.items():
            address = ctypes.cast(memory, _POINTER).value
            parts[i // most].append(ChangedArgument(i % most, index, size, address))
        self._updates = [(ChangedArgument * len(p))(*p) if p else None for p in parts]
        return True

    def run(self) -> None:
        """As Recorded.run. Nobody says that a recording may be enqueued while it runs, so it waits for the last one."""
        if self._runs:
            self._queue.finish()
        self._runs = True
        queue, enqueue = self._queue.int_ptr, self._replay.calls["clEnqueueRecordingQCOM"]
        for handle, updates in zip(self._handles, self._updates, strict=True):
            count = 0 if updates is None else len(updates)
            code = enqueue(queue, handle, count, updates, 0, None, 0, None, 0, None, 0, None, None)
            if code:
                what = f"Replaying {len(self._launches)} launches from {self._launches[0].label} on"
                self._check(code, "clEnqueueRecordingQCOM", what)

    def _check(self, code: int, routine: str, doing: str) -> None:
        if code:
            raise describe_code(code, routine, doing, self._device)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():
            self._release()

    def _release(self) -> None:
        while self._handles:
            self._replay.calls["clReleaseRecordingQCOM"](self._handles.pop())
        if self._recorder:
            self._replay.calls["clReleaseCommandQueue"](self._recorder)
        self._recorder = 0
