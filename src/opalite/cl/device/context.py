"""Creation of contexts and queues with extension properties that pyopencl does not support."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pyopencl as cl

from ...errors import DeviceError
from ..queue.raw_opencl_calls import find_call
from .driver_errors import cl_errors, describe_code

Properties = Sequence[tuple[int, int]]
_PLATFORM, _QUEUE_FLAGS = 0x1084, 0x1093  # CL_CONTEXT_PLATFORM, CL_QUEUE_PROPERTIES
_POINTER, _UINT = ctypes.c_void_p, ctypes.c_uint32


def open_context(device: cl.Device, name: str, properties: Properties = ()) -> cl.Context:
    """A context of `device`. name: device name for error messages. Raises DeviceError if the driver refuses."""
    if not properties:
        with cl_errors("Opening a context", name):
            return cl.Context([device])
    listed = _property_list(ctypes.c_ssize_t, [(_PLATFORM, device.platform.int_ptr), *properties])
    devices = (_POINTER * 1)(device.int_ptr)
    made = _creator("clCreateContext", (_POINTER, _UINT, _POINTER, _POINTER, _POINTER), name)(
        listed, 1, devices, None, None
    )
    return cl.Context.from_int_ptr(made, False)


def open_queue(
    context: cl.Context, device: cl.Device, name: str, properties: Properties = (), flags: int = 0
) -> cl.CommandQueue:
    """A queue of `context`. flags: of CL_QUEUE_PROPERTIES. Raises DeviceError if the driver refuses."""
    if not properties:
        with cl_errors("Opening a queue", name):
            return cl.CommandQueue(context, device, flags)
    listed = _property_list(ctypes.c_uint64, [*([(_QUEUE_FLAGS, flags)] if flags else []), *properties])
    made = _creator("clCreateCommandQueueWithProperties", (_POINTER, _POINTER, _POINTER), name)(
        context.int_ptr, device.int_ptr, listed
    )
    return cl.CommandQueue.from_int_ptr(made, False)


def _property_list(of: Any, pairs: Properties) -> Any:
    """Zero-terminated property list."""
    flat = [number for pair in pairs for number in pair]
    return (of * (len(flat) + 1))(*flat, 0)


def _creator(routine: str, arguments: tuple[Any, ...], name: str) -> Any:
    """The loader's create function; `arguments`: ctypes of all arguments but the last, a pointer to the error code."""
    call = find_call(routine, _POINTER, *arguments, _POINTER)
    if call is None:
        raise DeviceError(f"{name}: the OpenCL loader has no {routine}")

    def make(*values: Any) -> int:
        code = ctypes.c_int32()
        made = call(*values, ctypes.addressof(code))
        if code.value or not made:
            raise describe_code(code.value, routine, "Giving hints to the driver", name)
        return int(made)

    return make
