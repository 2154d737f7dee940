"""The figures of sessions, a line of JSON for each when it is closed, or when the interpreter ends (OPALITE_STATS)."""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from .... import knobs
from ....cl.device.fork_guard import is_child

if TYPE_CHECKING:
    from ...report.session_stats import SessionStats
    from ..session.inference_session import InferenceSession

_log = logging.getLogger(__name__)
_open: weakref.WeakSet[InferenceSession] = weakref.WeakSet()


def log_at_exit(session: InferenceSession) -> None:
    """Have the figures of `session` written at the end, if it is not closed before and they are asked for."""
    if knobs.get("OPALITE_STATS"):
        if not _open:
            atexit.unregister(_notify_all)
            atexit.register(_notify_all)
        _open.add(session)


def write_stats(model: str, device: str, stats: Callable[[], SessionStats]) -> None:
    """One line: {"pid", "model", "device", "stats"}. A file that cannot be written costs a line of the log."""
    target = knobs.get("OPALITE_STATS")
    if not target or is_child():
        return
    line = json.dumps({"pid": os.getpid(), "model": model, "device": device, "stats": stats().to_raw()})
    if target in ("1", "-"):
        if sys.stderr is not None:
            print(line, file=sys.stderr)
        return
    try:
        with open(target, "ab", buffering=0) as f:  # one write, so that lines of several processes do not mix
            f.write(f"{line}\n".encode())
    except OSError as e:
        _log.warning("OPALITE_STATS: %s cannot be written: %s", target, e.strerror)


def _notify_all() -> None:
    for session in list(_open):
        session._report_stats()
