"""set_default_logger_callback: sends all log messages to a function, as in onnxruntime."""

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
"""Arguments: severity (0 to 4), category (the logger's name), logid of the session or run, code location, message."""

_root = logging.getLogger("opalite")
_lock = threading.Lock()
_installed: _CallbackHandler | None = None


def set_default_logger_callback(callback: LogCallback | None, severity: int = 2) -> None:
    """Send every message to `callback(severity, category, logid, code_location, message)` only; None undoes this.

    severity: passed to `set_default_logger_severity`. Sessions and runs with their own severity keep it. With callback
    None, messages go to Python's logging again, and the severity is unchanged.

    The callback runs in the thread that logs. Messages that the callback logs itself, and messages for which it raises,
    go to Python's logging; exceptions go to `sys.unraisablehook`. Handlers that the program added to the logger
    'opalite' still get all messages. Raises OptionError for a severity other than 0 to 4, and for a callback that is
    not callable.
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
    """Replaces the handlers of Opalite, and the propagation, of the logger 'opalite'."""

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
        """Restore the handlers and the propagation."""
        _root.removeHandler(self)
        _root.propagate = self._propagated
        for h in self._replaced:
            _root.addHandler(h)

    def handle(self, record: logging.LogRecord) -> bool:
        """Call the callback, without the handler's lock: it may wait for another thread that logs."""
        if getattr(self._busy, "now", False):
            self._log_elsewhere(record)
            return True
        self._busy.now = True
        try:
            self._callback(*_arguments(record))
        except Exception as e:
            _report(e)
            self._log_elsewhere(record)
        finally:
            self._busy.now = False
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Call `handle`."""
        self.handle(record)

    def _log_elsewhere(self, record: logging.LogRecord) -> None:
        for h in self._replaced:
            h.handle(record)
        if self._propagated and _root.parent is not None:
            _root.parent.handle(record)


def _report(error: Exception) -> None:
    """Pass an exception to `sys.unraisablehook` by way of ctypes; Python code cannot create the hook's arguments."""

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
