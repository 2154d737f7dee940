"""gRPC's health service: https://grpc.io/docs/guides/health-checking/. It asks for no key, as probes send none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from ..proto.messages import HEALTH, HealthCheckResponse, message_class
from ..wire.failures import NotFound
from ..wire.key import Key
from .caller import check_key
from .codec import parse
from .failures import as_serve_error, end_call

if TYPE_CHECKING:
    from ..engine.server import Server

_Request = message_class(HEALTH[0].request)
_SERVICES = ("", "inference.GRPCInferenceService")
_Status = HealthCheckResponse.ServingStatus
LOOK_S = 0.2
"""How often a watched state is looked at."""


class Health:
    """The service "" and the protocol's are the server's state; any other name is a model's."""

    def __init__(self, server: Server, key: Key | None = None) -> None:
        self._server = server
        self._key = key
        self.stopping = asyncio.Event()

    def handler(self) -> Any:
        """The generic handler of Check and Watch."""
        handlers = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)

    async def _check(self, raw: bytes, context: Any) -> bytes:
        try:
            check_key(context, self._key)
            service = parse(_Request, raw).service
            status = self._status(service)
            if status == _Status.Value("SERVICE_UNKNOWN"):
                raise NotFound(f"there is no service or model {service[:100]!r}")
        except Exception as e:
            await end_call(context, as_serve_error(e, "Health.Check"))
        told: bytes = HealthCheckResponse(status=status).SerializeToString()
        return told

    async def _watch(self, raw: bytes, context: Any) -> AsyncIterator[bytes]:
        """The state now, and each other one that follows, until the client leaves or the server ends."""
        try:
            check_key(context, self._key)
            service = parse(_Request, raw).service
        except Exception as e:
            await end_call(context, as_serve_error(e, "Health.Watch"))
        told = None
        while True:
            ends = self.stopping.is_set()
            if (status := self._status(service)) != told:
                yield HealthCheckResponse(status=status).SerializeToString()
                told = status
            if ends:
                return
            try:
                await asyncio.wait_for(self.stopping.wait(), LOOK_S)
            except TimeoutError:
                continue

    def _status(self, service: str) -> int:
        if service in _SERVICES:
            known, serving = True, self._server.ready
        else:
            serving = self._server.model_ready(service)
            known = serving or any(entry.name == service for entry in self._server.index())
        name = "SERVING" if serving and not self.stopping.is_set() else "NOT_SERVING"
        status: int = _Status.Value(name if known else "SERVICE_UNKNOWN")
        return status
