"""A failure as the end of a gRPC call: its code, its sentence, and when to try again."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import grpc

from ..wire.serve_errors import Internal, ServeError

_log = logging.getLogger("opalite.serve")
_PUSHBACK = "grpc-retry-pushback-ms"
"""Clients that retry wait so long: https://github.com/grpc/proposal/blob/master/A6-client-retries.md"""


def as_serve_error(failure: Exception, call: str) -> ServeError:
    """The failure itself, or Internal for what nobody foresaw, which is logged with where it happened."""
    if isinstance(failure, ServeError):
        return failure
    _log.error("%s failed: %s: %s", call, type(failure).__name__, failure, exc_info=failure)
    return Internal(f"internal error in {call}: {type(failure).__name__}; the server's log has more")


async def end_call(context: Any, failure: ServeError) -> NoReturn:
    """Abort the call with the failure's status."""
    trailing: tuple[tuple[str, str], ...] = ()
    if failure.retry_after_s is not None:
        trailing = ((_PUSHBACK, str(round(failure.retry_after_s * 1000))),)
    await context.abort(grpc.StatusCode[failure.code], str(failure), trailing)
    raise AssertionError("abort always raises")
