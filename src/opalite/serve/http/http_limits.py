"""What one client may ask of the HTTP front: sizes and times, each checked before the memory or the time is spent."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, times in seconds.

    body_bytes: of one request, as sent and after it is decompressed. json_bytes: its JSON part, which is parsed while
    other requests wait. held_bytes: all bodies that are being read or computed. elements: of one tensor. rank: of its
    shape. tensors: inputs, or outputs, of a request. header_bytes: request line and headers. connections: open ones.
    header_s: from the first byte of a request (or from connecting) to the end of its headers. body_s: from there to the
    end of the body. idle_s: between two requests of a connection. response_s: for the client to take an answer.
    """

    body_bytes: int = 128 * MEBIBYTE
    json_bytes: int = 32 * MEBIBYTE
    held_bytes: int = 1024 * MEBIBYTE
    elements: int = 1 << 28
    rank: int = 32
    tensors: int = 1024
    header_bytes: int = 32 * 1024
    connections: int = 4096
    header_s: float = 10.0
    body_s: float = 120.0
    idle_s: float = 75.0
    response_s: float = 120.0
