"""HostFunction: a function of a program that PoCL built, called by the host's own thread.

A kernel tells where the function lies (plan/megakernel_source.py). PoCL keeps each kernel in a shared library of its
own and unloads some when it needs others, so the library is held as long as the function may be called. It may unload
one that has only just run: it takes the one of longest ago that it counts as unused, and where launches of one kernel
at several sizes overlapped, it counts that kernel as used for good; so these become all but the last few. Another
library may then lie where the function lay.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

_TRIES = 8  # to find a library where it lies, while others are loaded and unloaded


class _Info(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class HostFunction:
    """take_part of plan/megakernel_source.py at an address: what it is called with, whether it leads, and its
    number."""

    def __init__(self, address: int, library: int) -> None:
        """library: a handle that dlopen gave, which is closed with this object."""
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_bool, ctypes.c_uint32)(address)
        self.release = weakref.finalize(self, _loader().dlclose, library)


def pin_host_function(tell: Callable[[], int]) -> HostFunction | None:
    """The function whose address `tell` gives, by running the kernel; None where its library cannot be told and held.

    The address is asked for again once a library is held, which thus was the function's if it still lies there.
    """
    address = tell()
    for _ in range(_TRIES):
        code, told = find_host_function(address), address
        address = tell()
        if code is not None and address == told:
            return code
        if code is not None:
            code.release()
    return None


def find_host_function(address: int) -> HostFunction | None:
    """The function at `address`; None where its library cannot be told and held.

    Only safe while that library cannot be unloaded; else see `pin_host_function`.
    """
    if not address or sys.platform != "linux":
        return None
    info = _Info()
    if not _loader().dladdr(address, ctypes.byref(info)) or not info.file:
        return None
    library = _loader().dlopen(info.file, os.RTLD_NOW | os.RTLD_NOLOAD)
    return HostFunction(address, library) if library else None


def current_core() -> int:
    """The number of the core that the calling thread is on."""
    core: int = _loader().sched_getcpu()
    return core


@cache
def _loader() -> Any:
    library = ctypes.CDLL(None)
    library.dladdr.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.dlopen.argtypes, library.dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    library.dlclose.argtypes = (ctypes.c_void_p,)
    return library
