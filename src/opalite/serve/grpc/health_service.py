"""Health: gRPC's health service (https://grpc.io/docs/guides/health-checking/), by default without a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio

from ..wire.listening_front import Key
from ..wire.serve_errors import NotFound, TooLarge, as_serve_error
from .call_context import check_key, end_call
from .read_messages import MessageReader
from .tensor_codec import parse

if TYPE_CHECKING:
    from ..engine.inference_server import Server

_SERVICES = ("", "inference.GRPCInferenceService")
_Response = health_pb2.HealthCheckResponse
_MOST = 64 * 1024
REFRESH_S = 0.2
"""Seconds between two checks of a watched status."""


class Health(aio.HealthServicer):  # type: ignore[misc]
    """The services "" and GRPCInferenceService have the server's status; any other name is a model's."""

    def __init__(self, server: Server, reader: MessageReader, key: Key | None = None) -> None:
        """key: required of clients; None for no key."""
        super().__init__()
        self._server, self._reader = server, reader
        self._key = key
        self._stopping = False

    def handler(self) -> Any:
        """The generic handler of the calls, for a gRPC server."""

        async def check(requests: AsyncIterator[bytes], context: Any) -> bytes:
            try:
                service = await self._service(context)
                status = await self._refresh(service)
                if status == _Response.SERVICE_UNKNOWN:
                    raise NotFound(f"there is no service or model {service[:100]!r}")
                return bytes(_Response(status=status).SerializeToString())
            except Exception as e:
                return end_call(context, as_serve_error(e, "Health.Check"))

        async def watch(requests: AsyncIterator[bytes], context: Any) -> None:
            try:
                service = await self._service(context)
                await self._refresh(service)
            except Exception as e:
                end_call(context, as_serve_error(e, "Health.Watch"))
            else:
                await self._tell_changes(service, context)

        handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(check),
            "Watch": grpc.stream_stream_rpc_method_handler(watch, response_serializer=_Response.SerializeToString),
        }
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)

    async def _service(self, context: Any) -> str:
        """The service that a call asks about."""
        check_key(context, self._key)
        raw = await self._reader.one(context, self._reader.account(context))
        if len(raw) > _MOST:
            raise TooLarge(f"the message has {len(raw)} bytes, and {_MOST} are allowed")
        return str(parse(health_pb2.HealthCheckRequest, raw).service)

    async def _tell_changes(self, service: str, context: Any) -> None:
        """Stream the status of a service now and after each change, until the client disconnects."""
        request = health_pb2.HealthCheckRequest(service=service)
        watch = asyncio.create_task(self.Watch(request, context))
        try:
            while not watch.done() and not self._stopping:
                await asyncio.wait({watch}, timeout=REFRESH_S)
                await self._refresh(service)
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
