"""Control: shared memory regions, log settings and trace settings over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope

from ..wire.serve_errors import NO_CUDA_MEMORY, Invalid, Unsupported
from .endpoints import Calls, model_of
from .responses import Answer, empty_answer, object_answer

Call = Callable[[Scope, Receive], Awaitable[Answer]]
_REGION = "/region/{region}"


class Control(Calls):
    """Each method except `routes` returns the answer of an endpoint."""

    def routes(self) -> list[tuple[str, str, Call]]:
        """Path, method and call of each endpoint."""
        system, cuda = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
        found: list[tuple[str, str, Call]] = [
            (system + _REGION + "/register", "POST", self.register_region),
            (cuda + _REGION + "/register", "POST", self.register_cuda),
        ]
        for region in ("", _REGION):
            found += [
                (f"{system}{region}/status", "GET", self.region_status),
                (f"{system}{region}/unregister", "POST", self.unregister_region),
                (f"{cuda}{region}/status", "GET", self.cuda_status),
                (f"{cuda}{region}/unregister", "POST", self.unregister_cuda),
            ]
        for method in ("GET", "POST"):
            found += [
                ("/v2/logging", method, self.log_settings),
                ("/v2/trace/setting", method, self.trace_settings),
                ("/v2/models/{model}/trace/setting", method, self.trace_settings),
            ]
        return found

    async def region_status(self, scope: Scope, receive: Receive) -> Answer:
        return object_answer(self.regions_of(scope).status(_region(scope)))

    async def register_region(self, scope: Scope, receive: Receive) -> Answer:
        found = await self.read_object(scope, receive)
        if lacking := [name for name in ("key", "byte_size") if name not in found]:
            raise Invalid(f"a region is registered by 'key', 'byte_size' and 'offset'; '{lacking[0]}' is missing")
        self.regions_of(scope).register(_region(scope), found["key"], found.get("offset", 0), found["byte_size"])
        return empty_answer()

    async def unregister_region(self, scope: Scope, receive: Receive) -> Answer:
        await self.read_object(scope, receive)
        self.regions_of(scope).unregister(_region(scope))
        return empty_answer()

    async def cuda_status(self, scope: Scope, receive: Receive) -> Answer:
        """No region: clients ask before they choose, and unregister all when they end."""
        return object_answer([])

    async def register_cuda(self, scope: Scope, receive: Receive) -> Answer:
        raise Unsupported(NO_CUDA_MEMORY)

    async def unregister_cuda(self, scope: Scope, receive: Receive) -> Answer:
        await self.read_object(scope, receive)
        return empty_answer()

    async def log_settings(self, scope: Scope, receive: Receive) -> Answer:
        self._server.telemetry.update_log(await self._changes(scope, receive))
        return object_answer(self._server.telemetry.log())

    async def trace_settings(self, scope: Scope, receive: Receive) -> Answer:
        name, _ = model_of(scope)
        if name:
            self._server.model_metadata(name)
        self._server.telemetry.update_tracing(await self._changes(scope, receive), name)
        return object_answer(self._server.telemetry.tracing())

    async def _changes(self, scope: Scope, receive: Receive) -> dict[str, object]:
        return await self.read_object(scope, receive) if scope["method"] == "POST" else {}


def _region(scope: Scope) -> str:
    name: str = scope["path_params"].get("region", "")
    return name
