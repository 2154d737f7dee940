"""ReceivedBytes: the bytes that connections of this process have received, by the system's counts.

grpc collects a message outside of Python, and tells nothing of it before its end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

_COUNT = struct.Struct("Q")
_AT = 128  # of tcpi_bytes_received in struct tcp_info of <linux/tcp.h>
_FILES = Path("/proc/self/fd")


class ReceivedBytes:
    """Finds connections by grpc's name of the peer, such as 'ipv4:127.0.0.1:4711'. Linux only."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def known(self, peer: str) -> int | None:
        """The bytes that a connection has received; None for one that `find` has not seen, or that is closed."""
        found = self._files.get(peer)
        if found is None:
            return None
        with contextlib.suppress(OSError), _borrowed(found) as sock:
            if _name(sock) == peer:
                return int(_COUNT.unpack_from(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), _AT)[0])
        del self._files[peer]
        return None

    def find(self) -> None:
        """Look for all connections."""
        self._files = {}
        if sys.platform != "linux":
            return
        for entry in os.listdir(_FILES):
            with contextlib.suppress(OSError, struct.error), _borrowed(int(entry)) as sock:
                self._files[_name(sock)] = int(entry)


@contextlib.contextmanager
def _borrowed(file: int) -> Iterator[socket.socket]:
    """A socket object of a descriptor, which stays open. OSError for a file of another kind."""
    sock = socket.socket(fileno=file)
    try:
        yield sock
    finally:
        sock.detach()


def _name(sock: socket.socket) -> str:
    """grpc's name of the peer. OSError for a socket that is not connected by TCP."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        raise OSError("no TCP")
    host, port = sock.getpeername()[:2]
    host = host.removeprefix("::ffff:") if "." in host else host
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def peer_name(name: str) -> str:
    """The name of a peer as grpc reports it, in the form of `ReceivedBytes`."""
    return unquote(name)


def client_of(peer: str) -> str:
    """The address of a peer, without its port."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer
