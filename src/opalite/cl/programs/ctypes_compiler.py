"""OpenCL compiler through ctypes, for build workers: importing pyopencl and NumPy takes 0.14 s more.

That is a quarter of a worker's time to its first program.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

_ALL_TYPES = 0xFFFFFFFF
_PLATFORM_NAME, _DEVICE_VERSION, _BINARY_SIZES, _BINARIES = 0x0902, 0x102F, 0x1165, 0x1166
_NO_DEVICE = -1
_Handles = POINTER(c_void_p)
_INFO = (c_void_p, c_uint32, c_size_t, c_void_p, POINTER(c_size_t))
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "clGetPlatformIDs": (c_int32, (c_uint32, _Handles, POINTER(c_uint32))),
    "clGetDeviceIDs": (c_int32, (c_void_p, c_uint64, c_uint32, _Handles, POINTER(c_uint32))),
    "clGetPlatformInfo": (c_int32, _INFO),
    "clGetDeviceInfo": (c_int32, _INFO),
    "clGetProgramInfo": (c_int32, _INFO),
    "clCreateContext": (c_void_p, (c_void_p, c_uint32, _Handles, c_void_p, c_void_p, POINTER(c_int32))),
    "clCreateProgramWithSource": (
        c_void_p,
        (c_void_p, c_uint32, POINTER(c_char_p), POINTER(c_size_t), POINTER(c_int32)),
    ),
    "clBuildProgram": (c_int32, (c_void_p, c_uint32, _Handles, c_char_p, c_void_p, c_void_p)),
    "clCompileProgram": (
        c_int32,
        (c_void_p, c_uint32, _Handles, c_char_p, c_uint32, c_void_p, c_void_p, c_void_p, c_void_p),
    ),
    "clLinkProgram": (
        c_void_p,
        (c_void_p, c_uint32, _Handles, c_char_p, c_uint32, _Handles, c_void_p, c_void_p, POINTER(c_int32)),
    ),
    "clReleaseProgram": (c_int32, (c_void_p,)),
}


class CallError(Exception):
    """An OpenCL call failed; the message has its status."""


class CtypesDevice:
    """A device with a context. pointer: cl_device_id; platform: name of its platform; version: CL_DEVICE_VERSION."""

    def __init__(self, platform_number: int, device_number: int) -> None:
        """Numbers as in pyopencl's lists. Raises CallError, IndexError or OSError if there is no such device."""
        self._cl = _open_loader()
        platforms = _handles(self._cl.clGetPlatformIDs)
        platform = platforms[platform_number]
        devices = _handles(self._cl.clGetDeviceIDs, platform, _ALL_TYPES)
        self.pointer: int = devices[device_number]
        self.platform = self._text(self._cl.clGetPlatformInfo, platform, _PLATFORM_NAME)
        self.version = self._text(self._cl.clGetDeviceInfo, self.pointer, _DEVICE_VERSION)
        self._devices = (c_void_p * 1)(self.pointer)
        self._context: int | None = None

    def build(self, text: str, options: str) -> bytes:
        """Compile and link a program; returns its binary. Raises CallError if it does not compile."""
        with ExitStack() as stack:
            program = self._program(stack, text)
            _check(self._cl.clBuildProgram(program, 1, self._devices, options.encode(), None, None))
            return self._binary(program)

    def compile(self, stack: ExitStack, text: str, options: str) -> int:
        """Compile a program for `link`; `stack` releases it. Raises CallError if it does not compile."""
        program = self._program(stack, text)
        _check(self._cl.clCompileProgram(program, 1, self._devices, options.encode(), 0, None, None, None, None))
        return program

    def link(self, stack: ExitStack, parts: Sequence[int]) -> bytes:
        """Link compiled programs into one; returns its binary. Raises CallError if that fails."""
        status = c_int32()
        inputs = (c_void_p * len(parts))(*parts)
        context = self._open_context()
        program = self._cl.clLinkProgram(context, 1, self._devices, b"", len(parts), inputs, None, None, byref(status))
        if program:
            stack.callback(self._cl.clReleaseProgram, program)
        _check(status.value)
        return self._binary(program)

    def _open_context(self) -> int:
        if self._context is None:
            status = c_int32()
            self._context = self._cl.clCreateContext(None, 1, self._devices, None, None, byref(status))
            _check(status.value)
        assert self._context is not None
        return self._context

    def _program(self, stack: ExitStack, text: str) -> int:
        raw, status = text.encode(), c_int32()
        source, size = (c_char_p * 1)(raw), (c_size_t * 1)(len(raw))
        program: int = self._cl.clCreateProgramWithSource(self._open_context(), 1, source, size, byref(status))
        _check(status.value)
        stack.callback(self._cl.clReleaseProgram, program)
        return program

    def _binary(self, program: int) -> bytes:
        size = c_size_t()
        get = self._cl.clGetProgramInfo
        _check(get(program, _BINARY_SIZES, ctypes.sizeof(size), byref(size), None))
        binary = ctypes.create_string_buffer(size.value)
        where = (c_void_p * 1)(ctypes.addressof(binary))
        _check(get(program, _BINARIES, ctypes.sizeof(where), where, None))
        return binary.raw

    @staticmethod
    def _text(get: Any, handle: int, number: int) -> str:
        size = c_size_t()
        _check(get(handle, number, 0, None, byref(size)))
        found = ctypes.create_string_buffer(size.value)
        _check(get(handle, number, size.value, found, None))
        return found.value.decode(errors="replace")


def _open_loader() -> ctypes.CDLL:
    """Open pyopencl's extension module; symbol lookup includes the OpenCL loader that it links with."""
    package = importlib.util.find_spec("pyopencl")
    folders = () if package is None else package.submodule_search_locations or ()
    for path in (Path(folder) / f"_cl{suffix}" for folder in folders for suffix in EXTENSION_SUFFIXES):
        if path.exists():
            loader = ctypes.CDLL(str(path))
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(loader, name)
                function.restype, function.argtypes = result, arguments
            return loader
    raise OSError("pyopencl has no module of the kind expected")


def _handles(get: Any, *arguments: Any) -> list[int]:
    """Handles that clGetPlatformIDs or clGetDeviceIDs returns."""
    count = c_uint32()
    status = get(*arguments, 0, None, byref(count))
    if status == _NO_DEVICE:
        return []
    _check(status)
    found = (c_void_p * count.value)()
    _check(get(*arguments, count.value, found, None))
    return [handle or 0 for handle in found]


def _check(status: int) -> None:
    if status:
        raise CallError(f"status {status}")
