"""The endpoints of OpenAI's API, on the text models of the server."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ...wire.infer_messages import InferRequest, InferResponse, Tensor
from ...wire.serve_errors import NotFound, ServeError, Unsupported, as_serve_error
from ..endpoints import Calls, cancel_when_lost, headers_of, model_of, trace_of
from ..request_body import ACCOUNT
from ..responses import Answer, dump, object_answer, text_answer
from .embeddings import read_embedding
from .requests import TextRequest, read_chat, read_completion
from .tool_calls import find_tool_calls

if TYPE_CHECKING:
    from collections.abc import Callable

_REASONS = {"end": "stop", "stop": "stop", "length": "length"}
_KINDS = ("text_", "embedding_")
"""Beginnings of the platforms of models that this API serves."""
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


@dataclass(frozen=True)
class _Form:
    """The objects of one call. kind: of an answer; chunk: of an event. is_chat: messages instead of texts."""

    kind: str
    chunk: str
    prefix: str
    is_chat: bool


_CHAT = _Form("chat.completion", "chat.completion.chunk", "chatcmpl-", True)
_TEXT = _Form("text_completion", "text_completion", "cmpl-", False)


class OpenAI(Calls):
    """The endpoints; a text's model is named in the body."""

    async def models(self, scope: Scope, receive: Receive) -> Answer:
        """The models of texts that are ready."""
        ready = dict.fromkeys(entry.name for entry in self._server.index(ready=True))
        found = [_model(name) for name in ready if self._server.model_metadata(name).platform.startswith(_KINDS)]
        return object_answer({"object": "list", "data": found})

    async def model(self, scope: Scope, receive: Receive) -> Answer:
        name, _ = model_of(scope)
        try:
            self._server.model_metadata(name)
        except NotFound as e:
            raise _no_model(name) from e
        return object_answer(_model(name))

    async def completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send, read_completion, _TEXT)

    async def chat_completions(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send, read_chat, _CHAT)

    async def embeddings(self, scope: Scope, receive: Receive) -> Answer:
        headers = headers_of(scope)
        asked = read_embedding(await self.read_text(scope, headers, receive))
        self._admit(asked.model, "embedding", "does not embed texts")
        cancel_when_lost(scope)
        request = replace(asked.as_infer_request(trace_of(headers)), held=scope[ACCOUNT])
        body = await asked.answer(await self._server.infer(request))
        request.hold(len(body))
        return text_answer(body)

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        read: Callable[[Mapping[str, Any]], TextRequest],
        form: _Form,
    ) -> None:
        headers = headers_of(scope)
        asked = read(await self.read_text(scope, headers, receive))
        self._admit(asked.model, "text", "does not generate text")
        requests = [self._request(asked.model, own, trace_of(headers)) for own in asked.option_sets()]
        head = {"id": form.prefix + secrets.token_hex(12), "created": int(time.time()), "model": asked.model}
        if not asked.stream:
            cancel_when_lost(scope)
            tasks = [asyncio.create_task(self._server.infer(r)) for r in requests]
            try:
                found = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
            answer = object_answer(_whole(asked, form, head, found, requests))
            status, raw, content = answer
            await send({"type": "http.response.start", "status": status, "headers": raw})
            await send({"type": "http.response.body", "body": content})
            return
        pieces = self._pieces(requests)
        async with aclosing(pieces):
            first = await anext(pieces)  # an error before the first piece has a status of its own
            events = _events(asked, form, head, first, pieces, requests)
            streaming = StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
            await streaming(scope, receive, send)

    def _admit(self, model: str, kind: str, why_not: str) -> None:
        """Admit a request for a model of a kind. NotFound, Unsupported for one of another kind."""
        try:
            metadata = self._server.model_metadata(model)
        except NotFound as e:
            raise _no_model(model) from e
        if not metadata.platform.startswith(f"{kind}_"):
            failure = Unsupported(f"model '{model}' {why_not}; POST /v2/models/{model}/infer")
            failure.param = "model"
            raise failure
        self._server.admit(model)

    def _request(self, model: str, options: Mapping[str, Any], trace: Mapping[str, str]) -> InferRequest:
        prompt = options["prompt"]
        text = np.array([prompt.encode() if isinstance(prompt, str) else b""], object)
        return InferRequest(model, (Tensor("text_input", "BYTES", text),), trace=trace, generation=options)

    async def _pieces(self, requests: list[InferRequest]) -> AsyncGenerator[tuple[int, InferResponse]]:
        """The responses of all texts as they come, with the number of each text."""
        found: asyncio.Queue[tuple[int, InferResponse] | BaseException | None] = asyncio.Queue()

        async def read(number: int, request: InferRequest) -> None:
            try:
                async with aclosing(self._server.stream(request)) as responses:
                    async for response in responses:
                        found.put_nowait((number, response))
            except BaseException as e:
                found.put_nowait(e)
                raise
            found.put_nowait(None)

        tasks = [asyncio.create_task(read(n, r)) for n, r in enumerate(requests)]
        try:
            left = len(tasks)
            while left:
                item = await found.get()
                if item is None:
                    left -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def openai_error(failure: ServeError) -> tuple[int, dict[str, Any]]:
    """Status and body of an error, as OpenAI's clients read it. What is not offered is no fault of the server here."""
    status = 400 if isinstance(failure, Unsupported) else failure.status
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = "model_not_found" if failure.param == "model" and status == 404 else None
    return status, {"error": {"message": str(failure), "type": kind, "param": failure.param, "code": code}}


def _no_model(name: str) -> NotFound:
    failure = NotFound(f"The model '{name[:255]}' does not exist; GET /v1/models lists names")
    failure.param = "model"
    return failure


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "opalite"}


def _whole(
    asked: TextRequest, form: _Form, head: Mapping[str, Any], found: list[InferResponse], requests: list[InferRequest]
) -> dict[str, Any]:
    """The answer that is no stream."""
    choices = []
    for number, response in enumerate(found):
        text = _text_of(response)
        reason = _REASONS.get(str(response.parameters.get("reason")), "stop")
        choice: dict[str, Any] = {"index": number, "finish_reason": reason}
        if form.is_chat:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if asked.most_calls != 0:
                content, calls = find_tool_calls(text, asked.most_calls)
                if calls:
                    message |= {"content": content or None, "tool_calls": calls}
                    choice["finish_reason"] = "tool_calls"
            choice["message"] = message
        else:
            choice["text"] = _echoed(asked, requests[number]) + text
        choice["logprobs"] = _logprobs(asked, form, response)
        choices.append(choice)
    return {**head, "object": form.kind, "choices": choices, "usage": _usage(asked, [r.parameters for r in found])}


async def _events(
    asked: TextRequest,
    form: _Form,
    head: Mapping[str, Any],
    first: tuple[int, InferResponse],
    rest: AsyncIterator[tuple[int, InferResponse]],
    requests: list[InferRequest],
) -> AsyncIterator[bytes]:
    """Server-sent events; an error is the last one."""
    begun: set[int] = set()
    held: dict[int, str] = {}  # texts in which calls of functions are looked for
    ends: list[Mapping[str, Any]] = []
    head = {**head, "object": form.chunk}

    def event(choice: dict[str, Any] | None, **more: Any) -> bytes:
        return b"data: " + dump({**head, "choices": [] if choice is None else [choice], **more}) + b"\n\n"

    def delta(number: int, fields: dict[str, Any], reason: str | None = None, logprobs: Any = None) -> bytes:
        choice: dict[str, Any] = {"index": number, "finish_reason": reason, "logprobs": logprobs}
        return event(choice | ({"delta": fields} if form.is_chat else {"text": fields.get("content", "")}))

    async def all_pieces() -> AsyncIterator[tuple[int, InferResponse]]:
        yield first
        async for piece in rest:
            yield piece

    try:
        async for number, response in all_pieces():
            text = _text_of(response)
            if number not in begun:
                begun.add(number)
                if form.is_chat:
                    yield delta(number, {"role": "assistant", "content": ""})
                elif echoed := _echoed(asked, requests[number]):
                    yield delta(number, {"content": echoed})
            if asked.most_calls != 0:
                held[number] = held.get(number, "") + text
            elif text or response.logprobs:
                yield delta(number, {"content": text}, None, _logprobs(asked, form, response))
            if response.parameters.get("triton_final_response") is not True:
                continue
            ends.append(response.parameters)
            reason = _REASONS.get(str(response.parameters.get("reason")), "stop")
            if asked.most_calls != 0:
                content, calls = find_tool_calls(held.pop(number), asked.most_calls)
                if content:
                    yield delta(number, {"content": content})
                if calls:
                    reason = "tool_calls"
                    yield delta(number, {"tool_calls": [{"index": n, **call} for n, call in enumerate(calls)]})
            yield delta(number, {}, reason)
        if asked.usage:
            yield event(None, usage=_usage(asked, ends))
        yield b"data: [DONE]\n\n"
    except Exception as e:
        yield b"data: " + dump(openai_error(as_serve_error(e, "a stream"))[1]) + b"\n\n"


def _text_of(response: InferResponse) -> str:
    text = response.outputs[0].array.flat[0]
    return text.decode() if isinstance(text, bytes) else str(text)


def _echoed(asked: TextRequest, request: InferRequest) -> str:
    """The prompt that a completion begins with."""
    prompt = (request.generation or {}).get("prompt")
    return prompt if asked.echo and isinstance(prompt, str) else ""


def _logprobs(asked: TextRequest, form: _Form, response: InferResponse) -> dict[str, Any] | None:
    if asked.options.get("logprobs") is None:
        return None
    if form.is_chat:
        entries = [
            {**_token(text, p), "top_logprobs": [_token(t, q) for t, q in top]} for text, p, top in response.logprobs
        ]
        return {"content": entries, "refusal": None}
    return {
        "tokens": [text for text, _, _ in response.logprobs],
        "token_logprobs": [p for _, p, _ in response.logprobs],
        "top_logprobs": [dict(top) for _, _, top in response.logprobs],
    }


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _usage(asked: TextRequest, ends: list[Any]) -> dict[str, int]:
    """Numbers of tokens; the prompt of several choices counts once."""
    prompt = sum(int(end.get("prompt_tokens", 0)) for end in ends) // asked.choices
    written = sum(int(end.get("tokens", 0)) for end in ends)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
