"""Lines of the log: what they hold, and what they never hold."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from opalite.serve.engine.server_observer import RequestTrace, WorkerEvent
from opalite.serve.engine.telemetry_settings import TelemetrySettings
from opalite.serve.telemetry.access_log import LOGGER, EventLog, set_up_logs

TRACE = RequestTrace(
    "net", "1", 'an "id"\n\u2028', "cpu", 2, 0, 1, 0.001, 0.002, 0.003, 0.004, 0.01, 5, 6,
    trace={"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def logger_as_before() -> Iterator[None]:
    log = logging.getLogger(LOGGER)
    before = log.handlers, log.level, log.propagate
    yield
    log.handlers, log.level, log.propagate = before


def lines(form: Literal["json", "text"], *events: Any, requests: bool = True) -> list[str]:
    stream = io.StringIO()
    set_up_logs(form, stream)
    observer = EventLog(TelemetrySettings(requests))
    for event in events:
        match event:
            case RequestTrace():
                observer.finished(event)
            case WorkerEvent():
                observer.worker(event)
            case tuple():
                observer.model(*event)
            case str():
                observer.rejected("net", "1", event)
    return stream.getvalue().splitlines()


def test_a_request_is_one_line_of_json() -> None:
    (line,) = lines("json", TRACE)
    told = json.loads(line)
    assert (told["event"], told["level"], told["id"], told["outcome"]) == ("request", "info", TRACE.id, "ok")
    assert [told[f"{p}_ms"] for p in ("queue", "input", "compute", "output", "total")] == [1, 2, 3, 4, 10]
    assert told["trace_id"] == "ab" * 16
    assert told["time"].endswith("Z")


def test_clients_may_turn_lines_on_and_off() -> None:
    stream, telemetry = io.StringIO(), TelemetrySettings()
    set_up_logs("text", stream, telemetry)
    observer = EventLog(telemetry)
    observer.finished(TRACE)
    assert not stream.getvalue()
    telemetry.update_log({"log_verbose_level": 2})
    observer.finished(TRACE)
    telemetry.update_log({"log_info": False})
    observer.finished(TRACE)
    observer.model("net", "1", "UNAVAILABLE", "lost")
    assert [line.split()[2] for line in stream.getvalue().splitlines()] == ["request", "model"]


def test_text_keeps_a_client_from_writing_lines_of_its_own() -> None:
    (line,) = lines("text", TRACE)
    assert 'id="an \\"id\\"\\n\\u2028"' in line
    assert "queue_ms=1.0 input_ms=2.0" in line


def test_without_requests_only_the_servers_own_failures_are_told() -> None:
    lost = RequestTrace("net", "1", "7", failure="WorkerLost", message="the process that held it ended")
    found = lines("json", TRACE, RequestTrace("net", "1", "8", failure="TimedOut"), lost, "Busy", requests=False)
    assert [json.loads(line)["id"] for line in found] == ["7"]
    assert json.loads(found[0])["level"] == "error"
    assert json.loads(found[0])["message"] == "the process that held it ended"
    assert json.loads(lines("json", "Busy")[0])["failure"] == "Busy"


def test_workers_and_models_are_told() -> None:
    events = (
        WorkerEvent("ready", "net", "1", "cpu", 12, seconds=1.5),
        WorkerEvent("lost", "net", "1", "cpu", 12, "killed by signal 9"),
        ("net", "1", "UNAVAILABLE", "no such file"),
        ("net", "1", "READY", ""),
    )
    told = [json.loads(line) for line in lines("json", *events, requests=False)]
    assert [(t["event"], t["level"]) for t in told] == [
        ("worker ready", "info"),
        ("worker lost", "error"),
        ("model", "error"),
        ("model", "info"),
    ]
    assert (told[0]["pid"], told[0]["seconds"], told[1]["reason"]) == (12, 1.5, "killed by signal 9")


def test_a_failure_within_has_its_traceback() -> None:
    stream = io.StringIO()
    set_up_logs("json", stream)
    try:
        raise ValueError("within")
    except ValueError as e:
        logging.getLogger(LOGGER).error("call failed", exc_info=e)
    told = json.loads(stream.getvalue())
    assert "ValueError: within" in told["traceback"]
    assert told["event"] == "call failed"
