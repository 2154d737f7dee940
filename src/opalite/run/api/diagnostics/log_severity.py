"""Severities of onnxruntime's API by Python's logging, and notices that are given once.

Everything is told on the logger 'opalite' and those below it, whose level is the default severity. A callback that
takes the messages is a handler of that logger (log_callback.py).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from typing import Any

from ....errors import InputTypeError, OptionError

SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Levels of Python's logging for severities 0 (verbose) to 4 (fatal)."""

_root = logging.getLogger("opalite")
_log = logging.getLogger("opalite.session")
_noticed: set[str] = set()

LOGID = "opalite_logid"
"""The attribute of a log record that holds the `logid` of the session or run which told it."""


def set_default_logger_severity(severity: int) -> None:
    """Tell from this severity on: 0 verbose, 1 info, 2 warning (the default), 3 error, 4 fatal."""
    level = level_of(severity)
    _root.setLevel(level)
    if level < logging.WARNING:
        add_stderr_handler()


def level_of(severity: int) -> int:
    """The level of Python's logging. OptionError for another number, InputTypeError for what is no whole number."""
    number = _whole("severity", severity)
    if not 0 <= number < len(SEVERITIES):
        raise OptionError(f"a log severity is 0 (verbose) to {len(SEVERITIES) - 1} (fatal), got {severity}")
    return SEVERITIES[number]


def set_default_logger_verbosity(level: int) -> None:
    """Accepted for onnxruntime's sake: OPALITE_DEBUG=1..4 sets the detail of what is told."""
    _whole("level", level)


def warn_once(key: str, text: str, log: SessionLog | None = None) -> None:
    """Warn of something that may surprise the caller, once in a process for each `key`."""
    if key not in _noticed:
        _noticed.add(key)
        (log or SessionLog()).log(logging.WARNING, text)


class StderrHandler(logging.StreamHandler[Any]):
    """Writes to stderr where the program has no handler."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname).1s opalite: %(message)s"))


class SessionLog:
    """What one session, or one run, tells: from `severity` on, or from the default's if that is -1.

    is_enabled: whether messages of a level are told. Every run asks it, so it is no method with a look at the severity.
    """

    __slots__ = ("_logid", "is_enabled")

    def __init__(self, severity: int = -1, logid: str = "") -> None:
        least = SEVERITIES[min(severity, len(SEVERITIES) - 1)] if severity >= 0 else None
        self.is_enabled: Callable[[int], bool] = _log.isEnabledFor if least is None else least.__le__
        self._logid = logid

    def log(self, level: int, text: str) -> None:
        """Tell `text` if its level is wanted."""
        if not self.is_enabled(level):
            return
        if level < logging.WARNING:
            add_stderr_handler()
        path, line, function, _ = _log.findCaller(stacklevel=2)
        message = log_prefix(self._logid) + text
        extra = {LOGID: self._logid}
        _log.handle(_log.makeRecord(_log.name, level, path, line, message, (), None, function, extra))


def log_prefix(logid: str) -> str:
    """What a session's messages begin with."""
    return f"[{logid}] " if logid else ""


def add_stderr_handler() -> None:
    """Without a handler of the program's, logging drops everything below warnings."""
    if not _root.hasHandlers():
        _root.addHandler(StderrHandler())


def _whole(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputTypeError(f"{what} is a whole number, got {value!r}") from None
