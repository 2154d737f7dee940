"""What only HTTP knows to go wrong: paths, methods, lengths, encodings, times, pages of browsers."""

from __future__ import annotations

from ..wire.serve_errors import Invalid


class MethodWrong(Invalid):
    """The path has no such method. allowed: those that it has."""

    status = 405

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class ForeignPage(Invalid):
    """A browser asks for a page of another place."""

    status = 403


class TooSlow(Invalid):
    """The body did not come in time."""

    status = 408


class LengthMissing(Invalid):
    """The request tells no length of its body, nor that it comes in chunks."""

    status = 411


class EncodingUnknown(Invalid):
    """The body is compressed by something else than gzip and deflate."""

    status = 415
