"""HostFunction: machine code of a PoCL program, called as a function by a host thread.

A kernel returns the function's address (plan/megakernel_source.py). PoCL has a shared library for each kernel and
unloads libraries, even a library that has just run: overlapping launches of a kernel at several sizes count as
permanent uses and leave few candidates. So the library is pinned while the function may be called. Before the pinning,
another library may have been loaded at the address, so the address is queried again.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

_TRIES = 8  # to pin a library while others are loaded and unloaded


class _Info(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class HostFunction:
    """Function lead_run(call) of plan/megakernel_source.py, at an address."""

    def __init__(self, address: int, library: int) -> None:
        """library: handle of dlopen, closed with this object."""
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        self.release = weakref.finalize(self, _loader().dlclose, library)


def pin_host_function(query: Callable[[], int]) -> HostFunction | None:
    """Pin the library of the function whose address `query` returns by running the kernel; None if that fails.

    An equal address after pinning proves that the library is the function's.
    """
    address = query()
    for _ in range(_TRIES):
        code, before = find_host_function(address), address
        address = query()
        if code is not None and address == before:
            return code
        if code is not None:
            code.release()
    return None


def find_host_function(address: int) -> HostFunction | None:
    """The function at `address`; None if its library cannot be found and pinned.

    Safe only while the library cannot be unloaded; see `pin_host_function`.
    """
    if not address or sys.platform != "linux":
        return None
    info = _Info()
    if not _loader().dladdr(address, ctypes.byref(info)) or not info.file:
        return None
    library = _loader().dlopen(info.file, os.RTLD_NOW | os.RTLD_NOLOAD)
    return HostFunction(address, library) if library else None


def current_core() -> int:
    """Number of the core on which the calling thread runs."""
    core: int = _loader().sched_getcpu()
    return core


@cache
def _loader() -> Any:
    library = ctypes.CDLL(None)
    library.dladdr.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.dlopen.argtypes, library.dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    library.dlclose.argtypes = (ctypes.c_void_p,)
    return library
