"""Translation of OpenCL errors to DeviceError, with advice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyopencl as cl

from ...errors import DeviceError, DeviceMemoryError

_MEMORY_CODES = frozenset(
    getattr(cl.status_code, name)
    for name in ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE", "INVALID_IMAGE_SIZE")
)
_ADVICE = {
    "OUT_OF_RESOURCES": "the kernel needs more registers or local memory than the device has, or reads out of bounds; "
    "try a smaller work-group or OPALITE_CHECK=1",
    "INVALID_WORK_GROUP_SIZE": "the work-group does not divide the global size or is larger than this kernel allows",
    "INVALID_KERNEL_ARGS": "an argument of the kernel was never set",
    "DEVICE_NOT_AVAILABLE": "another process may hold the device, or it was reset; `opalite doctor` looks at it",
    "INVALID_COMMAND_QUEUE": "an earlier kernel crashed the queue, and the data on the device is lost",
}


def code_name(code: int) -> str:
    """Name of an OpenCL status code, such as INVALID_VALUE."""
    return str(cl.status_code.to_string(code, "error %d"))


def translate(error: cl.Error, doing: str, device: str) -> DeviceError:
    """The DeviceError, or DeviceMemoryError, for `error` while `doing` (such as "Reading the output") on `device`."""
    return describe_code(error.code, error.routine or "an OpenCL call", doing, device)


def describe_code(code: int, routine: str, doing: str, device: str) -> DeviceError:
    """As `translate`, for a status code that `routine` returned."""
    name = code_name(code)
    text = f"{doing} on {device}: {routine} failed with {name}"
    if code in _MEMORY_CODES:
        return DeviceMemoryError(f"{text}. Close other programs that use the device, or use a smaller batch or input")
    return DeviceError(f"{text}. {advice}" if (advice := _ADVICE.get(name)) else text)


@contextmanager
def cl_errors(doing: str, device: str) -> Iterator[None]:
    """Raise OpenCL errors inside the block as DeviceError; `doing` begins the message ("Reading the output")."""
    try:
        yield
    except cl.Error as e:
        raise translate(e, doing, device) from e
