"""MultiStepRuns: runs on caches that follow each other at once. Stands for the model in a session's run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...execute.run_trace import RunTrace
from ..run_request import RunRequest
from .kv_cache_runs import KVCacheRuns


class NotQueuedAheadError(Exception):
    """No run can be put on the queue before another has ended: a signal to whoever then runs them one by one."""


class MultiStepRuns:
    """runs: how they go. feeds: of each run. links: by input, the output of the run before that it is."""

    def __init__(self, runs: KVCacheRuns, feeds: Sequence[Mapping[str, Any]], links: Mapping[str, str]) -> None:
        self._runs, self._feeds, self._links = runs, feeds, links

    def check_feeds(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feeds of the first run, which are checked as they are put on the queue."""
        return feeds

    def run(self, feeds: Mapping[str, Any], request: RunRequest) -> tuple[list[Any], RunTrace]:
        """For each run that went, the model's outputs; and what all did. NotAheadError where none went."""
        found = self._runs.run_ahead([feeds, *self._feeds[1:]], self._links, request)
        if found is None:
            raise NotQueuedAheadError
        return found
