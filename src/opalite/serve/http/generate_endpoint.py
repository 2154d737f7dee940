"""Triton's generate extension: a text, or any inputs by name, in one JSON object; one answer, or one for each piece.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_generate.md
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ...errors import OpaliteError
from ..wire.infer_messages import InferRequest, InferResponse, Tensor, TensorMetadata
from ..wire.serve_errors import Internal, Invalid
from .endpoints import cancel_when_lost, headers_of, model_of, trace_of
from .http_limits import Limits
from .json_tensors import read_json, write_json
from .parse_infer_request import read_object, read_parameters
from .request_body import LoopRunner
from .responses import Answer, dump, object_answer

if TYPE_CHECKING:
    from ..engine.inference_server import Server

_log = logging.getLogger("opalite.serve")


class Generate:
    """The two calls."""

    def __init__(self, server: Server, limits: Limits, bodies: LoopRunner) -> None:
        self._server = server
        self._limits = limits
        self._bodies = bodies

    async def one(self, scope: Scope, receive: Receive) -> Answer:
        """One JSON object with all that was generated."""
        cancel_when_lost(scope)
        request = await self._request(scope, receive)
        return object_answer(_told(await self._server.infer(request)))

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An event for each response; the client's going away ends the generation."""
        request = await self._request(scope, receive)
        responses = self._server.stream(request)
        # What fails before the first response has a status of its own.
        try:
            first = await anext(responses, None)
        except BaseException:
            await _close(responses)
            raise
        answer = StreamingResponse(
            _events(first, responses), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
        try:
            await answer(scope, receive, send)
        finally:
            await _close(responses)

    async def _request(self, scope: Scope, receive: Receive) -> InferRequest:
        headers = headers_of(scope)
        name, version = model_of(scope)
        self._server.admit(name, version)
        async with self._bodies.read(scope, headers, receive) as body:
            found = read_object(body, self._limits)
        parameters = dict(read_parameters("the request", found))
        identity = found.get("id", "")
        if not isinstance(identity, str):
            raise Invalid("'id' is no text")
        named = {tensor.name: tensor for tensor in self._server.model_metadata(name, version).inputs}
        inputs = []
        for key, value in found.items():
            if key in named:
                inputs.append(_tensor(named[key], value))
            elif key not in ("id", "parameters"):
                if not isinstance(value, bool | int | float | str):
                    raise Invalid(f"'{key[:64]}' is neither an input ({', '.join(named)}) nor a parameter")
                parameters[key] = value
        return InferRequest(name, tuple(inputs), version, identity, (), parameters, trace_of(headers))


def _tensor(metadata: TensorMetadata, value: Any) -> Tensor:
    """The tensor of one input: a value alone is an element in every dimension; a list is the last dimension."""
    where, rank = f"input '{metadata.name}'", len(metadata.shape)
    sizes: list[int] = []
    level = value
    while isinstance(level, list) and len(sizes) <= rank:
        sizes.append(len(level))
        level = level[0] if level else None
    shape = (1,) * (rank - len(sizes)) + tuple(sizes)
    for _ in range(rank - max(len(sizes), 0)):
        value = [value]
    data = value if isinstance(value, list) else [value]
    return Tensor(metadata.name, metadata.datatype, read_json(where, metadata.datatype, shape, data))


def _told(response: InferResponse) -> dict[str, Any]:
    """A response as one object: its outputs by name, those of one element without a list."""
    told: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        told["id"] = response.id
    told |= response.parameters
    for tensor in response.outputs:
        values = write_json(f"output '{tensor.name}'", tensor.datatype, tensor.array)
        told[tensor.name] = values[0] if len(values) == 1 else values
    return told


async def _events(first: InferResponse | None, responses: AsyncIterator[InferResponse]) -> AsyncIterator[bytes]:
    """Server-sent events; a failure is the last of them."""
    try:
        if first is None:
            return
        yield _event(_told(first))
        async for response in responses:
            yield _event(_told(response))
    except OpaliteError as e:
        yield _event({"error": str(e)})
    except Exception:
        _log.exception("a stream failed")
        yield _event({"error": str(Internal("internal error; the server's log has more"))})


def _event(told: dict[str, Any]) -> bytes:
    return b"data: " + dump(told) + b"\n\n"


async def _close(responses: AsyncIterator[InferResponse]) -> None:
    """End the generation, if it is still going."""
    if hasattr(responses, "aclose"):
        await responses.aclose()
