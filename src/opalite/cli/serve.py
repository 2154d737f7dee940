"""`opalite serve`: serves models by the Open Inference Protocol."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Literal

import click

from ..errors import OpaliteError, OptionError
from ..extras import need
from ..interrupts import unwatch
from .serve_options import (
    engine_options,
    grpc_options,
    grpc_settings,
    http_options,
    http_settings,
    server_settings,
    telemetry_options,
)
from .shared_options import Real, kernels_option


@click.command()
@click.argument("models", nargs=-1, metavar="[[NAME=]MODEL]...", type=click.Path())
@kernels_option
@engine_options
@http_options
@grpc_options
@telemetry_options
@click.option(
    "--grace",
    type=Real(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to finish running requests in, when stopped.",
)
def command(
    models: tuple[str, ...],
    repository: str | None,
    grpc_port: int | None,
    grpc_host: str | None,
    metrics: bool,
    metrics_port: int | None,
    health_port: int | None,
    log_format: Literal["text", "json"],
    log_requests: bool,
    grace: float,
    **given: Any,
) -> None:
    """Serve models over HTTP and gRPC by the Open Inference Protocol (v2), for Triton's and KServe's clients.

    MODEL is an .onnx or .tflite file, an .opal bundle or the folder of a language model.
    Its name is the file's, or NAME.
    SIGTERM and Ctrl+C finish accepted requests and end the server with status 0.
    Needs the extra: pip install 'opalite-cl[serve]'.
    """
    unwatch()  # the server ends in order
    if sys.platform == "win32":
        raise OpaliteError(
            "workers share memory with the server by file descriptors, which Windows does not pass on: "
            "serve from Linux or macOS, such as in WSL or a container (docs/deploying.md)"
        )
    for package in ("starlette", "uvicorn", "httptools"):
        need(package, "serving over HTTP", "serve")
    if not metrics and metrics_port is not None:
        raise OptionError("--metrics-port is where metrics are shown: --no-metrics keeps none")
    from starlette.routing import Route

    from ..serve.engine.inference_server import Server
    from ..serve.engine.server_observer import ServerObserver, ServerObservers
    from ..serve.engine.telemetry_settings import TelemetrySettings
    from ..serve.http.http_server import HealthFront, HttpFront
    from ..serve.run_servers import Front, raise_file_limit, run
    from ..serve.telemetry.access_log import LOGGER, EventLog, set_up_logs
    from ..serve.telemetry.opentelemetry_spans import RequestSpans, can_trace

    http = http_settings(given)
    over_grpc = grpc_settings(grpc_port, grpc_host, http)
    settings = server_settings(models, repository, given)
    telemetry = TelemetrySettings(log_requests, log_format, can_trace())
    observers: list[ServerObserver] = [EventLog(telemetry)]
    if telemetry.trace:
        observers.append(RequestSpans(telemetry=telemetry))
    more: list[Route] = []
    fronts: list[Front] = []
    if metrics:
        need("prometheus_client", "showing metrics", "serve")
        from ..serve.telemetry.prometheus_metrics import Metrics, MetricsFront, metrics_route

        kept = Metrics()
        observers.append(kept)
        more.append(metrics_route(kept))
        if metrics_port is not None:
            fronts.append(MetricsFront(kept, http.host, metrics_port))
    fronts.insert(0, HttpFront(http, more))
    if health_port is not None:
        fronts.append(HealthFront(http.host, health_port, more))
    if over_grpc is not None:
        need("grpc", "serving over gRPC", "serve")
        from ..serve.grpc.grpc_server import GrpcFront

        fronts.append(GrpcFront(over_grpc))
    set_up_logs(log_format, telemetry=telemetry)
    say: Callable[[str], None] = logging.getLogger(LOGGER).info if log_format == "json" else click.echo
    for line in raise_file_limit(http.limits.connections * (1 if over_grpc is None else 2)):
        say(line)
    run(lambda: Server(settings, ServerObservers(observers), telemetry), fronts, grace, say)
