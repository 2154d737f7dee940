"""Triton's generate extension: text generation from one JSON object, in one answer or a stream.

https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_generate.md
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..wire.infer_messages import InferRequest, InferResponse, Tensor, TensorMetadata
from ..wire.serve_errors import Invalid, as_serve_error
from .endpoints import Calls, cancel_when_lost, headers_of, model_of, trace_of
from .json_tensors import read_json, write_json
from .parse_infer_request import read_parameters
from .responses import Answer, dump, object_answer

if TYPE_CHECKING:
    pass


class Generate(Calls):
    """The endpoints generate and generate_stream."""

    async def one(self, scope: Scope, receive: Receive) -> Answer:
        cancel_when_lost(scope)
        request = await self._request(scope, receive)
        return object_answer(_response_object(await self._server.infer(request)))

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send an event for each response; a disconnected client ends the generation."""
        request = await self._request(scope, receive)
        async with aclosing(self._server.stream(request)) as responses:
            first = await anext(responses, None)  # an error before the first response has a status of its own
            answer = StreamingResponse(
                _events(first, responses), media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
            )
            await answer(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive) -> InferRequest:
        headers = headers_of(scope)
        name, version = model_of(scope)
        self._server.admit(name, version)
        found = await self.read_text(scope, headers, receive)
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
    """The tensor of one input. A scalar has size 1 in every dimension; a list is the last dimension."""
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


def _response_object(response: InferResponse) -> dict[str, Any]:
    """A response as a JSON object: outputs by name, single elements without a list."""
    found: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        found["id"] = response.id
    found |= response.parameters
    for tensor in response.outputs:
        values = write_json(f"output '{tensor.name}'", tensor.datatype, tensor.array)
        found[tensor.name] = values[0] if len(values) == 1 else values
    return found


async def _events(first: InferResponse | None, responses: AsyncIterator[InferResponse]) -> AsyncIterator[bytes]:
    """Server-sent events; an error is the last one."""
    try:
        if first is None:
            return
        yield _event(_response_object(first))
        async for response in responses:
            yield _event(_response_object(response))
    except Exception as e:
        yield _event({"error": str(as_serve_error(e, "a stream"))})


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + dump(content) + b"\n\n"
