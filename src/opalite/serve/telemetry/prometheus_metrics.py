"""Metrics: Prometheus metrics of the server (docs/serving.md has the list).

Labels are known to the server (models, versions, devices, kinds of failures), never taken from a request, so that their
number is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder

from ... import __version__
from ..engine.server_observer import RequestTrace, ServerObserver, WorkerEvent
from ..wire.infer_messages import State
from .session_metrics import SessionMetrics
from .worker_memory import WorkerMemory

_SECONDS = (
    *(25e-6, 50e-6, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
PARTS = ("queue", "input", "compute", "output", "total")
_MODEL = ("model", "version")
_DEVICE = (*_MODEL, "device")


class Metrics(ServerObserver):
    """Metrics of one server. `text` is the answer to a scrape."""

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "opalite_request_duration_seconds",
            "Time of requests that were answered, by part.",
            ("part", *_DEVICE),
            buckets=_SECONDS,
            registry=r,
        )
        self._requests = Counter("opalite_requests", "Requests by outcome.", (*_MODEL, "outcome"), registry=r)
        self._in = Counter("opalite_request_bytes", "Bytes of the inputs of answered requests.", _MODEL, registry=r)
        self._out = Counter("opalite_response_bytes", "Bytes of the outputs of answered requests.", _MODEL, registry=r)
        self._queue = Gauge("opalite_queue_requests", "Requests that wait.", _MODEL, registry=r)
        self._batch = Histogram(
            "opalite_batch_size", "Elements of the batches that ran.", _DEVICE, buckets=_SIZES, registry=r
        )
        self._joined = Counter("opalite_batched_requests", "Requests in the batches that ran.", _DEVICE, registry=r)
        self._busy = Counter("opalite_device_busy_seconds", "Time that workers computed.", ("device",), registry=r)
        self._workers = Gauge("opalite_workers", "Worker processes that are ready.", _DEVICE, registry=r)
        self._events = Counter("opalite_worker_events", "What became of workers.", (*_DEVICE, "event"), registry=r)
        self._starts = Counter("opalite_worker_start_seconds", "Time that workers took to start.", _DEVICE, registry=r)
        self._ready = Gauge("opalite_model_ready", "1 where the version is served.", _MODEL, registry=r)
        Gauge("opalite_build_info", "1, with the version of Opalite.", ("version",), registry=r).labels(
            __version__
        ).set(1)
        ProcessCollector(namespace="opalite", registry=r)
        self._memory = WorkerMemory(r)
        self._session_metrics = SessionMetrics(r)
        self._all_series: dict[tuple[str, str, str], _Series] = {}
        self._ends: dict[tuple[str, str, str], Any] = {}
        self._waiting: dict[tuple[str, str], Any] = {}
        self._pids: dict[int, tuple[str, str, str]] = {}

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, and their content type, by the header `Accept`."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def rejected(self, model: str, version: str, failure: str) -> None:
        self._end(model, version, failure)

    def queued(self, model: str, version: str, waiting: int) -> None:
        gauge = self._waiting.get((model, version))
        if gauge is None:
            gauge = self._waiting[model, version] = self._queue.labels(model, version)
        gauge.set(waiting)

    def batch(self, model: str, version: str, device: str, size: int, requests: int, busy_s: float) -> None:
        place = self._series(model, version, device)
        place.batch.observe(size)
        place.joined.inc(requests)
        place.busy.inc(busy_s)

    def finished(self, trace: RequestTrace) -> None:
        self._end(trace.model, trace.version, trace.failure or "ok")
        if trace.failure:
            return
        place = self._series(trace.model, trace.version, trace.device)
        seconds = (trace.queue_s, trace.input_s, trace.infer_s, trace.output_s, trace.total_s)
        for histogram, value in zip(place.seconds, seconds, strict=True):
            histogram.observe(value)
        place.bytes_in.inc(trace.bytes_in)
        place.bytes_out.inc(trace.bytes_out)

    def worker(self, event: WorkerEvent) -> None:
        at = (event.model, event.version, event.device)
        self._events.labels(*at, event.kind).inc()
        if event.kind == "ready":
            self._pids[event.pid] = at
            self._starts.labels(*at).inc(event.seconds)
        elif event.kind != "starting":
            self._pids.pop(event.pid, None)
            self._session_metrics.forget(event.pid)
        self._memory.pids = dict(self._pids)
        self._workers.labels(*at).set(sum(other == at for other in self._pids.values()))

    def model(self, name: str, version: str, state: State, reason: str) -> None:
        self._ready.labels(name, version).set(state == "READY")

    def session(self, model: str, version: str, device: str, pid: int, stats: Mapping[str, Any]) -> None:
        self._session_metrics.update(pid, (model, version, device), stats)

    def _end(self, model: str, version: str, outcome: str) -> None:
        counter = self._ends.get((model, version, outcome))
        if counter is None:
            counter = self._ends[model, version, outcome] = self._requests.labels(model, version, outcome)
        counter.inc()

    def _series(self, model: str, version: str, device: str) -> _Series:
        place = self._all_series.get((model, version, device))
        if place is None:
            place = self._all_series[model, version, device] = _Series(self, model, version, device)
        return place


class _Series:
    """The series of one version on one device, cached: a lookup by labels takes as long as counting."""

    def __init__(self, of: Metrics, model: str, version: str, device: str) -> None:
        self.seconds = tuple(of._seconds.labels(part, model, version, device) for part in PARTS)
        self.batch = of._batch.labels(model, version, device)
        self.joined = of._joined.labels(model, version, device)
        self.busy = of._busy.labels(device)
        self.bytes_in = of._in.labels(model, version)
        self.bytes_out = of._out.labels(model, version)
