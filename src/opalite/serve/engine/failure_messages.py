"""Exceptions in messages of processes: their kinds and texts."""

from __future__ import annotations

from ...errors import InputError, ShapeError
from ..wire import serve_errors
from ..wire.serve_errors import Internal, Invalid, ServeError
from .worker_channel import Message


def failure_message(e: Exception) -> Message:
    """The fields of a message about an exception."""
    if isinstance(e, ServeError):
        kind = type(e)
    elif isinstance(e, InputError | ShapeError):
        kind = Invalid
    else:
        kind = Internal
    return {"kind": kind.__name__, "message": str(e) or type(e).__name__}


def error_from(message: Message) -> ServeError:
    """The error that a message describes."""
    kind = getattr(serve_errors, message["kind"], Internal)
    return (kind if issubclass(kind, ServeError) else Internal)(message["message"])
