"""ServeError and its subclasses: reasons of failed requests, with HTTP status and gRPC code.

    ServeError
    ├── Invalid              400 INVALID_ARGUMENT     the request violates the protocol or the model's inputs
    │   ├── MethodWrong      405 INVALID_ARGUMENT     of HTTP: the path does not support the method
    │   ├── ForeignPage      403 INVALID_ARGUMENT     of HTTP: a browser page of another origin asks
    │   ├── TooSlow          408 INVALID_ARGUMENT     of HTTP: the body exceeded its time
    │   ├── LengthMissing    411 INVALID_ARGUMENT     of HTTP: neither Content-Length nor chunked encoding
    │   └── EncodingUnknown  415 INVALID_ARGUMENT     of HTTP: the body's encoding is neither gzip nor deflate
    ├── Unauthorized         401 UNAUTHENTICATED      no key, or a wrong one
    ├── NotFound             404 NOT_FOUND            no such model or version
    ├── TooLarge             413 RESOURCE_EXHAUSTED   more bytes or elements than the server accepts
    ├── Unsupported          501 UNIMPLEMENTED        a part of the protocol that this server does not offer
    ├── Busy                 503 UNAVAILABLE          the queue is full
    │   └── MemoryFull       503 RESOURCE_EXHAUSTED   the memory for requests is taken
    ├── NotReady             503 UNAVAILABLE          the model or the server starts or closes
    ├── TimedOut             504 DEADLINE_EXCEEDED    the request exceeded its time in the queue
    ├── WorkerLost           503 UNAVAILABLE          the process that held the request ended
    └── Internal             500 INTERNAL             the model's run or the server failed

The statuses are Triton's: https://github.com/kserve/open-inference-protocol has no table of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

from ...errors import InputError, OpaliteError

_log = logging.getLogger("opalite.serve")
NO_CUDA_MEMORY = "CUDA shared memory is not offered: OpenCL opens no CUDA handles; register system shared memory"
NO_SEQUENCES = "requests are independent here: send the state as an input, and take it from the outputs"
"""Reasons and ways out, for parts of the protocol that are not offered."""


class ServeError(OpaliteError):
    """A failed request. status: HTTP status. code: name of the gRPC status. retry_after_s: seconds before a retry.

    param: the request's field that is at fault, for OpenAI's clients.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL"
    retry_after_s: float | None = None
    param: str | None = None

    @property
    def kind(self) -> str:
        """The class name, for metrics and traces."""
        return type(self).__name__


class Invalid(ServeError):
    """The request violates the protocol or the model's inputs."""

    status, code = 400, "INVALID_ARGUMENT"


class Unauthorized(ServeError):
    """The request has no key, or a wrong one."""

    status, code = 401, "UNAUTHENTICATED"


class NotFound(ServeError):
    """The model or version does not exist."""

    status, code = 404, "NOT_FOUND"


class TooLarge(ServeError):
    """The request, or its answer, has more bytes or elements than the server accepts."""

    status, code = 413, "RESOURCE_EXHAUSTED"


class Unsupported(ServeError):
    """A part of the protocol that this server does not offer."""

    status, code = 501, "UNIMPLEMENTED"


class Busy(ServeError):
    """The model's queue is full."""

    status, code = 503, "UNAVAILABLE"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class MemoryFull(Busy):
    """The requests that are being answered take all the memory for requests, or the client's part."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self) -> None:
        super().__init__(
            "the requests that are being answered take all the memory for requests, or this client's part; try again, "
            "or start the server with more (--request-memory-mb)"
        )


class NotReady(ServeError):
    """The model or the server is starting or closing."""

    status, code = 503, "UNAVAILABLE"


class TimedOut(ServeError):
    """The request exceeded its time in the queue."""

    status, code = 504, "DEADLINE_EXCEEDED"


class WorkerLost(ServeError):
    """The process that held the request ended before it answered; the request may be sent again."""

    status, code = 503, "UNAVAILABLE"
    retry_after_s = 0.0


class Internal(ServeError):
    """The model's run failed, or the server did."""


class MethodWrong(Invalid):
    """The path does not support the method. allowed: supported ones."""

    status = 405

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class ForeignPage(Invalid):
    """A browser page of another origin sent the request."""

    status = 403


class TooSlow(Invalid):
    """The body exceeded its time."""

    status = 408


class LengthMissing(Invalid):
    """The request has neither Content-Length nor chunked encoding."""

    status = 411


class EncodingUnknown(Invalid):
    """The body's encoding is neither gzip nor deflate."""

    status = 415


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, '' if none is near."""
    near = get_close_matches(name, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def as_serve_error(error: Exception, call: str) -> ServeError:
    """The error that a client of `call` gets. An unexpected one is logged, and its text is not sent."""
    if isinstance(error, ServeError):
        return error
    if isinstance(error, InputError):
        return Invalid(str(error))
    if isinstance(error, OpaliteError):
        return Internal(str(error))
    if isinstance(error, MemoryError):
        return TooLarge("the request exceeds the available memory")
    _log.error("%s failed: %s: %s", call, type(error).__name__, error, exc_info=error)
    return Internal(f"internal error in {call}; the server's log has more")
