"""ServerObserver: callbacks of the engine, for metrics, logs and spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ..wire.infer_messages import InferRequest, State


@dataclass(frozen=True)
class RequestTrace:
    """The record of a finished request. Times in seconds; started_ns: of time.time_ns().

    batch: elements of its batch, 0 if it did not run. input_s: copies to the worker. infer_s: the session's run.
    output_s: copies from the worker. failure: '' or the class of the ServeError, 'Cancelled' for a disconnected client.
    trace: W3C trace context headers.
    """

    model: str
    version: str
    id: str = ""
    device: str = ""
    batch: int = 0
    priority: int = 0
    started_ns: int = 0
    queue_s: float = 0.0
    input_s: float = 0.0
    infer_s: float = 0.0
    output_s: float = 0.0
    total_s: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    failure: str = ""
    message: str = ""
    trace: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerEvent:
    """A change of state of a worker process. pid: 0 before the start. seconds: until it was ready."""

    kind: Literal["starting", "ready", "lost", "stopped", "failed"]
    model: str
    version: str
    device: str
    pid: int = 0
    reason: str = ""
    seconds: float = 0.0


class ServerObserver:
    """Callbacks on the event loop's thread, without effect here. Implementations return at once and raise nothing."""

    def accepted(self, request: InferRequest, version: str) -> None:
        """A request was queued."""

    def rejected(self, model: str, version: str, failure: str) -> None:
        """A request was refused before it was queued. failure: class of the ServeError."""

    def batch(self, model: str, version: str, device: str, size: int, requests: int, busy_s: float) -> None:
        """A worker has run a batch of `size` elements from `requests` requests in `busy_s` seconds."""

    def finished(self, trace: RequestTrace) -> None:
        """An accepted request was answered or failed."""

    def queued(self, model: str, version: str, waiting: int) -> None:
        """The number of waiting requests of a model changed."""

    def worker(self, event: WorkerEvent) -> None:
        """A worker process started, is ready, or ended."""

    def model(self, name: str, version: str, state: State, reason: str) -> None:
        """The state of a model version changed."""

    def session(self, model: str, version: str, device: str, pid: int, stats: Mapping[str, Any]) -> None:
        """A worker reported `session.stats().to_raw()`, at most once a second while it works."""


class ServerObservers(ServerObserver):
    """Forwards each callback to several observers."""

    def __init__(self, observers: Sequence[ServerObserver] = ()) -> None:
        for name in vars(ServerObserver):
            if not name.startswith("_"):
                setattr(self, name, partial(_call_all, [getattr(o, name) for o in observers]))


def _call_all(callbacks: Sequence[Callable[..., None]], *arguments: Any) -> None:
    for callback in callbacks:
        callback(*arguments)
