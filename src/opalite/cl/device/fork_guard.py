"""What becomes of OpenCL objects in a process forked from the one that made them: nothing at all.

A driver's threads do not exist in such a child, and a lock that one of them held at that moment stays locked. So any
call may wait for ever there, the release of an object included. A child refuses to use what it inherited
(`check_fork`), and never releases it: owners of OpenCL objects are registered by
`keep_in_forked_children` and live until the child ends, which gives all its memory back when it ends.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from ...errors import DeviceError

_owners: weakref.WeakSet[Any] = weakref.WeakSet()


class _Process:
    """started: whether OpenCL was called, here or before a fork. is_child: whether that was before a fork."""

    __slots__ = ("is_child", "started")

    def __init__(self) -> None:
        self.started = self.is_child = False


process = _Process()
"""For what must not cost a call: `if process.is_child: check_fork()`, where OpenCL has been called before."""


def check_fork() -> None:
    """To be called before OpenCL is. DeviceError in a process that was forked after OpenCL was started."""
    process.started = True
    if process.is_child:
        raise DeviceError(
            "this process was forked after OpenCL was started, which drivers do not survive; start workers with "
            "multiprocessing.get_context('spawn'), or open the session after the fork only"
        )


def is_child() -> bool:
    """Whether this process was forked after OpenCL was started."""
    return process.is_child


def keep_in_forked_children(owner: Any) -> None:
    """Never let go of `owner`, and of what it holds, in processes forked from now on."""
    _owners.add(owner)


def keep_forever(*things: Any) -> None:
    """Never let go of `things`, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(list(things)))


def _enter_child() -> None:
    if process.started:
        process.is_child = True
        keep_forever(*_owners)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
