"""MultiStepRuns: several decode steps in one call, queued without waiting for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...execute.run_trace import RunTrace
from ..run_request import RunRequest
from .kv_cache_runs import KVCacheRuns


class NotQueuedAheadError(Exception):
    """No step can be queued before the one before it has ended; the caller runs them one by one instead."""


class MultiStepRuns:
    """Takes the model's place in a session's run. feeds: of each step. links: by input, the previous step's output."""

    def __init__(self, runs: KVCacheRuns, feeds: Sequence[Mapping[str, Any]], links: Mapping[str, str]) -> None:
        self._runs, self._feeds, self._links = runs, feeds, links

    def check_feeds(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feeds of the first step; steps are checked as they are queued."""
        return feeds

    def run(self, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
        """The model's outputs of each step that was queued, and the trace of all. NotQueuedAheadError for none."""
        found = self._runs.run_in_flight([feeds, *self._feeds[1:]], self._links, request)
        if found is None:
            raise NotQueuedAheadError
        return found
