"""What a call needs beside its message: the key, the time that is left, the trace that it belongs to, the model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..wire.api_key import Key
from ..wire.infer_messages import InferRequest
from ..wire.serve_errors import TimedOut

if TYPE_CHECKING:
    from ..engine.inference_server import Server

_TRACED = ("traceparent", "tracestate")


def check_key(context: Any, key: Key | None) -> None:
    """Unauthorized unless the call's metadata has the key, as `authorization: Bearer KEY` or `x-api-key: KEY`."""
    if key is not None:
        given = context.invocation_metadata() or ()
        key.check({name.encode(): v if isinstance(v, bytes) else v.encode() for name, v in given})


def trace_of(context: Any) -> dict[str, str]:
    """W3C's trace context in the call's metadata."""
    given = context.invocation_metadata() or ()
    return {name: value for name, value in given if name in _TRACED and isinstance(value, str)}


def with_deadline(context: Any, request: InferRequest) -> InferRequest:
    """The request, which waits no longer than its caller does. TimedOut where the caller's deadline has passed."""
    left = context.time_remaining()
    if left is None:
        return request
    if left <= 0:
        raise TimedOut("the deadline had passed when the request was read")
    if 0 < request.timeout_s <= left:
        return request
    return replace(request, parameters={**request.parameters, "timeout": max(1, int(left * 1e6))})


def takes_batches(server: Server, request: InferRequest) -> bool:
    """Whether the first dimension of the model's tensors is one of requests."""
    return bool(server.model_config(request.model, request.version).get("max_batch_size", 0))
