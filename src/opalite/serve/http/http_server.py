"""The HTTP server: uvicorn with the application, on a port that is bound before anything else starts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvicorn
from starlette.routing import BaseRoute

from ...errors import InputError
from ..wire.api_key import Key
from .asgi_app import App
from .http_limits import Limits
from .uvicorn_connection import connection_class

if TYPE_CHECKING:
    from ..engine.inference_server import Server


_AT_ONCE = 16
"""Connections that are accepted in a round of the event loop."""


@dataclass(frozen=True)
class HttpSettings:
    """Where and how HTTP is served. port: 0 for any that is free. tls_cert, tls_key: PEM files, both or none."""

    host: str = "127.0.0.1"
    port: int = 8000
    key: Key | None = None
    open_health: bool = True
    tls_cert: str | None = None
    tls_key: str | None = None
    limits: Limits = field(default_factory=Limits)


class HttpFront:
    """Answers on a port from `start` to `stop`. InputError for a port or certificate that cannot be used."""

    name = "HTTP"

    def __init__(self, settings: HttpSettings, more: Iterable[BaseRoute] = ()) -> None:
        self._settings = settings
        self._more = tuple(more)
        self._socket = bind(settings.host, settings.port)
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if settings.tls_cert is None else "https"
        self.address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self.is_open = settings.key is None and not _is_loopback(host)

    async def start(self, server: Server) -> None:
        """Answer from now on."""
        s = self._settings
        self._app = App(server, s.limits, s.key, open_health=s.open_health, more=self._more)
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
        # uvloop accepts one connection of a socket in a round of its loop: under load, the last of 64 waited for 0.4 s.
        again = [self._socket.dup() for _ in range(_AT_ONCE - 1)]
        self._task = asyncio.create_task(self._uvicorn.serve(sockets=[self._socket, *again]))
        while not self._uvicorn.started and not self._task.done():
            await asyncio.sleep(0.002)
        if self._task.done():
            await self._task

    async def stop(self, grace_s: float) -> None:
        """Take no connection and no further request; what was begun has `grace_s` to be answered."""
        self._app.calls.stopping = True
        self._uvicorn.config.timeout_graceful_shutdown = grace_s  # type: ignore[assignment]  # wait_for takes floats
        self._uvicorn.should_exit = True
        await asyncio.wait([self._task])

    def close(self) -> None:
        """Give the port back where `start` was not reached."""
        self._socket.close()


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: whoever starts the front decides when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there. InputError in one sentence where it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as e:
        raise InputError(f"--host {host} is no address of this machine: {e.strerror or e}") from e
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(2048)
        bound.setblocking(False)
    except OSError as e:
        bound.close()
        if e.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} of {host} is in use; choose another, or 0 for any that is free") from e
        raise InputError(f"port {port} of {host} cannot be used: {e.strerror or e}") from e
    return bound


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"
