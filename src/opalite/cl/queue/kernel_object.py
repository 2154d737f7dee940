"""KernelObject: a cl_kernel made without pyopencl, which takes 60 µs for each (PoCL: 1.4 µs).

pyopencl looks up generated code in a disk cache for every cl.Kernel. A decoder has hundreds of launches. A cl.Kernel is
made only for calls of pyopencl that need one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pyopencl as cl

from .raw_opencl_calls import find_call

_NUM_ARGS = 0x1191  # CL_KERNEL_NUM_ARGS


class KernelObject:
    """Kernel `entry` of a program, with its own arguments. int_ptr: its cl_kernel handle."""

    __slots__ = ("_owned", "_wrapped", "int_ptr")

    def __init__(self, program: cl._Program, entry: str) -> None:
        """Raises cl.Error if the program has no such kernel."""
        self._wrapped: cl.Kernel | None = None
        self._owned: int | None = None
        self.int_ptr: int
        calls = _calls()
        if calls is not None:
            code = ctypes.c_int32()
            made = calls[0](program.int_ptr, entry.encode(), ctypes.byref(code))
            if made and not code.value:
                self._owned = self.int_ptr = made
                return
        self._wrapped = cl.Kernel(program, entry)  # raises the error, if any
        self.int_ptr = self._wrapped.int_ptr

    @property
    def num_args(self) -> int:
        """Number of arguments."""
        calls = _calls()
        count = ctypes.c_uint32()
        if calls is not None and not calls[2](self.int_ptr, _NUM_ARGS, ctypes.sizeof(count), ctypes.byref(count), None):
            return count.value
        return int(self.wrapped.num_args)

    @property
    def wrapped(self) -> cl.Kernel:
        """The same kernel as pyopencl's object."""
        if self._wrapped is None:
            self._wrapped = cl.Kernel.from_int_ptr(self.int_ptr, retain=True)
        return self._wrapped

    def __del__(self) -> None:
        if getattr(self, "_owned", None) is not None:
            with suppress(Exception):  # modules may be gone at interpreter exit
                calls = _calls()
                assert calls is not None
                calls[1](self._owned)


@cache
def _calls() -> tuple[Callable[..., Any], ...] | None:
    """clCreateKernel, clReleaseKernel and clGetKernelInfo; None if the loader lacks one."""
    handle, number = ctypes.c_void_p, ctypes.c_int32
    found = (
        find_call("clCreateKernel", handle, handle, ctypes.c_char_p, ctypes.POINTER(number)),
        find_call("clReleaseKernel", number, handle),
        find_call("clGetKernelInfo", number, handle, ctypes.c_uint32, ctypes.c_size_t, handle, handle),
    )
    return tuple(call for call in found if call) if all(found) else None
