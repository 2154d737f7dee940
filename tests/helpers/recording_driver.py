"""A double of a driver with recordable queues (cl_qcom_recordable_queues): C functions that record on one queue and
replay on another, over the device's own kernels.

It is as strict as the extension is known to be: a recordable queue has no other property and computes nothing, takes
launches only between the beginning and the end of a recording, and a recording holds so many launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pyopencl as cl

from opalite.cl.queue import raw_opencl_calls
from opalite.cl.queue.recordable_queues import RECORDABLE, ChangedArgument

INVALID_VALUE, INVALID_OPERATION, INVALID_QUEUE, INVALID_ARG = -30, -59, -36, -49
_POINTER, _INT, _UINT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t

_OWN = {
    "clCreateCommandQueue": "_create_queue",
    "clReleaseCommandQueue": "_release_queue",
    "clNewRecordingQCOM": "_begin",
    "clEnqueueNDRangeKernel": "_add",
    "clEndRecordingQCOM": "_end",
    "clReleaseRecordingQCOM": "_drop",
    "clEnqueueRecordingQCOM": "_replay",
}


class _Recording:
    def __init__(self, queue: int) -> None:
        self.queue = queue
        self.kernels: list[int] = []
        self.sizes: list[tuple[int, Any, Any]] = []
        self.is_open = True


class RecordingDriver:
    """most: launches that a recording holds. keeps: an argument that a replay changes stays so in later ones.

    codes: what a function returns in place of doing anything, by its name. log: the calls, in order. updates: of each
    replay, the (launch, argument) that it changed. alive: recordings and recordable queues that were not released.
    """

    def __init__(self, most: int = 1000, keeps: bool = True, codes: dict[str, int] | None = None) -> None:
        self.most, self.keeps, self.codes = most, keeps, codes or {}
        self.log: list[str] = []
        self.updates: list[list[tuple[int, int]]] = []
        self.lengths: list[int] = []  # of recordings, when they ended
        self._queues: dict[int, int] = {}  # the recording that a recordable queue has begun, 0 for none
        self._recordings: dict[int, _Recording] = {}
        self._next = 16
        self._made: list[Any] = []
        self._enqueue = self._real(
            "clEnqueueNDRangeKernel", _INT, *[_POINTER] * 2, _UINT, *[_POINTER] * 3, _UINT, *[_POINTER] * 2
        )
        self._clone = self._real("clCloneKernel", _POINTER, _POINTER, _POINTER)
        self._set = self._real("clSetKernelArg", _INT, _POINTER, _UINT, _SIZE, _POINTER)
        self._release = self._real("clReleaseKernel", _INT, _POINTER)

    @property
    def alive(self) -> int:
        """Objects that were made and not released."""
        return len(self._queues) + len(self._recordings)

    def find_call(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
        """The loader's function of that name, or the double's own, as a C function."""
        is_own = name in _OWN
        return self._as_c(name, result, arguments) if is_own else raw_opencl_calls.find_call(name, result, *arguments)

    def find_extension(
        self, platform: cl.Platform, name: str, result: Any, *arguments: Any
    ) -> Callable[..., Any] | None:
        """The extension's function of that name, as a C function."""
        return self._as_c(name, result, arguments) if self.codes.get(name) != 404 else None

    def query_device(self, device: cl.Device, name: int, kind: Any) -> int:
        """CL_DEVICE_RECORDABLE_QUEUE_MAX_SIZE."""
        assert (name, kind) == (0x41DE, ctypes.c_uint32)
        return self.most

    def _real(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        found = raw_opencl_calls.find_call(name, result, *arguments)
        assert found is not None
        return found

    def _as_c(self, name: str, result: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        own = getattr(self, _OWN[name])

        def call(*args: Any) -> Any:
            self.log.append(name)
            code = self.codes.get(name, 0)
            if code and result is _POINTER:
                return self._fail(args[-1], code)
            return code or own(*args)

        self._made.append(ctypes.CFUNCTYPE(result, *arguments)(call))
        found: Callable[..., Any] = self._made[-1]
        return found

    def _fail(self, address: int, code: int) -> None:
        _INT.from_address(address).value = code

    def _handle(self) -> int:
        self._next += 16
        return self._next

    def _create_queue(self, context: int, device: int, flags: int, code: int) -> int | None:
        if flags != RECORDABLE:
            return self._fail(code, INVALID_VALUE)
        handle = self._handle()
        self._queues[handle] = 0
        return handle

    def _release_queue(self, queue: int) -> int:
        assert not any(r.queue == queue for r in self._recordings.values()), "a recording may still need its queue"
        del self._queues[queue]
        return 0

    def _begin(self, queue: int, code: int) -> int | None:
        if self._queues.get(queue, 1):
            return self._fail(code, INVALID_QUEUE)
        handle = self._handle()
        self._queues[queue] = handle
        self._recordings[handle] = _Recording(queue)
        return handle

    def _add(self, queue: int, kernel: int, dims: int, offset: int, grid: int, group: int, *events: Any) -> int:
        recording = self._recordings.get(self._queues.get(queue, 0))
        if recording is None or len(recording.kernels) == self.most:
            return INVALID_OPERATION
        assert not any(events)
        assert not offset
        code = _INT()
        recording.kernels.append(self._clone(kernel, ctypes.addressof(code)))
        assert code.value == 0
        sizes = _SIZE * dims
        copies = [sizes.from_buffer_copy(sizes.from_address(a)) if a else None for a in (grid, group)]
        recording.sizes.append((dims, *copies))
        return 0

    def _end(self, handle: int) -> int:
        recording = self._recordings[handle]
        if not recording.is_open:
            return INVALID_OPERATION
        recording.is_open = False
        self._queues[recording.queue] = 0
        self.lengths.append(len(recording.kernels))
        return 0

    def _drop(self, handle: int) -> int:
        for kernel in self._recordings.pop(handle).kernels:
            self._release(kernel)
        return 0

    def _replay(self, queue: int, handle: int, count: int, changed: int, *rest: Any) -> int:
        recording = self._recordings[handle]
        if recording.is_open or queue in self._queues:
            return INVALID_OPERATION
        assert not any(rest), "sizes and offsets are not changed, no event is asked for"
        kernels = list(recording.kernels)
        found = [] if not count else list((ChangedArgument * count).from_address(changed))
        self.updates.append([(c.dispatch, c.index) for c in found])
        code = _INT()
        for c in found:
            if c.dispatch >= len(kernels):
                return INVALID_VALUE
            if not self.keeps and kernels[c.dispatch] == recording.kernels[c.dispatch]:
                kernels[c.dispatch] = self._clone(kernels[c.dispatch], ctypes.addressof(code))
            if self._set(kernels[c.dispatch], c.index, c.size, c.value):
                return INVALID_ARG
        for kernel, own, (dims, grid, group) in zip(kernels, recording.kernels, recording.sizes, strict=True):
            if found_code := self._enqueue(queue, kernel, dims, None, grid, group, 0, None, None):
                return int(found_code)
            if kernel != own:
                self._release(kernel)
        return 0
