"""Limits of a gRPC client, each checked before memory or time is spent."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """message_bytes: of one request or answer. elements: of one tensor. rank: of its shape.

    tensors: inputs, or outputs, of a request. config_bytes: of a configuration in a load request.
    streams: concurrent calls of one connection. in_flight: concurrent requests of one ModelStreamInfer; the next is
        read when one of them is answered.
    """

    message_bytes: int = 128 * MEBIBYTE
    elements: int = 1 << 28
    rank: int = 32
    tensors: int = 1024
    config_bytes: int = MEBIBYTE
    streams: int = 1024
    in_flight: int = 64
