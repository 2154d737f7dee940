"""Calls of the OpenCL loader past pyopencl, where that is worth it.

clEnqueueNDRangeKernel without an event object: on an NVIDIA H200 3.4 µs this way, as from C, and 4.35 µs through
pyopencl; on PoCL 3.0 0.9 and 0.75 µs, but pyopencl wants kernel objects that take it 60 (kernel_object.py).
clSetKernelArg: 0.4 µs this way and 8 through pyopencl on PoCL 3.0; a new size sets hundreds.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np
import pyopencl as cl


@cache
def find_loader() -> ctypes.CDLL | None:
    """The OpenCL loader that pyopencl itself is linked to, or None if it cannot be had."""
    try:
        # On Linux and macOS a symbol is also looked up in the libraries that pyopencl's module was linked with.
        library = ctypes.CDLL("OpenCL.dll" if sys.platform == "win32" else cl._cl.__file__)
        library.clEnqueueNDRangeKernel.restype = ctypes.c_int32
        library.clGetDeviceInfo.restype = ctypes.c_int32
        library.clSetKernelArg.restype = ctypes.c_int32
        if hasattr(library, "clSetKernelArgSVMPointer"):
            library.clSetKernelArgSVMPointer.restype = ctypes.c_int32
    except (OSError, AttributeError):
        return None
    return library


def find_call(name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """The loader's function `name`, which takes and gives these ctypes, or None if it cannot be had."""
    loader = find_loader()
    try:
        return None if loader is None else ctypes.CFUNCTYPE(result, *arguments)((name, loader))
    except AttributeError:
        return None


def find_extension(platform: cl.Platform, name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """An extension's function `name` on `platform`, as `find_call`: by its address, else as the loader's own.

    On Android the loader is often the driver itself, which need not tell addresses.
    """
    find = find_call("clGetExtensionFunctionAddressForPlatform", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    address = None if find is None else find(platform.int_ptr, name.encode())
    if address:
        return ctypes.CFUNCTYPE(result, *arguments)(address)
    return find_call(name, result, *arguments)


def query_device(device: cl.Device, name: int, kind: Any) -> int:
    """A property of the device that pyopencl does not know, of ctypes' type `kind`; 0 where it cannot be had."""
    loader = find_loader()
    value = kind()
    if loader is None:
        return 0
    code = loader.clGetDeviceInfo(
        ctypes.c_void_p(device.int_ptr),
        ctypes.c_uint32(name),
        ctypes.c_size_t(ctypes.sizeof(kind)),
        ctypes.byref(value),
        None,
    )
    return int(value.value) if code == 0 else 0


@cache
def find_enqueue(*, holds_gil: bool = False) -> Callable[..., int] | None:
    """The loader's clEnqueueNDRangeKernel, or None if it cannot be had. holds: it keeps the interpreter meanwhile,
    which another thread may not give back for milliseconds; for drivers that do no more than note the launch."""
    loader = find_loader()
    if loader is None or not holds_gil:
        return None if loader is None else loader.clEnqueueNDRangeKernel
    return ctypes.PYFUNCTYPE(ctypes.c_int32)(("clEnqueueNDRangeKernel", loader))


def find_set_arg() -> Callable[..., int] | None:
    """The loader's clSetKernelArg, or None if it cannot be had."""
    loader = find_loader()
    return None if loader is None else loader.clSetKernelArg


def find_set_pointer() -> Callable[..., int] | None:
    """The loader's clSetKernelArgSVMPointer of OpenCL 2.0, or None if it cannot be had."""
    return getattr(find_loader(), "clSetKernelArgSVMPointer", None)


def arg_bytes(value: Any) -> tuple[int, Any]:
    """(size, memory) of an argument for clSetKernelArg: of a number of a NumPy type, or of memory by its handle."""
    if isinstance(value, np.generic):
        raw = value.tobytes()
        return len(raw), raw
    return ctypes.sizeof(ctypes.c_void_p), ctypes.byref(ctypes.c_void_p(value.int_ptr))


class KernelHandle(Protocol):
    """A kernel object, whoever made it."""

    @property
    def int_ptr(self) -> int:
        """The driver's own number of it."""


def enqueue_args(
    queue: cl.CommandQueue, kernel: KernelHandle, grid: tuple[int, ...], group: tuple[int, ...] | None
) -> Any:
    """Arguments for `find_enqueue`'s function, made once. Queue and kernel must be kept alive by the caller."""
    sizes = ctypes.c_size_t * len(grid)
    return (
        ctypes.c_void_p(queue.int_ptr),
        ctypes.c_void_p(kernel.int_ptr),
        ctypes.c_uint32(len(grid)),
        None,
        sizes(*grid),
        None if group is None else sizes(*group),
        ctypes.c_uint32(0),
        None,
        None,
    )
