"""ListeningFront: the port, address, key and settings that the HTTP and gRPC fronts share."""

from __future__ import annotations

import errno
import hmac
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import knobs
from ...errors import InputError
from .serve_errors import Unauthorized

_LEAST_KEY = 8  # characters


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


class Key:
    """The API key required of clients; compares a request's key with it in constant time."""

    def __init__(self, text: str) -> None:
        self._expected = text.encode()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Unauthorized unless the headers have `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
        given = headers.get(b"x-api-key")
        if given is None:
            scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
            given = rest.strip() if scheme.lower() == b"bearer" else b""
        if not hmac.compare_digest(given, self._expected):
            raise Unauthorized(
                "the key is missing or wrong; send it as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
            )


def find_key(file: str | None) -> Key | None:
    """The key in the first line of `file`, else of OPALITE_SERVE_KEY, else None. InputError for an invalid key."""
    text = knobs.get("OPALITE_SERVE_KEY")
    source = "OPALITE_SERVE_KEY"
    if file is not None:
        source = file
        try:
            lines = Path(file).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as e:
            raise InputError(f"the file of the API key cannot be read: {e}") from e
        text = lines[0].strip() if lines else ""
    if text is None:
        return None
    if len(text) < _LEAST_KEY or not text.isascii() or not text.isprintable() or " " in text:
        raise InputError(f"{source}: a key has {_LEAST_KEY} or more printable ASCII characters, without spaces")
    return Key(text)
