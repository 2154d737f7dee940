"""TelemetrySettings: log and trace settings that clients read, and change where a change has an effect here.

Names and values are Triton's: https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_logging.md
and https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_trace.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..wire.serve_errors import Invalid, Unsupported, nearest_hint

_STARTED = "set at the start of the server ({}), not by requests"
_NO_SPANS = "no tracer is installed: start the server with opentelemetry-api and an exporter (docs/serving.md)"
_MOST = (1 << 31) - 1


class TelemetrySettings:
    """Settings of logs and traces. Observers read them at each event.

    log_requests: a line for each request. log_info: lines that report no failure. trace: spans of requests.
    trace_rate: one request in so many has spans. trace_count: requests that still get spans, -1 for no limit.
    """

    def __init__(self, log_requests: bool = False, log_format: str = "text", can_trace: bool = False) -> None:
        """log_format: of the lines. can_trace: whether spans can be made."""
        self.log_requests, self.log_info = log_requests, True
        self.trace, self.trace_rate, self.trace_count = can_trace, 1, -1
        self._log_requests, self._log_format, self._can_trace = log_requests, log_format, can_trace
        self._seen = 0

    def takes_trace(self) -> bool:
        """Count a request; whether it gets spans."""
        if not self.trace or not self.trace_count:
            return False
        self._seen += 1
        if self._seen % self.trace_rate:
            return False
        self.trace_count -= self.trace_count > 0
        return True

    def log(self) -> dict[str, Any]:
        """The log settings."""
        return {
            "log_file": "",
            "log_info": self.log_info,
            "log_warning": True,
            "log_error": True,
            "log_verbose_level": int(self.log_requests),
            "log_format": self._log_format,
        }

    def update_log(self, changes: Mapping[str, Any]) -> None:
        """Change log settings. Invalid for unknown ones and other values, Unsupported for those of the start."""
        _check_names("log", changes, self.log())
        for name, value in changes.items():
            if name == "log_info" or (name in ("log_warning", "log_error") and value is not True):
                _check("log", name, value, isinstance(value, bool), "true or false")
            if name == "log_verbose_level":
                _check("log", name, value, _is_whole(value, 0), "a whole number from 0 on")
            for fixed, option in (("log_file", "standard error"), ("log_format", "--log-format")):
                if name == fixed and value != self.log()[fixed]:
                    raise Unsupported(f"{fixed} is {_STARTED.format(option)}, got {str(value)[:64]!r}")
            if name in ("log_warning", "log_error") and value is False:
                raise Unsupported(f"{name}: failures are always logged")
        self.log_info = changes.get("log_info", self.log_info)
        if "log_verbose_level" in changes:
            self.log_requests = changes["log_verbose_level"] > 0

    def tracing(self) -> dict[str, Any]:
        """The trace settings."""
        return {
            "trace_level": ["TIMESTAMPS" if self.trace else "OFF"],
            "trace_rate": str(self.trace_rate),
            "trace_count": str(self.trace_count),
            "log_frequency": "0",
            "trace_file": "",
            "trace_mode": "opentelemetry",
        }

    def update_tracing(self, changes: Mapping[str, Any], model: str = "") -> None:
        """Change trace settings; None sets a default. Invalid, Unsupported.

        model: for settings of one model, which there are none of.
        """
        if model and changes:
            raise Unsupported("trace settings are the server's, for all models: leave the model out")
        _check_names("trace", changes, self.tracing())
        trace, rate, count = self.trace, self.trace_rate, self.trace_count
        for name, value in changes.items():
            if name == "trace_level":
                trace = self._level(value)
            elif name == "trace_rate":
                rate = 1 if value is None else _number(name, value, 1)
            elif name == "trace_count":
                count = -1 if value is None else _number(name, value, -1)
            elif value is not None and value != self.tracing()[name]:
                raise Unsupported(f"{name} is {_STARTED.format('OpenTelemetry exporter')}, got {str(value)[:64]!r}")
        self.trace, self.trace_rate, self.trace_count = trace, rate, count

    def _level(self, value: Any) -> bool:
        levels = [value] if isinstance(value, str) else value
        if levels is None:
            return self._can_trace
        if not isinstance(levels, list) or not levels or not set(map(str, levels)) <= {"OFF", "TIMESTAMPS"}:
            raise Unsupported(f"trace_level is OFF or TIMESTAMPS (spans with times), got {str(value)[:64]!r}")
        if "TIMESTAMPS" not in levels:
            return False
        if not self._can_trace:
            raise Unsupported(f"trace_level TIMESTAMPS: {_NO_SPANS}")
        return True


def _check_names(what: str, changes: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in changes:
        if name not in known:
            raise Invalid(f"there is no {what} setting '{name[:64]}'{nearest_hint(name, known)}")


def _check(what: str, name: str, value: Any, fits: bool, kind: str) -> None:
    if not fits:
        raise Invalid(f"{what} setting '{name}' is {kind}, got {str(value)[:64]!r}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _number(name: str, value: Any, least: int) -> int:
    """A number, which clients also write as a text."""
    digits = value.removeprefix("-") if isinstance(value, str) else ""
    found = int(value) if digits.isascii() and digits.isdigit() and len(digits) < 12 else value
    _check("trace", name, value, _is_whole(found, least), f"a whole number from {least} on")
    return int(found)
