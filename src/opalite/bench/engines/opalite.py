"""Opalite itself. Options: those of InferenceSession (`device`, `precision`, `memory`, `tune`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import opalite

from . import Array, Engine, EngineOptions


class _Opalite:
    def __init__(self, options: EngineOptions) -> None:
        self.version = opalite.__version__
        settings: dict[str, Any] = dict(options.extra)
        self._session = opalite.InferenceSession(options.model, **settings)
        self.device = self._session.device.name

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        results: list[Array] = self._session.run(None, dict(feeds))
        return results

    def settle(self) -> None:
        self._session.settle()


def make_engine(options: EngineOptions) -> Engine:
    """A session. Its threads are the cores that the process may use, which the worker has limited."""
    return _Opalite(options)
