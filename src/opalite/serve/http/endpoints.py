"""Endpoints: the HTTP endpoints of the protocol."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from starlette.types import Receive, Scope

from ..wire.classification import Classification
from ..wire.client_limits import HttpLimits
from ..wire.infer_messages import TRACE_HEADERS
from ..wire.serve_errors import Invalid, NotFound, Unsupported
from .json_beside_loop import read_infer_object, write_outputs
from .parse_infer_request import read_object, read_parameters, read_request, split_body
from .request_body import ACCOUNT, BodyReader, Headers
from .responses import Answer, compress, empty_answer, encoding_for, infer_answer, object_answer
from .uvicorn_connection import LINK, Link

if TYPE_CHECKING:
    from ..engine.inference_server import Server
    from ..engine.system_shared_memory import ClientRegions

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_SMALL = 1 << 20
"""Maximal bytes of the body of a call other than inference."""


class Calls:
    """Calls of a server; their methods take the scope and `receive` of a request with a checked key."""

    def __init__(self, server: Server, limits: HttpLimits, bodies: BodyReader) -> None:
        self._server, self._limits, self._bodies = server, limits, bodies

    def regions_of(self, scope: Scope) -> ClientRegions:
        """The shared memory regions as the client of a request may use them."""
        return self._server.shared_memory.of((scope.get("client") or ("",))[0], scope.get(ACCOUNT))

    async def read_object(self, scope: Scope, receive: Receive) -> dict[str, Any]:
        """The JSON object of a call, {} without a body."""
        headers = headers_of(scope)
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            return {}
        return read_object(await self._bodies.read(scope, headers, receive, _SMALL), self._limits)

    async def read_text(self, scope: Scope, headers: Headers, receive: Receive) -> dict[str, Any]:
        """The JSON object of a call for a text or embedding."""
        return read_object(await self._bodies.read(scope, headers, receive, self._limits.text_bytes), self._limits)


class Endpoints(Calls):
    """Each method returns the answer of an endpoint."""

    stopping = False

    async def live(self, scope: Scope, receive: Receive) -> Answer:
        live = self._server.live
        return object_answer({"live": live}, 200 if live else 503)

    async def ready(self, scope: Scope, receive: Receive) -> Answer:
        ready = self._server.ready and not self.stopping
        return object_answer({"ready": ready}, 200 if ready else 503)

    async def metadata(self, scope: Scope, receive: Receive) -> Answer:
        return object_answer(self._server.metadata())

    async def model_metadata(self, scope: Scope, receive: Receive) -> Answer:
        return object_answer(asdict(self._server.model_metadata(*model_of(scope))))

    async def model_ready(self, scope: Scope, receive: Receive) -> Answer:
        name, version = model_of(scope)
        ready = self._server.model_ready(name, version)
        return object_answer({"name": name, "ready": ready}, 200 if ready else 503)

    async def model_config(self, scope: Scope, receive: Receive) -> Answer:
        return object_answer(self._server.model_config(*model_of(scope)))

    async def statistics(self, scope: Scope, receive: Receive) -> Answer:
        found = self._server.statistics(*model_of(scope))
        return object_answer({"model_stats": [one.as_json() for one in found]})

    async def index(self, scope: Scope, receive: Receive) -> Answer:
        ready = (await self.read_object(scope, receive)).get("ready", False)
        if not isinstance(ready, bool):
            raise Invalid("'ready' is true or false")
        return object_answer([asdict(entry) for entry in self._server.index(ready)])

    async def load(self, scope: Scope, receive: Receive) -> Answer:
        name, _ = model_of(scope)
        parameters = read_parameters("the request", await self.read_object(scope, receive))
        if any(name.startswith("file:") for name in parameters):
            raise Unsupported("files in a request to load are not offered; put the model into the repository")
        config = parameters.get("config")
        if config is not None and not isinstance(config, str):
            raise Invalid("the parameter 'config' is a model's configuration as JSON, in a text")
        found = None if config is None else read_object(config.encode(), self._limits)
        await self._server.load(name, found)
        return empty_answer()

    async def unload(self, scope: Scope, receive: Receive) -> Answer:
        name, _ = model_of(scope)
        read_parameters("the request", await self.read_object(scope, receive))
        await self._server.unload(name)
        return empty_answer()

    async def infer(self, scope: Scope, receive: Receive) -> Answer:
        headers = headers_of(scope)
        name, version = model_of(scope)
        regions = self.regions_of(scope)
        cancel_when_lost(scope)
        self._server.admit(name, version)
        body = await self._bodies.read(scope, headers, receive)
        head, rest = split_body(body, _header_length(headers))
        found = await read_infer_object(self._server.helper, head, self._limits)
        request, wanted = read_request(name, version, found, rest, self._limits, trace_of(headers), regions)
        request = replace(request, held=scope[ACCOUNT])
        if not rest:
            request.hold(sum(tensor.array.nbytes for tensor in request.inputs))
        classes, places = Classification(self._server, request), regions.outputs_of(request)
        response = places.apply(classes.apply(await self._server.infer(request)))
        request.hold(response.nbytes)  # of the answer's copy
        texts = await write_outputs(self._server.helper, request, response, wanted, self._limits)
        answer = infer_answer(response, wanted, texts)
        encoding = encoding_for(headers, answer)
        return await asyncio.to_thread(compress, answer, encoding) if encoding else answer


def headers_of(scope: Scope) -> Headers:
    """The headers by lower-case name; of equal names the last."""
    return dict(scope["headers"])


def model_of(scope: Scope) -> tuple[str, str]:
    """Model name and version in the path, '' if absent. NotFound for a name that no model can have."""
    found: Mapping[str, str] = scope["path_params"]
    for kind, name in found.items():
        if _NAME.fullmatch(name) is None or ".." in name:
            raise NotFound(f"{name[:64]!r} is no {kind}: letters, digits, '-', '_' and '.', not '..'")
    return found.get("model", ""), found.get("version", "")


def trace_of(headers: Headers) -> dict[str, str]:
    """The W3C trace context in the headers."""
    found = ((name, headers.get(name.encode())) for name in TRACE_HEADERS)
    return {name: value.decode("latin-1") for name, value in found if value is not None}


def cancel_when_lost(scope: Scope) -> None:
    """Cancel this request's task when its client disconnects."""
    link: Link | None = scope.get("extensions", {}).get(LINK)
    task = asyncio.current_task()
    if link is not None and task is not None:
        link.on_lost = task.cancel


def _header_length(headers: Headers) -> int | None:
    text = headers.get(b"inference-header-content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise Invalid("Inference-Header-Content-Length is no number of bytes")
    return int(text)
