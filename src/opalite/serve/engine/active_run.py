"""ActiveRun: a run of a worker, which sends parts of a text and may be cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...run.api.options.run_options import RunOptions
from ..wire.infer_messages import Array

RunResult = tuple[list[tuple[str, str, Array]], dict[str, Any]]
"""Outputs with name and datatype, and parameters of the response."""


class Cancelled(Exception):  # noqa: N818 - no error
    """Nobody waits for the text any more."""


class ActiveRun:
    """A run in progress. options: `terminate` is set when the server cancels it."""

    def __init__(self, send: Callable[[str, list[Any]], None], look: Callable[[], None]) -> None:
        """send: sends a part of a text with its log-probabilities. look: takes the server's cancellations."""
        self.options = RunOptions()
        self._send, self._look = send, look

    @property
    def is_cancelled(self) -> bool:
        self._look()
        return bool(self.options.terminate)

    def piece(self, text: str, logprobs: list[Any]) -> None:
        """Send a part of a text, with the log-probabilities of its tokens."""
        self._send(text, logprobs)
