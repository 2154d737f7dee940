"""Direct ctypes calls of the OpenCL loader, where pyopencl's overhead matters.

clEnqueueNDRangeKernel without an event: 3.4 µs on an NVIDIA H200, as from C (pyopencl: 4.35); 0.9 µs on PoCL 3.0
(pyopencl: 0.75, but its kernel objects take 60 µs each, see kernel_object.py). clSetKernelArg: 0.4 µs on PoCL 3.0
(pyopencl: 8); a new shape sets hundreds of arguments.
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
    """The OpenCL loader that pyopencl is linked to; None if it cannot be opened."""
    try:
        # On Linux and macOS symbol lookup includes the libraries that pyopencl's module is linked with.
        library = ctypes.CDLL("OpenCL.dll" if sys.platform == "win32" else cl._cl.__file__)
        library.clEnqueueNDRangeKernel.restype = ctypes.c_int32
        library.clSetKernelArg.restype = ctypes.c_int32
        if hasattr(library, "clSetKernelArgSVMPointer"):
            library.clSetKernelArgSVMPointer.restype = ctypes.c_int32
    except (OSError, AttributeError):
        return None
    return library


def find_call(name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """The loader's function `name` with these ctypes; None if the loader lacks it."""
    loader = find_loader()
    try:
        return None if loader is None else ctypes.CFUNCTYPE(result, *arguments)((name, loader))
    except AttributeError:
        return None


def find_extension(platform: cl.Platform, name: str, result: Any, *arguments: Any) -> Callable[..., Any] | None:
    """An extension's function `name` on `platform`, by clGetExtensionFunctionAddressForPlatform, else as `find_call`.

    On Android the loader is often the driver itself, which may return no addresses.
    """
    find = find_call("clGetExtensionFunctionAddressForPlatform", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    address = None if find is None else find(platform.int_ptr, name.encode())
    if address:
        return ctypes.CFUNCTYPE(result, *arguments)(address)
    return find_call(name, result, *arguments)


def query_device(device: cl.Device, name: int, kind: Any) -> int:
    """A device property that pyopencl lacks, as ctypes type `kind`; 0 if the query fails."""
    value, pointer = kind(), ctypes.c_void_p
    find = find_call("clGetDeviceInfo", ctypes.c_int32, pointer, ctypes.c_uint32, ctypes.c_size_t, pointer, pointer)
    code = find and find(device.int_ptr, name, ctypes.sizeof(kind), ctypes.addressof(value), None)
    return int(value.value) if code == 0 else 0


@cache
def find_enqueue(*, holds_gil: bool = False) -> Callable[..., int] | None:
    """The loader's clEnqueueNDRangeKernel; None if the loader cannot be opened.

    holds_gil: the call keeps the GIL, since another thread could otherwise take it for milliseconds; only for drivers
    whose call returns at once.
    """
    loader = find_loader()
    if loader is None or not holds_gil:
        return None if loader is None else loader.clEnqueueNDRangeKernel
    return ctypes.PYFUNCTYPE(ctypes.c_int32)(("clEnqueueNDRangeKernel", loader))


def find_set_arg() -> Callable[..., int] | None:
    """The loader's clSetKernelArg; None if the loader cannot be opened."""
    loader = find_loader()
    return None if loader is None else loader.clSetKernelArg


def find_set_pointer() -> Callable[..., int] | None:
    """The loader's clSetKernelArgSVMPointer (OpenCL 2.0); None if the loader lacks it."""
    return getattr(find_loader(), "clSetKernelArgSVMPointer", None)


def arg_bytes(value: Any) -> tuple[int, Any]:
    """(size, value) of an argument for clSetKernelArg: a NumPy scalar, or a memory object by its handle."""
    if isinstance(value, np.generic):
        raw = value.tobytes()
        return len(raw), raw
    return ctypes.sizeof(ctypes.c_void_p), ctypes.byref(ctypes.c_void_p(value.int_ptr))


class KernelHandle(Protocol):
    """Any object with a cl_kernel handle."""

    @property
    def int_ptr(self) -> int:
        """The cl_kernel handle."""


def enqueue_args(
    queue: cl.CommandQueue, kernel: KernelHandle, grid: tuple[int, ...], group: tuple[int, ...] | None
) -> Any:
    """Prebuilt arguments of clEnqueueNDRangeKernel. The caller keeps queue and kernel alive."""
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
