"""The gRPC server: grpc.aio with the services, on a port that is bound before anything else starts."""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2_grpc

from ...errors import InputError
from ..wire.api_key import Key
from .grpc_limits import Limits
from .health_service import Health
from .inference_service import Service

if TYPE_CHECKING:
    from ..engine.inference_server import Server


@dataclass(frozen=True)
class GrpcSettings:
    """Where and how gRPC is served. port: 0 for any that is free. tls_cert, tls_key: PEM files, both or none."""

    host: str = "127.0.0.1"
    port: int = 8001
    key: Key | None = None
    open_health: bool = True
    tls_cert: str | None = None
    tls_key: str | None = None
    limits: Limits = field(default_factory=Limits)


class GrpcFront:
    """Answers on a port from `start` to `stop`. InputError for a port or certificate that cannot be used."""

    name = "gRPC"

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._held = _hold(settings.host, settings.port)
        host, self._port = self._held.getsockname()[:2]
        self._place = f"{f'[{host}]' if ':' in host else host}:{self._port}"
        self.address = f"{'grpc' if settings.tls_cert is None else 'grpcs'}://{self._place}"
        self.is_open = settings.key is None and not (host.startswith("127.") or host == "::1")

    async def start(self, server: Server) -> None:
        """Answer from now on."""
        s = self._settings
        self._service = Service(server, s.limits, s.key, open_health=s.open_health)
        self._health = Health(server, None if s.open_health else s.key)
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", s.limits.message_bytes),
                ("grpc.max_send_message_length", s.limits.message_bytes),
                ("grpc.max_concurrent_streams", s.limits.streams),
                ("grpc.so_reuseport", 0),
            )
        )
        self._server.add_generic_rpc_handlers((self._service.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        credentials = self._credentials()
        self.close()
        try:
            if credentials is None:
                self._server.add_insecure_port(self._place)
            else:
                self._server.add_secure_port(self._place, credentials)
        except RuntimeError as e:
            raise InputError(f"gRPC cannot listen at {self.address}: {e}") from e
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no further call; what was begun has `grace_s` to be answered."""
        self._service.stopping = True
        await self._health.stop()
        await self._server.stop(grace_s)

    def close(self) -> None:
        """Give the port back where `start` was not reached."""
        self._held.close()

    def _credentials(self) -> Any:
        """What TLS takes, None without; grpc itself would say nothing of a certificate that is none."""
        s = self._settings
        if s.tls_cert is None or s.tls_key is None:
            return None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(s.tls_cert, s.tls_key)
            pair = (Path(s.tls_key).read_bytes(), Path(s.tls_cert).read_bytes())
        except (OSError, ssl.SSLError) as e:
            raise InputError(f"the TLS certificate {s.tls_cert} and key {s.tls_key} cannot be used: {e}") from e
        return grpc.ssl_server_credentials([pair])


def _hold(host: str, port: int) -> socket.socket:
    """A socket that keeps the port until grpc, which takes none that is bound, binds it itself."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        held = socket.socket(family, kind, protocol)
    except OSError as e:
        raise InputError(f"--host {host} is no address of this machine: {e.strerror or e}") from e
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
    except OSError as e:
        held.close()
        why = "is in use; choose another, or 0 for any that is free" if e.errno == errno.EADDRINUSE else e.strerror
        raise InputError(f"port {port} of {host} {why}") from e
    return held
