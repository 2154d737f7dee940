"""A function of the caller's that takes all messages, as onnxruntime's set_default_logger_callback has it."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ....errors import OptionError
from .log_severity import (
    LOGID,
    SEVERITIES,
    StderrHandler,
    add_stderr_handler,
    level_of,
    log_prefix,
    set_default_logger_severity,
)

LogCallback = Callable[[int, str, str, str, str], object]
"""Of severity (0 to 4), category (the logger's name), logid of the session or run, code location, and message."""

_root = logging.getLogger("opalite")
_lock = threading.Lock()
_installed: _CallbackHandler | None = None


def set_default_logger_callback(callback: LogCallback | None, severity: int = 2) -> None:
    """Give every message to `callback(severity, category, logid, code_location, message)`, and to nothing else.

    severity: as of `set_default_logger_severity`, which is called with it; sessions and runs with a severity of their
    own keep it. None gives the messages to Python's logging again, and leaves the severity as it is.

    The callback is called on the thread that tells the message. What it tells itself, and a message for which it
    raises, go to Python's logging; the exception goes to `sys.unraisablehook`. Handlers that the program added to the
    logger 'opalite' itself get their messages in any case. OptionError for a severity that is not 0 to 4, and for a
    callback that cannot be called.
    """
    global _installed
    level_of(severity)
    if callback is not None and not callable(callback):
        raise OptionError(
            "a log callback is a function of (severity, category, logid, code_location, message), or None; got "
            f"{callback!r}"
        )
    with _lock:
        if _installed is not None:
            _installed.remove()
            _installed = None
        if callback is not None:
            _installed = _CallbackHandler(callback)
    if callback is not None:
        set_default_logger_severity(severity)
    elif _root.level and _root.level < logging.WARNING:
        add_stderr_handler()


class _CallbackHandler(logging.Handler):
    """Stands between the logger 'opalite' and everything that its messages went to before."""

    def __init__(self, callback: LogCallback) -> None:
        super().__init__()
        self._callback = callback
        self._busy = threading.local()
        self._propagated = _root.propagate
        self._replaced = [h for h in _root.handlers if isinstance(h, StderrHandler)]
        for h in self._replaced:
            _root.removeHandler(h)
        _root.addHandler(self)
        _root.propagate = False

    def remove(self) -> None:
        """Everything is as before."""
        _root.removeHandler(self)
        _root.propagate = self._propagated
        for h in self._replaced:
            _root.addHandler(h)

    def handle(self, record: logging.LogRecord) -> bool:
        """Without a handler's lock, as the callback may wait for a thread that tells something itself."""
        if getattr(self._busy, "now", False):
            self._configure_logging(record)
            return True
        self._busy.now = True
        try:
            self._callback(*_arguments(record))
        except Exception as e:
            _report(e)
            self._configure_logging(record)
        finally:
            self._busy.now = False
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """As `handle`."""
        self.handle(record)

    def _configure_logging(self, record: logging.LogRecord) -> None:
        for h in self._replaced:
            h.handle(record)
        if self._propagated and _root.parent is not None:
            _root.parent.handle(record)


def _report(error: Exception) -> None:
    """Give an exception to `sys.unraisablehook`, whose arguments Python code cannot make: ctypes calls it for functions
    that raise."""

    def set_default_logger_callback() -> None:  # the name that the hook shows
        raise error

    ctypes.PYFUNCTYPE(None)(set_default_logger_callback)()


def _arguments(record: logging.LogRecord) -> tuple[int, str, str, str, str]:
    severity = max((i for i, level in enumerate(SEVERITIES) if level <= record.levelno), default=0)
    logid = str(getattr(record, LOGID, ""))
    where = f"{Path(record.pathname).name}:{record.lineno} {record.funcName}"
    message = record.getMessage().removeprefix(log_prefix(logid))
    if record.exc_info:
        message = f"{message}\n{logging.Formatter().formatException(record.exc_info)}"
    return severity, record.name, logid, where, message
