"""Statistics of sessions as lines of JSON, written on closing a session or at exit (OPALITE_STATS)."""

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
    from ..session.session_core import SessionCore

_log = logging.getLogger(__name__)
_open: weakref.WeakSet[SessionCore] = weakref.WeakSet()


def log_at_exit(session: SessionCore) -> None:
    """Write the statistics of `session` at the interpreter's exit, if OPALITE_STATS is set and the session is open."""
    if knobs.get("OPALITE_STATS"):
        if not _open:
            atexit.unregister(_write_all)
            atexit.register(_write_all)
        _open.add(session)


def write_stats(model: str, device: str, stats: Callable[[], SessionStats]) -> None:
    """Write one line: {"pid", "model", "device", "stats"}. Failures to write are logged."""
    target = knobs.get("OPALITE_STATS")
    if not target or is_child():
        return
    line = json.dumps({"pid": os.getpid(), "model": model, "device": device, "stats": stats().to_raw()})
    if target in ("1", "-"):
        if sys.stderr is not None:
            print(line, file=sys.stderr)
        return
    try:
        with open(target, "ab", buffering=0) as f:  # one write, so that lines of processes do not interleave
            f.write(f"{line}\n".encode())
    except OSError as e:
        _log.warning("OPALITE_STATS: %s cannot be written: %s", target, e.strerror)


def _write_all() -> None:
    for session in list(_open):
        session._report_stats()
