"""Severities of onnxruntime's API by Python's logging, and notices that are given once.

Everything is told on the logger 'opalite' and those below it, whose level is the default severity.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from typing import Any

from ...errors import InputTypeError, OptionError

SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""Levels of Python's logging for severities 0 (verbose) to 4 (fatal)."""

_root = logging.getLogger("opalite")
_log = logging.getLogger("opalite.session")
_noticed: set[str] = set()


def set_default_logger_severity(severity: int) -> None:
    """Tell from this severity on: 0 verbose, 1 info, 2 warning (the default), 3 error, 4 fatal."""
    number = _whole("severity", severity)
    if not 0 <= number < len(SEVERITIES):
        raise OptionError(f"a log severity is 0 (verbose) to {len(SEVERITIES) - 1} (fatal), got {severity}")
    _root.setLevel(SEVERITIES[number])
    if SEVERITIES[number] < logging.WARNING:
        _write_somewhere()


def set_default_logger_verbosity(level: int) -> None:
    """Accepted for onnxruntime's sake: OPALITE_DEBUG=1..4 sets the detail of what is told."""
    _whole("level", level)


def notice(key: str, text: str, log: SessionLog | None = None) -> None:
    """Warn of something that may surprise the caller, once in a process for each `key`."""
    if key not in _noticed:
        _noticed.add(key)
        (log or SessionLog()).tell(logging.WARNING, text)


class SessionLog:
    """What one session, or one run, tells: from `severity` on, or from the default's if that is -1.

    wants: whether messages of a level are told. Every run asks it, so it is no method with a look at the severity.
    """

    __slots__ = ("_tag", "wants")

    def __init__(self, severity: int = -1, tag: str = "") -> None:
        least = SEVERITIES[min(severity, len(SEVERITIES) - 1)] if severity >= 0 else None
        self.wants: Callable[[int], bool] = _log.isEnabledFor if least is None else least.__le__
        self._tag = f"[{tag}] " if tag else ""

    def tell(self, level: int, text: str) -> None:
        """Tell `text` if its level is wanted."""
        if not self.wants(level):
            return
        if level < logging.WARNING:
            _write_somewhere()
        _log.handle(_log.makeRecord(_log.name, level, "", 0, f"{self._tag}{text}", (), None))


def _write_somewhere() -> None:
    """Without a handler of the program's, logging drops everything below warnings."""
    if not _root.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname).1s opalite: %(message)s"))
        _root.addHandler(handler)


def _whole(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputTypeError(f"{what} is a whole number, got {value!r}") from None
