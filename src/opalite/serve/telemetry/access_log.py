"""EventLog: log lines of events and requests, as text or JSON.

A line has names, times, sizes and error messages, never tensor contents or a key.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal, TextIO

from ..engine.server_observer import RequestTrace, ServerObserver, WorkerEvent
from ..engine.telemetry_settings import TelemetrySettings
from ..wire.infer_messages import State

LOGGER = "opalite.serve"
_log = logging.getLogger(LOGGER)
_OWN = ("Internal", "WorkerLost")
"""Failures of the server, logged even if requests are not."""
_LEVELS = {"lost": logging.ERROR, "failed": logging.ERROR}
_LONGEST = 1000


def set_up_logs(
    form: Literal["json", "text"], stream: TextIO | None = None, telemetry: TelemetrySettings | None = None
) -> logging.Handler:
    """Send the log of the server to `stream` (standard error); return the handler. telemetry: drops lines it names."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    if telemetry is not None:
        handler.addFilter(lambda record: record.levelno > logging.INFO or telemetry.log_info)
    _log.handlers = [handler]
    _log.setLevel(logging.INFO)
    _log.propagate = False
    return handler


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: "time" (UTC), "level", "event" and the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        line = {"time": _utc(record.created), "level": record.levelname.lower(), "event": record.getMessage(), **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Formats a record as TIME LEVEL EVENT name=value …, escaping line breaks of clients."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = getattr(record, "fields", {})
        pairs = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
        message = "".join(c if c.isprintable() else " " for c in record.getMessage())
        line = f"{_utc(record.created)} {record.levelname.lower():7} {message}{pairs}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class EventLog(ServerObserver):
    """Logs workers, models and server failures; every request while `telemetry` says so."""

    def __init__(self, telemetry: TelemetrySettings) -> None:
        self._telemetry = telemetry

    def finished(self, trace: RequestTrace) -> None:
        own = trace.failure in _OWN
        if own or self._telemetry.log_requests:
            _log.log(logging.ERROR if own else logging.INFO, "request", extra={"fields": _fields(trace)})

    def rejected(self, model: str, version: str, failure: str) -> None:
        if self._telemetry.log_requests:
            fields = {"model": model, "version": version, "failure": failure}
            _log.info("request refused", extra={"fields": fields})

    def worker(self, event: WorkerEvent) -> None:
        fields: dict[str, Any] = {"model": event.model, "version": event.version, "device": event.device}
        fields |= {"pid": event.pid} if event.pid else {}
        fields |= {"seconds": round(event.seconds, 3)} if event.seconds else {}
        fields |= {"reason": event.reason} if event.reason else {}
        _log.log(_LEVELS.get(event.kind, logging.INFO), f"worker {event.kind}", extra={"fields": fields})

    def model(self, name: str, version: str, state: State, reason: str) -> None:
        fields = {"model": name, "version": version, "state": state, **({"reason": reason} if reason else {})}
        level = logging.ERROR if state == "UNAVAILABLE" and reason else logging.INFO
        _log.log(level, "model", extra={"fields": fields})


def _fields(trace: RequestTrace) -> dict[str, Any]:
    """The fields of a request's line: names, milliseconds by part, bytes, failure."""
    fields: dict[str, Any] = {
        "model": trace.model,
        "version": trace.version,
        "id": trace.id[:_LONGEST],
        "outcome": trace.failure or "ok",
        "device": trace.device,
        "batch": trace.batch,
        "queue_ms": _ms(trace.queue_s),
        "input_ms": _ms(trace.input_s),
        "compute_ms": _ms(trace.infer_s),
        "output_ms": _ms(trace.output_s),
        "total_ms": _ms(trace.total_s),
        "bytes_in": trace.bytes_in,
        "bytes_out": trace.bytes_out,
    }
    if trace.message:
        fields["message"] = trace.message[:_LONGEST]
    parent = trace.trace.get("traceparent", "").split("-")
    if len(parent) >= 4 and len(parent[1]) == 32:
        fields["trace_id"] = parent[1]
    return fields


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _utc(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"


def _shown(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(" ='\"") else json.dumps(text)
