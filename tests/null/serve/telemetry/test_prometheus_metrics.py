"""Metrics in Prometheus format after events of the engine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from opalite.serve.engine.server_observer import RequestTrace, WorkerEvent
from opalite.serve.telemetry.prometheus_metrics import PARTS, Metrics

DOCS = Path(__file__).parents[4] / "docs" / "serving.md"
PLACE = {"model": "net", "version": "1", "device": "pocl:cpu:0"}
ANSWERED = RequestTrace(
    "net", "1", "id", "pocl:cpu:0", 4, 0, 1, 0.002, 0.0001, 0.03, 0.0002, 0.0323, bytes_in=100, bytes_out=40
)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def ready(metrics: Metrics, pid: int) -> None:
    metrics.worker(WorkerEvent("ready", "net", "1", "pocl:cpu:0", pid, seconds=1.5))


def test_requests_are_counted_with_their_times_and_bytes() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.finished(ANSWERED)
    metrics.finished(RequestTrace("net", "1", failure="TimedOut", total_s=9, bytes_in=5))
    metrics.rejected("net", "1", "Busy")
    metrics.rejected("", "", "NotFound")
    at = {"model": "net", "version": "1"}
    assert value(metrics, "opalite_requests_total", outcome="ok", **at) == 2
    assert value(metrics, "opalite_requests_total", outcome="TimedOut", **at) == 1
    assert value(metrics, "opalite_requests_total", outcome="Busy", **at) == 1
    assert value(metrics, "opalite_requests_total", model="", version="", outcome="NotFound") == 1
    assert value(metrics, "opalite_request_bytes_total", **at) == 200
    assert value(metrics, "opalite_response_bytes_total", **at) == 80
    sums = {p: value(metrics, "opalite_request_duration_seconds_sum", part=p, **PLACE) for p in PARTS}
    assert sums == pytest.approx({"queue": 0.004, "input": 2e-4, "compute": 0.06, "output": 4e-4, "total": 0.0646})
    assert value(metrics, "opalite_request_duration_seconds_bucket", part="compute", le="0.05", **PLACE) == 2
    assert value(metrics, "opalite_request_duration_seconds_bucket", part="compute", le="0.025", **PLACE) == 0


def test_queues_batches_and_busy_devices() -> None:
    metrics = Metrics()
    metrics.queued("net", "1", 7)
    metrics.queued("net", "1", 3)
    metrics.batch("net", "1", "pocl:cpu:0", 8, 3, 0.5)
    metrics.batch("other", "1", "pocl:cpu:0", 1, 1, 0.25)
    assert value(metrics, "opalite_queue_requests", model="net", version="1") == 3
    assert value(metrics, "opalite_batch_size_sum", **PLACE) == 8
    assert value(metrics, "opalite_batched_requests_total", **PLACE) == 3
    assert value(metrics, "opalite_device_busy_seconds_total", device="pocl:cpu:0") == 0.75


def test_workers_their_memory_and_what_their_sessions_count() -> None:
    metrics = Metrics()
    metrics.model("net", "1", "LOADING", "")
    assert value(metrics, "opalite_model_ready", model="net", version="1") == 0
    ready(metrics, os.getpid())
    ready(metrics, 2**22 + 1)  # above the largest number of a process
    metrics.model("net", "1", "READY", "")
    assert value(metrics, "opalite_model_ready", model="net", version="1") == 1
    assert value(metrics, "opalite_workers", **PLACE) == 2
    memory = value(metrics, "opalite_worker_resident_memory_bytes", **PLACE)
    assert memory is None if os.name == "nt" else 1e7 < (memory or 0) < 1e11
    first = {"plans_made": 1, "programs_built": 9, "waits_ms": {"build": 500.0}, "bytes": {"weights": 100}}
    metrics.session(*PLACE.values(), os.getpid(), first)
    metrics.session(*PLACE.values(), os.getpid(), {**first, "programs_built": 11})
    metrics.session(*PLACE.values(), 2**22 + 1, {**first, "bytes": {"weights": 50}})
    assert value(metrics, "opalite_programs_total", origin="built", **PLACE) == 20
    assert value(metrics, "opalite_session_memory_bytes", kind="weights", **PLACE) == 150
    metrics.worker(WorkerEvent("lost", *PLACE.values(), pid=os.getpid(), reason="killed"))
    assert value(metrics, "opalite_workers", **PLACE) == 1
    assert value(metrics, "opalite_worker_events_total", event="lost", **PLACE) == 1
    assert value(metrics, "opalite_session_memory_bytes", kind="weights", **PLACE) == 50
    metrics.session(*PLACE.values(), 77, first)  # the next worker begins at 0
    assert value(metrics, "opalite_programs_total", origin="built", **PLACE) == 29
    assert value(metrics, "opalite_plans_total", origin="made", **PLACE) == 3
    assert value(metrics, "opalite_session_wait_seconds_total", cause="build", **PLACE) == 1.5
    metrics.worker(WorkerEvent("stopped", *PLACE.values(), pid=2**22 + 1))
    assert value(metrics, "opalite_session_memory_bytes", kind="weights", **PLACE) == 100


def test_labels_have_a_bound_whatever_requests_bring() -> None:
    metrics = Metrics()
    metrics.finished(ANSWERED)
    before = metrics.text()[0].count(b"\n")
    for at in range(100):
        trace = {"traceparent": f"00-{at:032x}-{at:016x}-01"}
        metrics.finished(RequestTrace("net", "1", f"id {at}", "pocl:cpu:0", at, at, message=str(at), trace=trace))
    assert metrics.text()[0].count(b"\n") == before


def test_the_text_is_prometheus_own_and_the_document_names_every_metric() -> None:
    metrics = Metrics()
    metrics.finished(ANSWERED)
    metrics.queued("net", "1", 1)
    metrics.batch(*PLACE.values(), 1, 1, 0.1)
    metrics.model("net", "1", "READY", "")
    ready(metrics, os.getpid())
    stats = {"plans_made": 1, "programs_built": 1, "waits_ms": {"build": 1.0}, "bytes": {"weights": 1}}
    metrics.session(*PLACE.values(), os.getpid(), stats)
    text, content_type = metrics.text()
    assert content_type.startswith("text/plain")
    assert metrics.text("application/openmetrics-text; version=1.0.0")[1].startswith("application/openmetrics-text")
    names = {s.name for family in text_string_to_metric_families(text.decode()) for s in family.samples}
    names = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in names if not name.endswith("_created")}
    told = set(re.findall(r"`(opalite_\w+)`", DOCS.read_text(encoding="utf-8")))
    assert told == {name for name in names if "_process_" not in name or name in told}
    assert all(name.startswith("opalite_") for name in names)
