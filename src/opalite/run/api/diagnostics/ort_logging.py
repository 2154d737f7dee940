"""Logging in onnxruntime's API, implemented by Python's logging: severities, a callback, warnings that are logged once.

All messages go to the logger 'opalite' and its children; the logger's level is the default severity. A log callback is
a handler of that logger.
"""

from __future__ import annotations

import ctypes
import logging
import operator
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .... import knobs
from ....errors import InputTypeError, OptionError

SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Levels of Python's logging for severities 0 (verbose) to 4 (fatal)."""

_root = logging.getLogger("opalite")
_log = logging.getLogger("opalite.session")
_noticed: set[str] = set()

LOGID = "opalite_logid"
"""The attribute of log records with the `logid` of the session or run."""


def set_default_logger_severity(severity: int) -> None:
    """Log messages of at least this severity: 0 verbose, 1 info, 2 warning (the default), 3 error, 4 fatal."""
    level = level_of(severity)
    _root.setLevel(level)
    if level < logging.WARNING:
        add_stderr_handler()


def level_of(severity: int) -> int:
    """The level of Python's logging. Raises OptionError for other numbers, InputTypeError for other types."""
    number = _whole("severity", severity)
    if not 0 <= number < len(SEVERITIES):
        raise OptionError(f"a log severity is 0 (verbose) to {len(SEVERITIES) - 1} (fatal), got {severity}")
    return SEVERITIES[number]


def set_default_logger_verbosity(level: int) -> None:
    """Accepted without effect: OPALITE_DEBUG=1..4 sets the detail of messages."""
    _whole("level", level)


def warn_once(key: str, text: str, log: SessionLog | None = None) -> None:
    """Log a warning once per process and `key`; at debug level for packages that take Opalite for onnxruntime."""
    if key not in _noticed:
        _noticed.add(key)
        level = logging.DEBUG if knobs.get("OPALITE_AS_ONNXRUNTIME") else logging.WARNING
        (log or SessionLog()).log(level, text)


class StderrHandler(logging.StreamHandler[Any]):
    """Writes to stderr if the program has no handler."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname).1s opalite: %(message)s"))


class SessionLog:
    """Logs messages of one session or run, of at least `severity`; -1 takes the default severity.

    is_enabled: whether messages of a level are logged; a callable attribute, because every run calls it.
    """

    __slots__ = ("_logid", "is_enabled")

    def __init__(self, severity: int = -1, logid: str = "") -> None:
        least = SEVERITIES[min(severity, len(SEVERITIES) - 1)] if severity >= 0 else None
        self.is_enabled: Callable[[int], bool] = _log.isEnabledFor if least is None else least.__le__
        self._logid = logid

    def log(self, level: int, text: str) -> None:
        """Log `text` if its level is enabled."""
        if not self.is_enabled(level):
            return
        if level < logging.WARNING:
            add_stderr_handler()
        path, line, function, _ = _log.findCaller(stacklevel=2)
        message = log_prefix(self._logid) + text
        extra = {LOGID: self._logid}
        _log.handle(_log.makeRecord(_log.name, level, path, line, message, (), None, function, extra))


def log_prefix(logid: str) -> str:
    """The beginning of a session's messages."""
    return f"[{logid}] " if logid else ""


def add_stderr_handler() -> None:
    """Add a handler if the program has none: logging would drop messages below warnings."""
    if not _root.hasHandlers():
        _root.addHandler(StderrHandler())


def _whole(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputTypeError(f"{what} is a whole number, got {value!r}") from None


LogCallback = Callable[[int, str, str, str, str], object]
"""Arguments: severity (0 to 4), category (the logger's name), logid of the session or run, code location, message."""

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
