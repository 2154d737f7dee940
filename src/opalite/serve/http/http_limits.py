"""Limits of an HTTP client, each checked before memory or time is spent."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, times in seconds.

    body_bytes: of a request, compressed and decompressed. json_bytes: its JSON part, whose parsing blocks other
    requests. held_bytes: all bodies in memory. elements, rank: of a tensor. tensors: inputs, or outputs, of a request.
    header_bytes: request line and headers. connections: open ones. header_s: from the first byte of a request (or the
    connection) to the end of its headers. body_s: from there to the end of the body. idle_s: between two requests of a
    connection. response_s: for a client to receive an answer.
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
