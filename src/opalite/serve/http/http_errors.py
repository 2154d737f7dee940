"""Errors of HTTP only: methods, lengths, encodings, timeouts, foreign origins."""

from __future__ import annotations

from ..wire.serve_errors import Invalid


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
