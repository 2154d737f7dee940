"""App: the ASGI application with routes, access checks and error handling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Message, Receive, Scope, Send

from ..wire.client_limits import HttpLimits
from ..wire.listening_front import Key
from ..wire.serve_errors import (
    ForeignPage,
    MethodWrong,
    NotFound,
    NotReady,
    ServeError,
    as_serve_error,
)
from .control_endpoints import Control
from .endpoints import Endpoints, headers_of
from .generate_endpoint import Generate
from .openai.endpoints import OpenAI, openai_error
from .request_body import ACCOUNT, BodyReader, DisconnectedError
from .responses import Answer, error_answer, object_answer
from .uvicorn_connection import LINK, Link

if TYPE_CHECKING:
    from ..engine.inference_server import Server

_OPEN = ("/v2/health/live", "/v2/health/ready")
_PART = 1 << 20
"""Bytes of an answer that are sent at once."""
_MODEL = "/v2/models/{model}"
_VERSION = "/v2/models/{model}/versions/{version}"

Call = Callable[[Scope, Receive], Awaitable[Answer]]


class App:
    """Serves the Open Inference Protocol.

    key: required of every request, except health if `open_health`. hosts: names of this server in browsers, besides
        its addresses and localhost. more: further routes, such as metrics. only_health: serve nothing else.
    """

    def __init__(
        self,
        server: Server,
        limits: HttpLimits,
        key: Key | None = None,
        *,
        open_health: bool = True,
        hosts: Iterable[str] = (),
        more: Iterable[BaseRoute] = (),
        only_health: bool = False,
    ) -> None:
        self._key, self._hosts = key, frozenset(h.lower().rstrip(".") for h in hosts)
        self._open = frozenset(_OPEN) if open_health else frozenset()
        bodies = BodyReader(limits)
        calls = Endpoints(server, limits, bodies)
        streams = (_MODEL + "/generate_stream", _VERSION + "/generate_stream")
        generate = Generate(server, limits, bodies)
        openai = OpenAI(server, limits, bodies)
        control = Control(server, limits, bodies)
        self.calls = calls
        self._memory, self._limits = server.memory, limits
        routes = [
            _route("/v2/health/live", "GET", calls.live),
            _route("/v2/health/ready", "GET", calls.ready),
            *more,
        ]
        if not only_health:
            routes += [
                *_both("/infer", "POST", calls.infer),
                *_both("/generate", "POST", generate.one),
                *(Route(path, _Application(generate.stream), methods=["POST"]) for path in streams),
                _route("/v2", "GET", calls.metadata),
                _route("/v2/models/stats", "GET", calls.statistics),
                *_both("", "GET", calls.model_metadata),
                *_both("/ready", "GET", calls.model_ready),
                *_both("/config", "GET", calls.model_config),
                *_both("/stats", "GET", calls.statistics),
                _route("/v2/repository/index", "POST", calls.index),
                _route("/v2/repository/models/{model}/load", "POST", calls.load),
                _route("/v2/repository/models/{model}/unload", "POST", calls.unload),
                _route("/v1/models", "GET", openai.models),
                _route("/v1/models/{model}", "GET", openai.model),
                _route("/v1/embeddings", "POST", openai.embeddings),
                Route("/v1/completions", _Application(openai.completions), methods=["POST"]),
                Route("/v1/chat/completions", _Application(openai.chat_completions), methods=["POST"]),
                *(_route(*route) for route in control.routes()),
            ]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. An error before the answer becomes {"error": ...}."""
        if scope["type"] != "http":
            raise RuntimeError(f"this application answers HTTP, and was asked for {scope['type']}")
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        scope["app"] = self  # makes the router raise routing errors
        account = scope[ACCOUNT] = self._memory.account((scope.get("client") or ("",))[0])
        try:
            self._check(scope)
            await self._router(scope, receive, self._limited(scope, watched))
        except DisconnectedError:
            pass
        except asyncio.CancelledError:
            link: Link | None = scope.get("extensions", {}).get(LINK)
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            if (link is None or not link.lost) and not begun:
                await _send(send, error_answer(NotReady("the server stops; the request was not finished in time")))
        except Exception as e:
            failure = _failure(e, scope)
            if begun:
                raise
            await _send(send, _error(failure, scope))
        finally:
            account.close()

    def _limited(self, scope: Scope, send: Send) -> Send:
        """`send` with the time in which a client has to take a part of an answer; a later one is disconnected."""
        link: Link | None = scope.get("extensions", {}).get(LINK)

        async def limited(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                return
            try:
                async with asyncio.timeout(self._limits.response_s):
                    await send(message)
            except TimeoutError:
                if link is not None:
                    link.abort()
                raise DisconnectedError from None

        return limited

    def _is_own(self, host: str) -> bool:
        """Whether a page at `host` is this server's: any other name may belong to an attacker (DNS rebinding)."""
        name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
        name = name.lower().rstrip(".")
        with contextlib.suppress(ValueError):
            ip_address(name)
            return True
        return name == "localhost" or name.endswith(".localhost") or name in self._hosts

    def _check(self, scope: Scope) -> None:
        """Check origin and key. ForeignPage, Unauthorized."""
        headers = headers_of(scope)
        origin, host = headers.get(b"origin"), headers.get(b"host", b"")
        if origin is not None and origin.partition(b"://")[2] != host:
            raise ForeignPage("a page of another place asks; browsers may only ask from pages of this server")
        if (origin is not None or b"sec-fetch-site" in headers) and not self._is_own(host.decode("latin-1")):
            raise ForeignPage(
                "a browser asks by a name that may not be this server's; open the page by its address, or start the "
                "server with --allowed-host NAME"
            )
        if self._key is not None and scope["path"] not in self._open:
            self._key.check(headers)


class _Application:
    """A call as an ASGI application: starlette gives functions a request instead."""

    def __init__(self, call: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._call(scope, receive, send)


def _route(path: str, method: str, call: Call) -> Route:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await _send(send, await call(scope, receive))

    return Route(path, _Application(answer), methods=[method])


def _both(end: str, method: str, call: Call) -> list[Route]:
    """Routes of a model and of one of its versions."""
    return [_route(_MODEL + end, method, call), _route(_VERSION + end, method, call)]


def _failure(e: Exception, scope: Scope) -> ServeError:
    """The error that the client gets; starlette's routing errors are 404 and 405."""
    if isinstance(e, HTTPException) and e.status_code == 405:
        allowed = (e.headers or {}).get("Allow", "")
        return MethodWrong(f"{scope['path'][:128]} is asked for by {allowed}, not {scope['method'][:16]}", allowed)
    if isinstance(e, HTTPException):
        return NotFound(f"there is no {scope['path'][:128]}")
    return as_serve_error(e, scope["path"][:128])


def _error(failure: ServeError, scope: Scope) -> Answer:
    """The error in the form of the path's API."""
    status, headers, body = error_answer(failure)
    if not scope["path"].startswith("/v1/"):
        return status, headers, body
    status, told = openai_error(failure)
    own = object_answer(told, status)
    kept = [(name, value) for name, value in headers if name not in (b"content-type", b"content-length")]
    return status, own[1] + kept, own[2]


async def _send(send: Send, answer: Answer) -> None:
    status, headers, body = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    rest = memoryview(body)
    # Each part waits until the client has taken those before it, so that the answer is counted while it is held.
    while len(rest) > _PART:
        await send({"type": "http.response.body", "body": rest[:_PART], "more_body": True})
        rest = rest[_PART:]
    await send({"type": "http.response.body", "body": rest if rest.nbytes < len(body) else body})
