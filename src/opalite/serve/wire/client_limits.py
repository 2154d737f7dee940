"""Limits of a client, each checked before memory or time is spent."""

from __future__ import annotations

from dataclasses import dataclass

_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class TensorLimits:
    """elements, rank: of a tensor. tensors: inputs, or outputs, of a request."""

    elements: int = 1 << 28
    rank: int = 32
    tensors: int = 1024


@dataclass(frozen=True)
class HttpLimits(TensorLimits):
    """Sizes in bytes, times in seconds.

    body_bytes: of a request, compressed and decompressed. json_bytes: its JSON part. text_bytes: of a request for a
    text or embedding, whose parsing blocks other requests. header_bytes: request line and headers. connections: open
    ones. header_s: from the first byte of a request (or the connection) to the end of its headers. body_s: from there
    to the end of the body. idle_s: between two requests of a connection. response_s: for a client to receive an answer.
    """

    body_bytes: int = 128 * _MEBIBYTE
    json_bytes: int = 32 * _MEBIBYTE
    text_bytes: int = 4 * _MEBIBYTE
    header_bytes: int = 32 * 1024
    connections: int = 4096
    header_s: float = 10.0
    body_s: float = 120.0
    idle_s: float = 75.0
    response_s: float = 120.0


@dataclass(frozen=True)
class GrpcLimits(TensorLimits):
    """message_bytes: of one request or answer. head_bytes: of an inference request without raw tensors, whose parsing
        blocks other requests. fields: of a message. config_bytes: of a configuration in a load request.

    connections: open ones. idle_s: of a connection without a call, which is then closed. handshake_s: to establish one.
    streams: concurrent calls of one connection. in_flight: concurrent requests of one ModelStreamInfer; the next is
        read when one of them is answered.
    """

    message_bytes: int = 128 * _MEBIBYTE
    head_bytes: int = 8 * _MEBIBYTE
    fields: int = 8192
    config_bytes: int = _MEBIBYTE
    connections: int = 4096
    idle_s: float = 75.0
    handshake_s: float = 10.0
    streams: int = 1024
    in_flight: int = 64
