"""Ctrl-C ends a command within half a second, with status 130 and without a traceback.

Python raises KeyboardInterrupt only between two of its own instructions: a driver that compiles for seconds is not
interrupted, nor are threads joined at exit. A thread that the signal wakes ends the process then.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

STATUS = 130
"""Exit status of an interrupted command: 128 plus the number of SIGINT, as shells report it."""
_GRACE_S = 0.2
_MESSAGE = b"opalite: interrupted\n"

_started = False
_is_watching = False
_was_told = False


def watch() -> None:
    """End this process soon after SIGINT, whatever its main thread does. For processes that are one command."""
    global _started, _is_watching
    _is_watching = True
    if _started or os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, as of a job in the background
    _started = True
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    os.register_at_fork(after_in_child=_leave_to_parent)
    sys.unraisablehook = _ignore_interrupts
    threading.Thread(target=_end_after_signal, args=(reader,), name="opalite-interrupts", daemon=True).start()


def unwatch() -> None:
    """Leave SIGINT to the command, which ends in its own time."""
    global _is_watching
    _is_watching = False


@contextmanager
def unwatched() -> Iterator[None]:
    """In the block, SIGINT raises KeyboardInterrupt alone."""
    global _is_watching
    before, _is_watching = _is_watching, False
    try:
        yield
    finally:
        _is_watching = before


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an exception came of Ctrl-C: Python wraps a KeyboardInterrupt inside of `__set_name__`, for example."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def end() -> NoReturn:
    """End an interrupted command: threads and processes at work are not waited for beyond the grace."""
    _tell()
    sys.exit(STATUS)


def leave() -> NoReturn:
    """Leave the process with STATUS, after the functions of atexit.

    Python's own end joins threads at work, and gives SIGINT its default action back before it has finished.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(STATUS)


def _tell() -> None:
    global _was_told
    if not _was_told:
        _was_told = True
        os.write(2, _MESSAGE)


def _end_after_signal(reader: int) -> None:
    while True:
        if signal.SIGINT in os.read(reader, 64) and _is_watching:
            time.sleep(_GRACE_S)
            _tell()
            os._exit(STATUS)


def _leave_to_parent() -> None:
    """In a forked child: its signals are not the parent's."""
    signal.set_wakeup_fd(-1)


def _ignore_interrupts(unraisable: Any) -> None:
    """Print exceptions of destructors and callbacks, but for KeyboardInterrupt."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
