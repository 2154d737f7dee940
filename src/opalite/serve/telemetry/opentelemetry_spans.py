"""RequestSpans: an OpenTelemetry span for each request, with its parts as children.

Spans belong to the trace of the client's `traceparent` header, and are exported by the process's tracer provider
(https://opentelemetry.io/docs/zero-code/python/). Without opentelemetry-api or a provider no spans are made.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ... import __version__
from ..engine.server_observer import RequestTrace, ServerObserver
from ..engine.telemetry_settings import TelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_LONGEST = 256


def can_trace() -> bool:
    """Whether opentelemetry-api is installed."""
    return find_spec("opentelemetry") is not None


class RequestSpans(ServerObserver):
    """Makes the spans of a finished request, with the recorded times of its parts.

    provider: by default the process's. telemetry: selects requests; without it all have spans.
    """

    def __init__(self, provider: TracerProvider | None = None, telemetry: TelemetrySettings | None = None) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace, self._telemetry = trace, telemetry
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("opalite.serve", __version__, provider)

    def finished(self, trace: RequestTrace) -> None:
        if self._telemetry is not None and not self._telemetry.takes_trace():
            return
        context = self._propagator.extract(dict(trace.trace)) if trace.trace else None
        kind = self._trace.SpanKind.SERVER
        name = f"infer {trace.model}"
        span = self._tracer.start_span(name, context, kind, _attributes(trace), start_time=trace.started_ns)
        if not span.is_recording():
            return
        inner = self._trace.set_span_in_context(span)
        at = trace.started_ns
        parts = (("queue", trace.queue_s), ("input", trace.input_s), ("compute", trace.infer_s))
        for part, seconds in (*parts, ("output", trace.output_s)):
            if seconds > 0:
                end = at + round(seconds * 1e9)
                self._tracer.start_span(part, inner, start_time=at).end(end)
                at = end
        if trace.failure:
            span.set_status(self._trace.StatusCode.ERROR, f"{trace.failure}: {trace.message}"[:_LONGEST])
        span.end(trace.started_ns + round(trace.total_s * 1e9))


def _attributes(trace: RequestTrace) -> dict[str, Any]:
    return {
        "opalite.model": trace.model,
        "opalite.version": trace.version,
        "opalite.request.id": trace.id[:_LONGEST],
        "opalite.device": trace.device,
        "opalite.batch.size": trace.batch,
        "opalite.request.bytes": trace.bytes_in,
        "opalite.response.bytes": trace.bytes_out,
        "opalite.outcome": trace.failure or "ok",
    }
