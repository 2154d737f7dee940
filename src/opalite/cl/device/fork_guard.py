"""Fork guard: OpenCL objects are neither used nor released in a process forked from their own.

A driver's threads do not exist in the child, and locks that these threads held at the fork stay locked. So any call may
block forever, even the release of an object. `check_fork` raises in a child. `keep_in_forked_children` registers owners
of OpenCL objects, which then live until the child ends.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from ...errors import DeviceError

_owners: weakref.WeakSet[Any] = weakref.WeakSet()


class _Process:
    """started: OpenCL was called in this process or before a fork. is_child: OpenCL was called before a fork."""

    __slots__ = ("is_child", "started")

    def __init__(self) -> None:
        self.started = self.is_child = False


process = _Process()
"""For hot paths after the first OpenCL call: `if process.is_child: check_fork()` saves a function call."""


def check_fork() -> None:
    """Call this before OpenCL. Raises DeviceError in a process that was forked after OpenCL was started."""
    process.started = True
    if process.is_child:
        raise DeviceError(
            "this process was forked after OpenCL was started, which drivers do not survive; start workers with "
            "multiprocessing.get_context('spawn'), or open the session after the fork only"
        )


def is_child() -> bool:
    """Return whether this process was forked after OpenCL was started."""
    return process.is_child


def keep_in_forked_children(owner: Any) -> None:
    """Keep `owner`, and thus its OpenCL objects, alive in processes forked from now on."""
    _owners.add(owner)


def keep_forever(*things: Any) -> None:
    """Keep `things` alive, even beyond interpreter exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(list(things)))


def _enter_child() -> None:
    if process.started:
        process.is_child = True
        keep_forever(*_owners)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
