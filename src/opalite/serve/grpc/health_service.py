"""Health: gRPC's health service (https://grpc.io/docs/guides/health-checking/), by default without a key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio

from ..wire.listening_front import Key
from ..wire.serve_errors import NotFound, as_serve_error
from .call_context import check_key, end_call

if TYPE_CHECKING:
    from ..engine.inference_server import Server

_SERVICES = ("", "inference.GRPCInferenceService")
_Response = health_pb2.HealthCheckResponse
REFRESH_S = 0.2
"""Seconds between two checks of a watched status."""


class Health(aio.HealthServicer):  # type: ignore[misc]
    """The services "" and GRPCInferenceService have the server's status; any other name is a model's."""

    def __init__(self, server: Server, key: Key | None = None) -> None:
        """key: required of clients; None for no key."""
        super().__init__()
        self._server = server
        self._key = key
        self._stopping = False

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        """The status of `request.service`. NOT_FOUND for a name that is neither a service nor a model."""
        try:
            check_key(context, self._key)
            status = await self._refresh(request.service)
            if status == _Response.SERVICE_UNKNOWN:
                raise NotFound(f"there is no service or model {request.service[:100]!r}")
        except Exception as e:
            await end_call(context, as_serve_error(e, "Health.Check"))
        return await super().Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - gRPC's name
        """Stream the status of `request.service` now and after each change, until the client disconnects."""
        try:
            check_key(context, self._key)
            await self._refresh(request.service)
        except Exception as e:
            await end_call(context, as_serve_error(e, "Health.Watch"))
        watch = asyncio.create_task(super().Watch(request, context))
        try:
            while not watch.done() and not self._stopping:
                await asyncio.wait({watch}, timeout=REFRESH_S)
                await self._refresh(request.service)
            await asyncio.wait({watch}, timeout=REFRESH_S)  # sends the last status
        finally:
            watch.cancel()

    async def stop(self) -> None:
        """Set every status to NOT_SERVING and end the calls of Watch."""
        self._stopping = True
        await self.enter_graceful_shutdown()

    async def _refresh(self, service: str) -> int:
        """Set and return the current status; a change notifies the calls of Watch."""
        if service in _SERVICES:
            known, serving = True, self._server.ready
        else:
            serving = self._server.model_ready(service)
            known = serving or any(entry.name == service for entry in self._server.index())
        if not known and service not in self._server_status:
            return int(_Response.SERVICE_UNKNOWN)
        status = (_Response.SERVING if serving else _Response.NOT_SERVING) if known else _Response.SERVICE_UNKNOWN
        await self.set(service, status)
        return int(status)
