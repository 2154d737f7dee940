"""Service: the calls of GRPCInferenceService."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import json_format

from ..proto.message_classes import INFERENCE, message_class
from ..wire.api_key import Key
from ..wire.classification import Classification
from ..wire.infer_messages import DURATIONS, Duration, Statistics
from ..wire.serve_errors import (
    NO_LOG_SETTINGS,
    NO_SHARED_MEMORY,
    NO_TRACE_SETTINGS,
    NotFound,
    Unsupported,
    as_serve_error,
)
from .call_context import check_key, end_call, trace_of, with_deadline
from .grpc_limits import Limits
from .stream_infer import InferStream
from .tensor_codec import parse, read_config, read_parameters, read_request, response_message

if TYPE_CHECKING:
    from ..engine.inference_server import Server

_OPEN = ("ServerLive", "ServerReady")
_REFUSED = {
    **{
        f"{kind}SharedMemory{verb}": NO_SHARED_MEMORY
        for kind in ("System", "Cuda")
        for verb in ("Status", "Register", "Unregister")
    },
    "TraceSetting": NO_TRACE_SETTINGS,
    "LogSettings": NO_LOG_SETTINGS,
}
_NAMES = {method.name: method for method in INFERENCE}


class Service:
    """Maps the calls to the engine.

    key: required of every call, except ServerLive and ServerReady if `open_health`.
    """

    def __init__(self, server: Server, limits: Limits, key: Key | None = None, *, open_health: bool = True) -> None:
        self._server = server
        self._limits = limits
        self._key = key
        self._open = _OPEN if open_health else ()
        self.stopping = False

    def handler(self) -> Any:
        """The generic handler of all calls, for a gRPC server. Unsupported calls end with the reason."""
        calls: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        stream = InferStream(self._server, self._limits, self._key)
        handlers = {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(stream.call),
            **{name: grpc.unary_unary_rpc_method_handler(self._parsed(name, call)) for name, call in calls.items()},
            **{name: grpc.unary_unary_rpc_method_handler(_refusal(name, why)) for name, why in _REFUSED.items()},
        }
        return grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)

    def _parsed(
        self, name: str, call: Callable[[Any, Any], Awaitable[Any]]
    ) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Wrap a call on messages: parse, check the key, serialise, convert errors."""
        request_class, answer_class = message_class(_NAMES[name].request), message_class(_NAMES[name].response)
        key = None if name in self._open else self._key

        async def on_bytes(raw: bytes, context: Any) -> bytes:
            try:
                check_key(context, key)
                answer = answer_class()
                await call(parse(request_class, raw), answer)
                encoded: bytes = answer.SerializeToString()
            except Exception as e:
                await end_call(context, as_serve_error(e, name))
            return encoded

        return on_bytes

    async def _infer(self, raw: bytes, context: Any) -> bytes:
        try:
            check_key(context, self._key)
            request = with_deadline(context, read_request(raw, self._limits, trace_of(context)))
            del raw
            classes = Classification(self._server, request)
            response = classes.apply(await self._server.infer(request))
            encoded: bytes = response_message(response).SerializeToString()
        except Exception as e:
            await end_call(context, as_serve_error(e, "ModelInfer"))
        return encoded

    async def _live(self, request: Any, answer: Any) -> None:
        answer.live = self._server.live

    async def _ready(self, request: Any, answer: Any) -> None:
        answer.ready = self._server.ready and not self.stopping

    async def _model_ready(self, request: Any, answer: Any) -> None:
        answer.ready = self._server.model_ready(request.name, request.version)

    async def _metadata(self, request: Any, answer: Any) -> None:
        found = self._server.metadata()
        answer.name, answer.version = found.name, found.version
        answer.extensions.extend(found.extensions)

    async def _model_metadata(self, request: Any, answer: Any) -> None:
        found = self._server.model_metadata(request.name, request.version)
        answer.name, answer.platform = found.name, found.platform
        answer.versions.extend(found.versions)
        for tensors, target in ((found.inputs, answer.inputs), (found.outputs, answer.outputs)):
            for t in tensors:
                target.add(name=t.name, datatype=t.datatype, shape=t.shape)

    async def _model_config(self, request: Any, answer: Any) -> None:
        found = self._server.model_config(request.name, request.version)
        json_format.ParseDict(found, answer.config, ignore_unknown_fields=True)

    async def _statistics(self, request: Any, answer: Any) -> None:
        for found in self._server.statistics(request.name, request.version):
            _write_statistics(answer.model_stats.add(), found)

    async def _index(self, request: Any, answer: Any) -> None:
        _check_repository(request.repository_name)
        for entry in self._server.index(request.ready):
            answer.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)

    async def _load(self, request: Any, answer: Any) -> None:
        _check_repository(request.repository_name)
        parameters = read_parameters(request.parameters, "the request to load")
        await self._server.load(request.model_name, read_config(parameters, self._limits))

    async def _unload(self, request: Any, answer: Any) -> None:
        _check_repository(request.repository_name)
        read_parameters(request.parameters, "the request to unload")
        await self._server.unload(request.model_name)


def _refusal(name: str, why: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def call(raw: bytes, context: Any) -> bytes:
        await end_call(context, Unsupported(f"{name}: {why}"))

    return call


def _check_repository(name: str) -> None:
    if name:
        raise NotFound(f"there is one repository, whose name is empty; got repository_name {name[:100]!r}")


def _write_statistics(target: Any, found: Statistics) -> None:
    target.name, target.version = found.name, found.version
    target.last_inference = found.last_inference_ms
    target.inference_count, target.execution_count = found.inference_count, found.execution_count
    for part in DURATIONS:
        _write_duration(getattr(target.inference_stats, part), getattr(found, part))
    for batch in found.batches:
        one = target.batch_stats.add(batch_size=batch.batch_size)
        for part in ("compute_input", "compute_infer", "compute_output"):
            _write_duration(getattr(one, part), getattr(batch, part))


def _write_duration(target: Any, found: Duration) -> None:
    target.count, target.ns = found.count, found.ns
