"""ModelStreamInfer: many requests over one call, each with any number of answers.

Answers of one request keep their order; those of different requests interleave. A failed request gets an error message,
and the stream continues. https://github.com/triton-inference-server/server/blob/main/docs/user_guide/decoupled_models.md
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..proto.message_classes import ModelStreamInferResponse
from ..wire.classification import Classification
from ..wire.client_limits import GrpcLimits
from ..wire.listening_front import Key
from ..wire.memory_budget import Account
from ..wire.serve_errors import ServeError, as_serve_error
from .call_context import check_key, end_call, trace_of, with_deadline
from .control_service import Control
from .read_messages import MessageReader
from .tensor_codec import read_infer_request, write_stream_response

if TYPE_CHECKING:
    from ..engine.inference_server import Server

FINAL = "triton_final_response"
_EMPTY_FINAL = "triton_enable_empty_final_response"
_BUFFERED = 16
"""Answers buffered for a client; a text model waits for a slow client."""


class InferStream:
    """The implementation of ModelStreamInfer, for any number of clients."""

    def __init__(
        self, server: Server, control: Control, limits: GrpcLimits, key: Key | None, reader: MessageReader
    ) -> None:
        self._server, self._control, self._reader = server, control, reader
        self._limits = limits
        self._key = key

    async def call(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Answer the requests of one client until its side of the stream ends."""
        try:
            check_key(context, self._key)
        except ServeError as e:
            end_call(context, e)
            return
        answers: asyncio.Queue[bytes | None] = asyncio.Queue(_BUFFERED)
        reading = asyncio.create_task(self._read(context, answers))
        try:
            while (answer := await answers.get()) is not None:
                yield answer
            if (failure := await reading) is not None:
                end_call(context, failure)
        finally:
            reading.cancel()

    async def _read(self, context: Any, answers: asyncio.Queue[bytes | None]) -> ServeError | None:
        """Start a task for each request; put None after the last answer. Returns why no more requests are read."""
        slots = asyncio.Semaphore(self._limits.in_flight)
        trace = trace_of(context)

        async def answer(raw: memoryview, account: Account) -> None:
            try:
                async for piece in self._answers(raw, account, context, trace):
                    await answers.put(piece)
            finally:
                account.close()
                slots.release()

        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await slots.acquire()
                    account = self._reader.account(context)
                    try:
                        raw = await self._reader.next(context, account)
                    except ServeError as e:
                        return e
                    if raw is None:
                        return None
                    group.create_task(answer(raw, account))
        finally:
            if not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                await answers.put(None)

    async def _answers(
        self, raw: memoryview, account: Account, context: Any, trace: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        """The messages that answer one request; the last is marked final."""
        message = None
        final = False
        try:
            regions = self._control.regions_of(context, account)
            message, request = read_infer_request(raw, self._limits, trace, regions)
            request = with_deadline(context, replace(request, held=account))
            classes, places = Classification(self._server, request), regions.outputs_of(request)
            wants_empty = request.parameters.get(_EMPTY_FINAL) is True
            async with aclosing(self._server.stream(request)) as responses:
                async for response in responses:
                    final = response.parameters.get(FINAL) is True
                    if final and not response.outputs and not wants_empty:
                        continue
                    answer = places.apply(classes.apply(response))
                    request.hold(answer.nbytes)  # of the answer's copy
                    yield write_stream_response(replace(answer, parameters={**answer.parameters, FINAL: final}))
            if wants_empty and not final:
                yield _empty(message).SerializeToString()
        except Exception as e:
            yield _empty(message, as_serve_error(e, "ModelStreamInfer")).SerializeToString()


def _empty(request: Any, failure: ServeError | None = None) -> Any:
    """The final answer to a request, without outputs: an error, or the end."""
    answer = ModelStreamInferResponse(error_message="" if failure is None else str(failure))
    final = answer.infer_response
    if request is not None:
        final.model_name, final.model_version, final.id = request.model_name, request.model_version, request.id
    final.parameters[FINAL].bool_param = True
    return answer
