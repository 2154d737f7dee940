"""Options of `opalite serve`: engine, HTTP, gRPC, metrics and logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import OptionError
from .shared_options import MEMORY_HELP, PRECISION_HELP, Real, join

if TYPE_CHECKING:
    from ..serve.engine.model_config import ServerSettings
    from ..serve.grpc.grpc_server import GrpcSettings
    from ..serve.http.http_server import HttpSettings

_MEBIBYTE = 1 << 20

engine_options = join(
    click.option("--repository", type=click.Path(), metavar="FOLDER", help="Models as FOLDER/NAME/VERSION/model.onnx."),
    click.option(
        "--device",
        "devices",
        multiple=True,
        help="Device id, index '0:1', cpu, gpu, vendor or part of a name; may be given several times.  "
        "[default: all OpenCL devices]",
    ),
    click.option("--instances", type=click.IntRange(min=1), help="Worker processes of a model on each device."),
    click.option("--precision", help=PRECISION_HELP),
    click.option("--memory", help=MEMORY_HELP),
    click.option("--tune", help="Tuning level: none, fast, normal, wide, exhaustive."),
    click.option(
        "--model-control",
        type=click.Choice(["none", "explicit", "poll"]),
        help="none: models are fixed; explicit: clients load and unload them; poll: the folder is watched.",
    ),
    click.option(
        "--poll-seconds",
        "poll_s",
        type=Real(min=0.1),
        help="Seconds between two checks of the folder, with --model-control poll.",
    ),
    click.option(
        "--max-batch-size", type=click.IntRange(min=0), help="Largest batch of models without a config.pbtxt."
    ),
    click.option(
        "--preferred-batch-size",
        type=click.IntRange(min=1),
        multiple=True,
        help="Batch size that runs without a delay.",
    ),
    click.option(
        "--max-queue-delay",
        "max_queue_delay_microseconds",
        type=click.IntRange(min=0),
        metavar="MICROSECONDS",
        help="Longest wait of a request for others, to form a batch.",
    ),
    click.option("--max-queue-size", type=click.IntRange(min=1), help="Largest number of queued requests of a model."),
    click.option(
        "--timeout",
        "default_timeout_microseconds",
        type=click.IntRange(min=0),
        metavar="MICROSECONDS",
        help="Timeout in the queue for requests without one of their own.",
    ),
    click.option(
        "--run-timeout",
        "run_timeout_s",
        type=Real(min=0),
        help="Timeout in seconds of a run, or of the next part of a text; 0: none.  [default: 120]",
    ),
    click.option(
        "--shared-memory/--no-shared-memory",
        default=None,
        help="Whether clients of this machine may register system shared memory.  [default: they may]",
    ),
    click.option(
        "--spare-worker/--no-spare-worker",
        default=True,
        show_default=True,
        help="Keep a spare process that replaces a lost worker.",
    ),
    click.option(
        "--request-memory-mb",
        type=click.IntRange(min=1),
        help="Memory limit for all requests and responses, in MiB.  [default: a quarter of the memory, at most 1024]",
    ),
    click.option(
        "--strict-readiness",
        is_flag=True,
        help="Report ready only while all models are; else as soon as those that load are loaded.",
    ),
)

grpc_options = join(
    click.option(
        "--grpc-port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve gRPC too, at this port; 0: any."
    ),
    click.option("--grpc-host", metavar="ADDRESS", help="Address for gRPC to listen on.  [default: --host]"),
)

telemetry_options = join(
    click.option("--metrics/--no-metrics", default=True, show_default=True, help="Serve /metrics for Prometheus."),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve metrics at this port too, without a key.",
    ),
    click.option(
        "--health-port",
        type=click.IntRange(0, 65535),
        metavar="PORT",
        help="Serve health checks and metrics at this port too, without a key.",
    ),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True),
    click.option("--log-requests", is_flag=True, help="Log a line for each request."),
)

http_options = join(
    click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8000,
        show_default=True,
        help="Port to listen on; 0: any free one.",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="Host name under which browsers may call this server.",
    ),
    click.option(
        "--api-key-file", metavar="FILE", help="File whose first line is the key.  [default: OPALITE_SERVE_KEY]"
    ),
    click.option(
        "--open-health/--closed-health", default=True, show_default=True, help="Serve health checks without the key."
    ),
    click.option("--tls-cert", metavar="FILE", help="Certificate chain, PEM."),
    click.option("--tls-key", metavar="FILE", help="Private key of the certificate, PEM."),
    click.option("--max-body-mb", type=click.IntRange(min=1), help="Largest size of a request in MiB.  [default: 128]"),
    click.option(
        "--max-connections", type=click.IntRange(min=1), help="Largest number of open connections.  [default: 4096]"
    ),
    click.option(
        "--body-timeout", type=Real(min=0.1), help="Timeout in seconds for receiving a request's body.  [default: 120]"
    ),
)


def server_settings(models: tuple[str, ...], repository: str | None, given: dict[str, Any]) -> ServerSettings:
    """Settings of the engine. OptionError without a model or for a repeated name, InputError for invalid options."""
    from ..run.model.compile_options import CompileOptions, parse_precision
    from ..serve.engine.model_config import ServerSettings
    from ..serve.engine.model_repository import name_of

    if not models and repository is None:
        raise OptionError("there is nothing to serve: name models, or a folder of them with --repository")
    named: dict[str, Path] = {}
    for model in models:
        name, found, path = model.partition("=")
        name, path = (name, path) if found else (name_of(Path(model)), model)
        if name in named:
            raise OptionError(f"two models are called '{name}'; write NAME=FILE to call one otherwise")
        named[name] = Path(path)
    precision = parse_precision(given.get("precision"))
    CompileOptions(precision, given.get("memory") or "auto", given.get("tune") or "none")
    folder = None if repository is None else Path(repository)
    if (memory := given.pop("request_memory_mb", None)) is not None:
        given["request_memory_bytes"] = memory * _MEBIBYTE
    wanted = {name: value for name, value in given.items() if value is not None and value != ()}
    return ServerSettings(models=named, repository=folder, **wanted)


def http_settings(given: dict[str, Any]) -> HttpSettings:
    """Settings of the HTTP front, by options that are removed from `given`. OptionError for half a certificate."""
    from ..serve.http.http_server import HttpSettings
    from ..serve.wire.client_limits import HttpLimits
    from ..serve.wire.listening_front import find_key

    names = ("host", "port", "allowed_hosts", "open_health", "tls_cert", "tls_key")
    listen = {name: given.pop(name) for name in names}
    if (listen["tls_cert"] is None) != (listen["tls_key"] is None):
        raise OptionError("--tls-cert and --tls-key go together")
    body = given.pop("max_body_mb")
    wanted = {
        "body_bytes": None if body is None else body * _MEBIBYTE,
        "connections": given.pop("max_connections"),
        "body_s": given.pop("body_timeout"),
    }
    limits = HttpLimits(**{name: value for name, value in wanted.items() if value is not None})
    return HttpSettings(key=find_key(given.pop("api_key_file")), limits=limits, **listen)


def grpc_settings(grpc_port: int | None, grpc_host: str | None, http: HttpSettings) -> GrpcSettings | None:
    """Settings of the gRPC front, with HTTP's key, certificate and request size. None without gRPC."""
    if grpc_port is None:
        if grpc_host is not None:
            raise OptionError("--grpc-host is where --grpc-port is served: give a port too")
        return None
    from ..serve.grpc.grpc_server import GrpcSettings
    from ..serve.wire.client_limits import GrpcLimits

    limits = GrpcLimits(
        message_bytes=http.limits.body_bytes,
        elements=http.limits.elements,
        tensors=http.limits.tensors,
        connections=http.limits.connections,
        idle_s=http.limits.idle_s,
    )
    return GrpcSettings(
        grpc_host or http.host, grpc_port, http.key, http.open_health, http.tls_cert, http.tls_key, limits
    )
