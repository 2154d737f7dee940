"""CommandBuffers: replay by cl_khr_command_buffer, called through ctypes because pyopencl does not wrap it.

The extension is provisional and its calls change between versions. Only the versions in TESTED are used.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pyopencl as cl

from ..device.driver_errors import describe_code
from .prepared_launch import PreparedLaunch
from .raw_opencl_calls import find_extension, query_device
from .replay import RecordedLaunches, Replay

EXTENSION = "cl_khr_command_buffer"
TESTED = ((0, 9, 4),)
"""Versions tested with a driver: PoCL 5.0 and 6.0 report 0.9.4."""

_CAPABILITIES = 0x12A9  # CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR
_REQUIRED_PROPERTIES = 0x12AA  # CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR
_FLAGS = 0x1293  # CL_COMMAND_BUFFER_FLAGS_KHR
_CAN_OVERLAP = 4  # CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR
_OVERLAPS = 1  # CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR

_POINTER, _INT, _UINT = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # result, arguments
    "clCreateCommandBufferKHR": (_POINTER, _UINT, _POINTER, _POINTER, _POINTER),
    "clFinalizeCommandBufferKHR": (_INT, _POINTER),
    "clReleaseCommandBufferKHR": (_INT, _POINTER),
    "clCommandNDRangeKernelKHR": (
        *(_INT, _POINTER, _POINTER, _POINTER, _POINTER, _UINT),
        *(_POINTER, _POINTER, _POINTER, _UINT, _POINTER, _POINTER, _POINTER),
    ),
    "clEnqueueCommandBufferKHR": (_INT, _UINT, _POINTER, _POINTER, _UINT, _POINTER, _POINTER),
}


def refusal_of(version: tuple[int, int, int] | None, required_properties: int) -> str:
    """Reason not to use `version` of the extension; '' if it can be used.

    required_properties: queue properties that the device requires for replay; our queues have none.
    """
    if version is None:
        return f"the driver does not report its version of {EXTENSION}"
    text = ".".join(map(str, version))
    if version not in TESTED:
        tested = ", ".join(".".join(map(str, v)) for v in TESTED)
        return f"{EXTENSION} {text} is untested (tested: {tested})"
    if required_properties:
        return f"{EXTENSION} requires a queue with properties {required_properties:#x}"
    return ""


class CommandBuffers(Replay):
    """The extension's functions on one device. overlaps: a buffer may be enqueued again while it runs."""

    min_launches = 2
    noun = "command buffer"

    def __init__(self, version: tuple[int, int, int], overlaps: bool, calls: dict[str, Callable[..., Any]]) -> None:
        self.version = version
        self.overlaps = overlaps
        self.create = calls["clCreateCommandBufferKHR"]
        self.finalize = calls["clFinalizeCommandBufferKHR"]
        self.release = calls["clReleaseCommandBufferKHR"]
        self.add_kernel = calls["clCommandNDRangeKernelKHR"]
        self.enqueue = calls["clEnqueueCommandBufferKHR"]

    def __str__(self) -> str:
        return f"{EXTENSION} {'.'.join(map(str, self.version))}"

    def record(self, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str) -> CommandBuffer:
        """Record launches, as `Replay.record`."""
        return CommandBuffer(self, queue, launches, device)


def find_command_buffers(device: cl.Device) -> CommandBuffers | str:
    """The extension's calls on `device`, or the reason why it cannot be used."""
    try:
        if EXTENSION not in device.extensions.split():
            return f"the device has no {EXTENSION}"
    except cl.Error:
        return "the driver does not list its extensions"
    version = _version(device)
    reason = refusal_of(version, query_device(device, _REQUIRED_PROPERTIES, ctypes.c_uint64))
    if version is None or reason:
        return reason
    calls = _find_calls(device.platform)
    if isinstance(calls, str):
        return calls
    capabilities = query_device(device, _CAPABILITIES, ctypes.c_uint64)
    return CommandBuffers(version, bool(capabilities & _CAN_OVERLAP), calls)


def _version(device: cl.Device) -> tuple[int, int, int] | None:
    try:
        listed = device.extensions_with_version
    except (cl.Error, AttributeError):
        return None
    for entry in listed:
        if entry.name == EXTENSION:
            packed = int(entry.version)
            return packed >> 22, packed >> 12 & 0x3FF, packed & 0xFFF
    return None


def _find_calls(platform: cl.Platform) -> dict[str, Callable[..., Any]] | str:
    calls: dict[str, Callable[..., Any]] = {}
    for name, signature in _SIGNATURES.items():
        found = find_extension(platform, name, *signature)
        if found is None:
            return f"the driver lists {EXTENSION} but has no {name}"
        calls[name] = found
    return calls


class CommandBuffer(RecordedLaunches):
    """A recorded command buffer."""

    def __init__(
        self, replay: CommandBuffers, queue: cl.CommandQueue, launches: Sequence[PreparedLaunch], device: str
    ) -> None:
        """Record non-empty `launches`. Raises DeviceError if the driver refuses one."""
        self._replay = replay
        self._queue = queue
        self._device = device
        self._launches = tuple(launches)  # kept alive
        self._handle = None
        code = ctypes.c_int32()
        properties = (ctypes.c_uint64 * 3)(_FLAGS, _OVERLAPS if replay.overlaps else 0, 0)
        self._handle = replay.create(1, (_POINTER * 1)(queue.int_ptr), properties, ctypes.byref(code))
        self._check(code.value, "clCreateCommandBufferKHR", "Making a command buffer")
        for launch in launches:
            sizes = ctypes.c_size_t * len(launch.grid)
            group = None if launch.group is None else sizes(*launch.group)
            code.value = replay.add_kernel(
                *(self._handle, None, None, launch.kernel.int_ptr, len(launch.grid), None),
                *(sizes(*launch.grid), group, 0, None, None, None),
            )
            self._check(code.value, "clCommandNDRangeKernelKHR", f"Recording: {launch.describe()}")
        self._check(replay.finalize(self._handle), "clFinalizeCommandBufferKHR", "Closing a command buffer")

    def run(self) -> None:
        """Enqueue the buffer, as `RecordedLaunches.run`."""
        replay = self._replay
        if not replay.overlaps:
            self._queue.finish()
        code = replay.enqueue(0, None, self._handle, 0, None, None)
        if code:
            what = f"Replaying {len(self._launches)} launches from {self._launches[0].label} on"
            self._check(code, "clEnqueueCommandBufferKHR", what)

    def _check(self, code: int, routine: str, doing: str) -> None:
        if code:
            raise describe_code(code, routine, doing, self._device)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_handle", None) and not is_finalizing():
            self._replay.release(self._handle)
