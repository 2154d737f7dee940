"""Endpoints of Prometheus metrics: a route of the HTTP front, or a separate port."""

from __future__ import annotations

from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIServer

from prometheus_client import start_http_server
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ...errors import InputError
from .prometheus_metrics import Metrics

if TYPE_CHECKING:
    from ..engine.inference_server import Server

PATH = "/metrics"


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
        """Close the port."""
        self.close()

    def close(self) -> None:
        """Close the port and join its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
