"""GrpcFront: a grpc.aio server of the services. Its port is bound before anything else starts."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from ...errors import InputError
from ..wire.client_limits import GrpcLimits
from ..wire.listening_front import ListeningFront, ListenSettings
from .health_service import Health
from .inference_service import Service
from .read_messages import MessageReader

if TYPE_CHECKING:
    from ..engine.inference_server import Server


@dataclass(frozen=True)
class GrpcSettings(ListenSettings):
    """The settings of the gRPC front."""

    port: int = 8001
    limits: GrpcLimits = field(default_factory=GrpcLimits)


class GrpcFront(ListeningFront):
    """Serves gRPC between `start` and `stop`. InputError for a port or certificate that cannot be used."""

    name, scheme = "gRPC", "grpc"

    def __init__(self, settings: GrpcSettings) -> None:
        super().__init__(settings)
        self._settings = settings

    async def start(self, server: Server) -> None:
        s = self._settings
        reader = MessageReader(server.memory, s.limits.message_bytes)
        self._service = Service(server, s.limits, reader, s.key, open_health=s.open_health)
        self._health = Health(server, reader, None if s.open_health else s.key)
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", s.limits.message_bytes),
                ("grpc.max_send_message_length", s.limits.message_bytes),
                ("grpc.max_concurrent_streams", s.limits.streams),
                ("grpc.max_allowed_incoming_connections", s.limits.connections),
                ("grpc.max_connection_idle_ms", int(s.limits.idle_s * 1000)),
                ("grpc.server_handshake_timeout_ms", int(s.limits.handshake_s * 1000)),
                ("grpc.so_reuseport", 0),
                ("grpc.per_message_decompression", 0),  # MessageReader does it, within the server's memory
            )
        )
        self._server.add_generic_rpc_handlers((self._service.handler(), self._health.handler()))
        credentials = self._credentials()
        self.close()  # grpc binds no socket that is bound already
        try:
            if credentials is None:
                self._server.add_insecure_port(self._host_port)
            else:
                self._server.add_secure_port(self._host_port, credentials)
        except RuntimeError as e:
            raise InputError(f"gRPC cannot listen at {self.address}: {e}") from e
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Accept no call; finish running calls within `grace_s`."""
        self._service.stopping = True
        await self._health.stop()
        await self._server.stop(grace_s)

    def _credentials(self) -> Any:
        """The TLS credentials, None without TLS. The check is ours: grpc reports no invalid certificate."""
        s = self._settings
        if s.tls_cert is None or s.tls_key is None:
            return None
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(s.tls_cert, s.tls_key)
            pair = (Path(s.tls_key).read_bytes(), Path(s.tls_cert).read_bytes())
        except (OSError, ssl.SSLError) as e:
            raise InputError(f"the TLS certificate {s.tls_cert} and key {s.tls_key} cannot be used: {e}") from e
        return grpc.ssl_server_credentials([pair])
