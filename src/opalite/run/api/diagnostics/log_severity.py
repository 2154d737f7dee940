"""Log severities of onnxruntime's API, implemented by Python's logging, and warnings that are logged once.

All messages go to the logger 'opalite' and its children; the logger's level is the default severity. A log callback is
a handler of that logger (log_callback.py).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
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
    """Log a warning, once in a process for each `key`; at debug level for packages that think we are onnxruntime."""
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
