"""Metrics: Prometheus metrics of the server (docs/serving.md has the list), and their HTTP endpoints.

Labels are known to the server (models, versions, devices, kinds of failures), never taken from a request, so that their
number is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ... import __version__
from ...errors import InputError
from ..engine.server_observer import RequestTrace, ServerObserver, WorkerEvent
from ..wire.infer_messages import State

if TYPE_CHECKING:
    from ..engine.inference_server import Server

PATH = "/metrics"
_SECONDS = (
    *(25e-6, 50e-6, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3),
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
PARTS = ("queue", "input", "compute", "output", "total")
_MODEL = ("model", "version")
_DEVICE = (*_MODEL, "device")
_PLAN_ORIGINS = ("made", "loaded")
_PROGRAM_ORIGINS = ("built", "built_in_background", "loaded", "shared")
Labels = tuple[str, str, str]
"""Model, version and device."""
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


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
        self._memory = _WorkerMemory(r)
        self._session_metrics = _SessionMetrics(r)
        self._all_series: dict[Labels, _Series] = {}
        self._ends: dict[Labels, Any] = {}
        self._waiting: dict[tuple[str, str], Any] = {}
        self._pids: dict[int, Labels] = {}

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, and their content type, by the header `Accept`."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def rejected(self, model: str, version: str, failure: str) -> None:
        self._end(model, version, failure)

    def queued(self, model: str, version: str, waiting: int) -> None:
        if (gauge := self._waiting.get((model, version))) is None:
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
        if (counter := self._ends.get((model, version, outcome))) is None:
            counter = self._ends[model, version, outcome] = self._requests.labels(model, version, outcome)
        counter.inc()

    def _series(self, model: str, version: str, device: str) -> _Series:
        if (place := self._all_series.get((model, version, device))) is None:
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


class _SessionMetrics:
    """Statistics of the workers' sessions (docs/stats.md): adds the increments of each worker since its last report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        r = registry
        self._plans = Counter("opalite_plans", "Plans made, or loaded from a cache.", (*_DEVICE, "origin"), registry=r)
        self._programs = Counter("opalite_programs", "Device programs by origin.", (*_DEVICE, "origin"), registry=r)
        self._waits = Counter("opalite_session_wait_seconds", "Waits in sessions.", (*_DEVICE, "cause"), registry=r)
        self._bytes = Gauge(
            "opalite_session_memory_bytes", "Memory that sessions hold.", (*_DEVICE, "kind"), registry=r
        )
        self._counts: dict[int, dict[tuple[str, str], float]] = {}
        self._held: dict[int, tuple[Labels, Mapping[str, int]]] = {}

    def update(self, pid: int, at: Labels, stats: Mapping[str, Any]) -> None:
        """Add the `session.stats().to_raw()` of worker `pid`."""
        made = [(self._plans, f"plans_{origin}", origin) for origin in _PLAN_ORIGINS]
        made += [(self._programs, f"programs_{origin}", origin) for origin in _PROGRAM_ORIGINS]
        for counter, name, origin in made:
            self._add(counter, pid, at, origin, name, float(stats.get(name, 0)))
        for cause, ms in stats.get("waits_ms", {}).items():
            self._add(self._waits, pid, at, cause, f"wait {cause}", ms / 1e3)
        self._held[pid] = at, dict(stats.get("bytes", {}))
        self._show(at)

    def forget(self, pid: int) -> None:
        """Remove an ended worker: its memory is free, its counts remain."""
        self._counts.pop(pid, None)
        gone = self._held.pop(pid, None)
        if gone is not None:
            self._show(*gone)

    def _add(self, counter: Counter, pid: int, at: Labels, label: str, name: str, value: float) -> None:
        last = self._counts.setdefault(pid, {})
        key = (at[0] + "\0" + at[1], name)
        grown = value - last.get(key, 0.0)
        last[key] = value
        if grown > 0:
            counter.labels(*at, label).inc(grown)

    def _show(self, at: Labels, gone: Mapping[str, int] | None = None) -> None:
        sums = dict.fromkeys(gone or (), 0)
        for other, held in self._held.values():
            if other == at:
                for kind, size in held.items():
                    sums[kind] = sums.get(kind, 0) + size
        for kind, size in sums.items():
            self._bytes.labels(*at, kind).set(size)


class _WorkerMemory(Collector):
    """Resident memory of workers, read from /proc at each scrape. pids: model, version and device of each worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pids: Mapping[int, Labels] = {}
        registry.register(self)

    def describe(self) -> list[GaugeMetricFamily]:
        return [_family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The sum of all workers for each model and device."""
        sums: dict[Labels, int] = {}
        for pid, at in self.pids.items():
            if (size := _resident(pid)) is not None:
                sums[at] = sums.get(at, 0) + size
        family = _family()
        for at, size in sums.items():
            family.add_metric(at, size)
        yield family


def _family() -> GaugeMetricFamily:
    return GaugeMetricFamily(
        "opalite_worker_resident_memory_bytes", "Resident memory of worker processes.", labels=_DEVICE
    )


def _resident(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def metrics_route(metrics: Metrics) -> Route:
    """The route `/metrics` of the HTTP front; requires the key as all paths do."""

    async def answer(request: Request) -> Response:
        text, content_type = metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    return Route(PATH, answer, methods=["GET"])


class MetricsFront:
    """Serves metrics at a separate port, without a key. InputError for an unusable port."""

    name = "metrics"
    is_open = False

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        try:
            found, self._thread = start_http_server(port, host, metrics.registry)
        except OSError as e:
            raise InputError(f"port {port} of {host} cannot be used for metrics: {e.strerror or e}") from e
        self._server: WSGIServer = found
        self.address = f"http://{host}:{found.server_port}{PATH}"

    async def start(self, server: Server) -> None:
        """No effect: metrics are served since construction, also for a server that is not ready."""

    async def stop(self, grace_s: float) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
