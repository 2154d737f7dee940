"""Metadata, deadline and status of a gRPC call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import grpc

from ..wire.infer_messages import TRACE_HEADERS, InferRequest
from ..wire.listening_front import Key
from ..wire.serve_errors import ServeError, TimedOut

_PUSHBACK = "grpc-retry-pushback-ms"
"""Delay of retrying clients: https://github.com/grpc/proposal/blob/master/A6-client-retries.md"""


def check_key(context: Any, key: Key | None) -> None:
    """Unauthorized unless the metadata has the key, as `authorization: Bearer KEY` or `x-api-key: KEY`."""
    if key is not None:
        given = context.invocation_metadata() or ()
        key.check({name.encode(): v if isinstance(v, bytes) else v.encode() for name, v in given})


def client_host(context: Any) -> str:
    """The address of the client, '' if it has none, as by a socket of a file."""
    kind, _, rest = str(context.peer()).partition(":")
    return unquote(rest.rpartition(":")[0]).strip("[]") if kind in ("ipv4", "ipv6") else ""


def trace_of(context: Any) -> dict[str, str]:
    """The W3C trace context in the metadata."""
    given = context.invocation_metadata() or ()
    return {name: value for name, value in given if name in TRACE_HEADERS and isinstance(value, str)}


def with_deadline(context: Any, request: InferRequest) -> InferRequest:
    """The request with the call's remaining time as its timeout. TimedOut if the deadline has passed."""
    left = context.time_remaining()
    if left is None:
        return request
    if left <= 0:
        raise TimedOut("the deadline had passed when the request was read")
    if 0 < request.timeout_s <= left:
        return request
    return replace(request, parameters={**request.parameters, "timeout": max(1, int(left * 1e6))})


def end_call(context: Any, failure: ServeError) -> bytes:
    """Set the status of the failure; returns the message with which the call then ends.

    `context.abort` raises an exception that keeps the call, and its message, until a collection of cycles.
    """
    trailing: tuple[tuple[str, str], ...] = ()
    if failure.retry_after_s is not None:
        trailing = ((_PUSHBACK, str(round(failure.retry_after_s * 1000))),)
    context.set_code(grpc.StatusCode[failure.code])
    context.set_details(str(failure))
    context.set_trailing_metadata(trailing)
    return b""
