"""RecordableQueues: replay by cl_qcom_recordable_queues, Qualcomm's extension on Adreno 6xx and later.

Launches enqueued on a recordable queue are recorded, not run. One call enqueues the recording on the usual queue and
may change arguments (docs/running.md). Names and numbers: cl_ext_qcom.h. Tested with an emulation of the extension over
PoCL (tests/device/cl/queue/test_recordable_queues.py), never on a real device.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from ..device.driver_errors import describe_code
from .prepared_launch import PreparedLaunch
from .raw_opencl_calls import arg_bytes, enqueue_args, find_call, find_extension, query_device

EXTENSION = "cl_qcom_recordable_queues"
RECORDABLE = 1 << 30  # CL_QUEUE_RECORDABLE_QCOM; drivers refuse other properties with it
MAX_LAUNCHES = 0x41DE  # CL_DEVICE_RECORDABLE_QUEUE_MAX_SIZE

_POINTER, _INT, _UINT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t
_EXTENSION_CALLS: dict[str, tuple[Any, ...]] = {  # result, arguments
    "clNewRecordingQCOM": (_POINTER, _POINTER, _POINTER),
    "clEndRecordingQCOM": (_INT, _POINTER),
    "clReleaseRecordingQCOM": (_INT, _POINTER),
    # queue, recording; arguments, offsets, global and local sizes to change, a count of each first; events
    "clEnqueueRecordingQCOM": (
        *(_INT, _POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER),
        *(_UINT, _POINTER, _POINTER),
    ),
}
_LOADER_CALLS: dict[str, tuple[Any, ...]] = {
    "clCreateCommandQueue": (_POINTER, _POINTER, _POINTER, ctypes.c_uint64, _POINTER),
    "clReleaseCommandQueue": (_INT, _POINTER),
    "clEnqueueNDRangeKernel": (
        *(_INT, _POINTER, _POINTER, _UINT, _POINTER, _POINTER, _POINTER),
        *(_UINT, _POINTER, _POINTER),
    ),
}


class ChangedArgument(ctypes.Structure):
    """cl_array_arg_qcom: sets argument `index` of recorded launch `dispatch` to the `size` bytes at `value`."""

    _fields_ = (("dispatch", _UINT), ("index", _UINT), ("size", _SIZE), ("value", _POINTER))


class RecordableQueues:
    """The extension's functions on one device. max_launches: of one recording."""

    # A public measurement on an Adreno 830: 32 us for a replay of one launch, 9 us for a launch on the queue.
    min_launches = 8
    """Number of launches from which a replay pays."""

    def __init__(self, max_launches: int, calls: dict[str, Callable[..., Any]]) -> None:
        self.max_launches = max_launches
        self.calls = calls

    def __str__(self) -> str:
        return EXTENSION

    def record(self, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str) -> QueueRecordings:
        """Record non-empty `launches` for replay on `queue`. Raises DeviceError if the driver refuses one."""
        return QueueRecordings(self, queue, launches, device)


def find_recordable_queues(device: cl.Device) -> RecordableQueues | str:
    """The extension's calls on `device`, or the reason why it cannot be used."""
    try:
        if EXTENSION not in device.extensions.split():
            return f"the device has no {EXTENSION}"
    except cl.Error:
        return "the driver does not list its extensions"
    max_launches = query_device(device, MAX_LAUNCHES, _UINT)
    if not max_launches:
        return f"the driver lists {EXTENSION} but records no launch"
    calls: dict[str, Callable[..., Any]] = {}
    for name, (result, *arguments) in _EXTENSION_CALLS.items():
        found = find_extension(device.platform, name, result, *arguments)
        if found is None:
            return f"the driver lists {EXTENSION} but has no {name}"
        calls[name] = found
    for name, (result, *arguments) in _LOADER_CALLS.items():
        found = find_call(name, result, *arguments)
        if found is None:
            return f"the OpenCL loader has no {name}"
        calls[name] = found
    return RecordableQueues(max_launches, calls)


class QueueRecordings:
    """Recorded launches, split into recordings of at most `max_launches`."""

    def __init__(
        self, replay: RecordableQueues, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str
    ) -> None:
        self._replay = replay
        self._queue = queue
        self._device = device
        self._launches = tuple(launches)  # kept alive
        self._recorded = [launch.arguments for launch in launches]
        self._current = list(self._recorded)  # arguments in force
        self._changed: dict[tuple[int, int], tuple[int, Any]] = {}  # by launch and argument: size and value
        self._updates: list[Any] = []
        self._handles: list[int] = []
        self._recorder = 0  # the recording queue; must outlive its recordings
        self._may_run = False  # whether the last replay may still be running
        parts = [self._launches[i : i + replay.max_launches] for i in range(0, len(launches), replay.max_launches)]
        self._recorder = self._open()
        try:
            for part in parts:
                self._record(part)
        except BaseException:
            self._release()  # the error may keep this object alive
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
        """Pass changed arguments with every later replay: a driver need not remember those of earlier replays.

        False if the launches must be recorded again.
        """
        for i, launch in enumerate(self._launches):
            for index, wanted in launch.changed_since(self._current[i]):
                if not isinstance(wanted, np.generic | cl.MemoryObjectHolder):
                    return False
                self._changed[i, index] = arg_bytes(wanted)
            self._current[i] = launch.arguments
        length = self._replay.max_launches
        parts: list[list[ChangedArgument]] = [[] for _ in self._handles]
        for (i, index), (size, memory) in self._changed.items():
            address = ctypes.cast(memory, _POINTER).value
            parts[i // length].append(ChangedArgument(i % length, index, size, address))
        self._updates = [(ChangedArgument * len(p))(*p) if p else None for p in parts]
        return True

    def run(self) -> None:
        """Enqueue without waiting, after the last replay has finished: the extension allows no overlap.

        Raises DeviceError that names the launches if the driver refuses.
        """
        if self._may_run:
            self._queue.finish()
        self._may_run = True
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
