"""Service: the calls of GRPCInferenceService."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from ..proto.message_classes import SERVICE, ModelConfig
from ..wire.classification import Classification
from ..wire.client_limits import GrpcLimits
from ..wire.listening_front import Key
from ..wire.serve_errors import NotFound, TooLarge, as_serve_error
from .call_context import check_key, end_call, trace_of, with_deadline
from .control_service import Control
from .read_messages import MessageReader
from .stream_infer import InferStream
from .tensor_codec import parse, read_config, read_infer_request, read_parameters, write_infer_response

if TYPE_CHECKING:
    from ..engine.inference_server import Server

_OPEN = ("ServerLive", "ServerReady")
_SMALL = 64 * 1024
"""Bytes of a message besides a configuration."""
Requests = AsyncIterator[bytes]
Fields = dict[str, Any]
"""The fields of an answer's message, by name."""


class Service:
    """Maps the calls to the engine.

    key: required of every call, except ServerLive and ServerReady if `open_health`.
    """

    def __init__(
        self,
        server: Server,
        limits: GrpcLimits,
        reader: MessageReader,
        key: Key | None = None,
        *,
        open_health: bool = True,
    ) -> None:
        self._server = server
        self._limits = limits
        self._key = key
        self._open = _OPEN if open_health else ()
        self._control = Control(server)
        self._reader = reader
        self.stopping = False

    def handler(self) -> Any:
        """The generic handler of all calls, for a gRPC server."""
        server = self._server
        calls: dict[str, Callable[[Any, Any], Fields | Awaitable[Fields]]] = {
            "ServerLive": lambda request, context: {"live": server.live},
            "ServerReady": lambda request, context: {"ready": server.ready and not self.stopping},
            "ModelReady": lambda request, context: {"ready": server.model_ready(request.name, request.version)},
            "ServerMetadata": lambda request, context: server.metadata(),
            "ModelMetadata": lambda request, context: asdict(server.model_metadata(request.name, request.version)),
            "ModelConfig": self._model_config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            **self._control.calls(),
        }
        stream = InferStream(self._server, self._control, self._limits, self._key, self._reader)
        handlers = {
            "ModelInfer": grpc.stream_unary_rpc_method_handler(self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(stream.call),
            **{name: grpc.stream_unary_rpc_method_handler(self._parsed(name, call)) for name, call in calls.items()},
        }
        return grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)

    def _parsed(
        self, name: str, call: Callable[[Any, Any], Fields | Awaitable[Fields]]
    ) -> Callable[[Requests, Any], Awaitable[bytes]]:
        """Wrap a call that returns an answer's fields: parse, check the key, serialise, convert errors."""
        method = SERVICE.methods_by_name[name]
        request_class, answer_class = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        key = None if name in self._open else self._key

        async def on_message(requests: Requests, context: Any) -> bytes:
            try:
                check_key(context, key)
                raw = await self._reader.one(context, self._reader.account(context))
                if len(raw) > self._limits.config_bytes + _SMALL:
                    raise TooLarge(f"the message has {len(raw)} bytes, and {self._limits.config_bytes} are allowed")
                found = call(parse(request_class, raw), context)
                answer = answer_class(**(found if isinstance(found, dict) else await found))
                return bytes(answer.SerializeToString())
            except Exception as e:
                return end_call(context, as_serve_error(e, name))

        return on_message

    async def _infer(self, requests: Requests, context: Any) -> bytes:
        try:
            check_key(context, self._key)
            account = self._reader.account(context)
            regions = self._control.regions_of(context, account)
            raw = await self._reader.one(context, account)
            _, request = read_infer_request(raw, self._limits, trace_of(context), regions)
            request = with_deadline(context, replace(request, held=account))
            classes, places = Classification(self._server, request), regions.outputs_of(request)
            response = places.apply(classes.apply(await self._server.infer(request)))
            request.hold(response.nbytes)  # of the answer's copy
            return b"".join(write_infer_response(response))
        except Exception as e:
            return end_call(context, as_serve_error(e, "ModelInfer"))

    def _model_config(self, request: Any, context: Any) -> Fields:
        found = self._server.model_config(request.name, request.version)
        return {"config": json_format.ParseDict(found, ModelConfig(), ignore_unknown_fields=True)}

    def _statistics(self, request: Any, context: Any) -> Fields:
        found = [one.as_json() for one in self._server.statistics(request.name, request.version)]
        for one in found:
            del one["inference_stats"]["cancel"]  # of HTTP only
        return {"model_stats": found}

    def _index(self, request: Any, context: Any) -> Fields:
        _check_repository(request.repository_name)
        return {"models": [asdict(entry) for entry in self._server.index(request.ready)]}

    async def _load(self, request: Any, context: Any) -> Fields:
        _check_repository(request.repository_name)
        parameters = read_parameters(request.parameters, "the request to load")
        await self._server.load(request.model_name, read_config(parameters, self._limits))
        return {}

    async def _unload(self, request: Any, context: Any) -> Fields:
        _check_repository(request.repository_name)
        read_parameters(request.parameters, "the request to unload")
        await self._server.unload(request.model_name)
        return {}


def _check_repository(name: str) -> None:
    if name:
        raise NotFound(f"there is one repository, whose name is empty; got repository_name {name[:100]!r}")
