"""ServeError and its kinds: why a request failed, with the HTTP status and the gRPC code that say so.

    ServeError
    ├── Invalid        400 INVALID_ARGUMENT     the request does not fit the model or the protocol
    ├── Unauthorized   401 UNAUTHENTICATED      no key, or a wrong one
    ├── NotFound       404 NOT_FOUND            no such model or version
    ├── TooLarge       413 RESOURCE_EXHAUSTED   more bytes or elements than the server takes
    ├── Unsupported    501 UNIMPLEMENTED        a part of the protocol that this server does not offer
    ├── Busy           503 UNAVAILABLE          the queue is full
    ├── NotReady       503 UNAVAILABLE          the model or the server starts or closes
    ├── TimedOut       504 DEADLINE_EXCEEDED    the request waited longer than it may
    ├── WorkerLost     503 UNAVAILABLE          the process that held the request ended
    └── Internal       500 INTERNAL             a fault of the model's run, or of the server

https://github.com/kserve/open-inference-protocol has no table of its own; these are the statuses that Triton gives.
"""

from __future__ import annotations

from typing import ClassVar

from ...errors import OpaliteError


class ServeError(OpaliteError):
    """A request that failed. status: of HTTP; code: the name of gRPC's status; retry_after_s: when to try again."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL"
    retry_after_s: float | None = None

    @property
    def kind(self) -> str:
        """The class's name, as metrics and traces tell it."""
        return type(self).__name__


class Invalid(ServeError):
    """The request does not fit the model or the protocol."""

    status, code = 400, "INVALID_ARGUMENT"


class Unauthorized(ServeError):
    """The request has no key, or a wrong one."""

    status, code = 401, "UNAUTHENTICATED"


class NotFound(ServeError):
    """There is no such model or version."""

    status, code = 404, "NOT_FOUND"


class TooLarge(ServeError):
    """The request, or its answer, has more bytes or elements than the server takes."""

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


class NotReady(ServeError):
    """The model or the server is starting or closing."""

    status, code = 503, "UNAVAILABLE"


class TimedOut(ServeError):
    """The request waited longer than it may."""

    status, code = 504, "DEADLINE_EXCEEDED"


class WorkerLost(ServeError):
    """The process that held the request ended before it answered; the request may be sent again."""

    status, code = 503, "UNAVAILABLE"
    retry_after_s = 0.0


class Internal(ServeError):
    """The model's run failed, or the server did."""
