"""HttpFront: uvicorn with the ASGI application, on a port bound before anything else starts."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvicorn
from starlette.routing import BaseRoute

from ...errors import InputError
from ..wire.client_limits import HttpLimits
from ..wire.listening_front import ListeningFront, ListenSettings
from .asgi_app import App
from .uvicorn_connection import connection_class

if TYPE_CHECKING:
    from ..engine.inference_server import Server


_ACCEPTED_PER_ROUND = 16
"""Connections accepted in one iteration of the event loop."""
_BACKLOG = 2048
_PROBES = 64
_LAST_CONNECTIONS_S = 0.1
"""Time to accept the connections that the kernel holds for the server, which it would reset when the port closes."""


@dataclass(frozen=True)
class HttpSettings(ListenSettings):
    """The settings of the HTTP front. allowed_hosts: names by which browsers may ask, besides addresses."""

    port: int = 8000
    limits: HttpLimits = field(default_factory=HttpLimits)
    allowed_hosts: tuple[str, ...] = ()


class HttpFront(ListeningFront):
    """Serves HTTP between `start` and `stop`. InputError for a port or certificate that cannot be used."""

    name = "HTTP"
    _only_health = False

    def __init__(self, settings: HttpSettings, more: Iterable[BaseRoute] = ()) -> None:
        """more: routes besides the protocol's."""
        super().__init__(settings, _BACKLOG)
        self._settings = settings
        self._more = tuple(more)

    async def start(self, server: Server) -> None:
        s = self._settings
        self._app = App(
            server, s.limits, s.key, open_health=s.open_health, hosts=s.allowed_hosts, more=self._more,
            only_health=self._only_health,
        )  # fmt: skip
        config = uvicorn.Config(
            self._app, http=connection_class(s.limits), ws="none", lifespan="off", log_config=None, log_level="error",
            access_log=False, proxy_headers=False, server_header=False,
            timeout_keep_alive=s.limits.idle_s,  # type: ignore[arg-type]  # call_later takes floats
            ssl_certfile=s.tls_cert, ssl_keyfile=s.tls_key,
        )  # fmt: skip
        try:
            config.load()
        except (OSError, ssl.SSLError) as e:
            self.close()
            raise InputError(f"the TLS certificate {s.tls_cert} and key {s.tls_key} cannot be used: {e}") from e
        self._uvicorn = _Uvicorn(config)
        # uvloop accepts one connection per socket and iteration: under load, the last of 64 waited 0.4 s.
        copies = [self._socket.dup() for _ in range(_ACCEPTED_PER_ROUND - 1)]
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket, *copies]))
        while not self._uvicorn.started and not self._task.done():
            await asyncio.sleep(0.002)
        if self._task.done():
            await self._task

    async def stop(self, grace_s: float) -> None:
        """Accept no connection or request; finish running requests within `grace_s`."""
        self._app.calls.stopping = True
        await asyncio.sleep(min(grace_s, _LAST_CONNECTIONS_S))
        self._uvicorn.config.timeout_graceful_shutdown = grace_s  # type: ignore[assignment]  # wait_for takes floats
        self._uvicorn.should_exit = True
        await asyncio.wait([self._task])


class HealthFront(HttpFront):
    """Serves health, and metrics, at a port of its own without a key: the connections of others take none of it."""

    name = "health"
    _only_health = True

    def __init__(self, host: str, port: int, more: Iterable[BaseRoute] = ()) -> None:
        super().__init__(HttpSettings(host, port, limits=HttpLimits(connections=_PROBES)), more)
        self.is_open = False


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: the caller of the front decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
