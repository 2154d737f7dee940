"""BaseObserver: no-op callbacks, for observers of some events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..engine.server_observer import RequestTrace, ServerObserver, WorkerEvent
from ..wire.infer_messages import InferRequest, State


class BaseObserver(ServerObserver):
    """Ignores all events."""

    def accepted(self, request: InferRequest, version: str) -> None:
        return

    def rejected(self, model: str, version: str, failure: str) -> None:
        return

    def batch(self, model: str, version: str, device: str, size: int, requests: int, busy_s: float) -> None:
        return

    def finished(self, trace: RequestTrace) -> None:
        return

    def queued(self, model: str, version: str, waiting: int) -> None:
        return

    def worker(self, event: WorkerEvent) -> None:
        return

    def model(self, name: str, version: str, state: State, reason: str) -> None:
        return

    def session(self, model: str, version: str, device: str, pid: int, stats: Mapping[str, Any]) -> None:
        return
