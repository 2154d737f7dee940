"""OpenTelemetry's spans of a request."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from opalite.serve.engine.server_observer import RequestTrace
from opalite.serve.engine.telemetry_settings import TelemetrySettings
from opalite.serve.telemetry.opentelemetry_spans import RequestSpans, can_trace

PARENT = {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01", "tracestate": "a=1"}


def test_a_request_is_a_span_of_its_clients_trace_with_its_parts_below() -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert can_trace()
    spans = RequestSpans(provider)
    begin = 1_700_000_000_000_000_000
    times = (0.002, 0.001, 0.03, 0.0, 0.034)
    spans.finished(RequestTrace("net", "1", "7", "cpu", 4, 0, begin, *times, 10, 20, trace=PARENT))
    *parts, request = exporter.get_finished_spans()
    assert (request.name, request.kind) == ("infer net", SpanKind.SERVER)
    assert f"{request.context.trace_id:032x}" == "ab" * 16
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == "cd" * 8
    assert (request.start_time, request.end_time) == (begin, begin + 34_000_000)
    assert request.attributes is not None
    assert request.attributes["opalite.batch.size"] == 4
    assert [(p.name, p.start_time - begin, p.end_time - begin) for p in parts] == [
        ("queue", 0, 2_000_000),
        ("input", 2_000_000, 3_000_000),
        ("compute", 3_000_000, 33_000_000),
    ]
    assert all(p.parent is not None and p.parent.span_id == request.context.span_id for p in parts)


def test_a_failure_is_the_spans_status_and_a_client_without_trace_begins_one() -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    RequestSpans(provider).finished(RequestTrace("net", "1", failure="TimedOut", message="waited", total_s=0.1))
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "TimedOut: waited")


def test_nothing_is_made_where_a_client_asks_for_no_sampling_or_nobody_listens() -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    unsampled = {"traceparent": PARENT["traceparent"][:-1] + "0"}
    RequestSpans(provider).finished(RequestTrace("net", "1", trace=unsampled))
    RequestSpans().finished(RequestTrace("net", "1", trace=PARENT))
    assert not exporter.get_finished_spans()


def test_clients_may_select_requests() -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = TelemetrySettings(can_trace=True)
    spans = RequestSpans(provider, telemetry)

    def count(requests: int) -> int:
        exporter.clear()
        for _ in range(requests):
            spans.finished(RequestTrace("net", "1"))
        return sum(span.parent is None for span in exporter.get_finished_spans())

    assert count(3) == 3
    telemetry.update_tracing({"trace_rate": "3"})
    assert count(9) == 3
    telemetry.update_tracing({"trace_rate": None, "trace_count": 2})
    assert count(9) == 2
    assert telemetry.tracing()["trace_count"] == "0"
    telemetry.update_tracing({"trace_count": "-1", "trace_level": ["OFF"]})
    assert count(2) == 0
    telemetry.update_tracing({"trace_level": "TIMESTAMPS"})
    assert count(2) == 2


def test_without_the_package_there_are_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setattr("opalite.serve.telemetry.opentelemetry_spans.find_spec", lambda name: None)
    assert not can_trace()
