"""ListeningFront: the port, address and settings that the HTTP and gRPC fronts share."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from ...errors import InputError
from .api_key import Key


@dataclass(frozen=True)
class ListenSettings:
    """port: 0 for any free port. key: clients must send it. tls_cert, tls_key: PEM files, both or none."""

    host: str = "127.0.0.1"
    port: int = 0
    key: Key | None = None
    open_health: bool = True
    tls_cert: str | None = None
    tls_key: str | None = None


class ListeningFront:
    """Holds a bound port from its construction. InputError for a host or port that cannot be used."""

    scheme = "http"

    def __init__(self, settings: ListenSettings, backlog: int = 0) -> None:
        """backlog: of pending connections; 0 binds the socket without listening."""
        self._socket = _bind(settings.host, settings.port, backlog)
        host, port = self._socket.getsockname()[:2]
        self._host_port = f"{f'[{host}]' if ':' in host else host}:{port}"
        self.address = f"{self.scheme}{'' if settings.tls_cert is None else 's'}://{self._host_port}"
        self.is_open = settings.key is None and not (host.startswith("127.") or host == "::1")

    def close(self) -> None:
        """Release the port of a front that was not started."""
        self._socket.close()


def _bind(host: str, port: int, backlog: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as e:
        raise InputError(f"--host {host} is no address of this machine: {e.strerror or e}") from e
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        if backlog:
            bound.listen(backlog)
            bound.setblocking(False)
    except OSError as e:
        bound.close()
        if e.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} of {host} is in use; choose another, or 0 for any free port") from e
        raise InputError(f"port {port} of {host} cannot be used: {e.strerror or e}") from e
    return bound
